# As linear_vit_rope_mixed_camvid.py, with every other block in windows of a quarter of the training
# image, as in ViTDet.
_base_ = './linear_vit_rope_mixed_camvid.py'

model = dict(backbone=dict(window_size=(6, 8), window_block_indexes=(0, 2)))
