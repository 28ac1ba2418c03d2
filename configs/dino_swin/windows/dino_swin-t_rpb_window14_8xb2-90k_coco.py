# Swin-T, relative position bias, windows of 14 tokens; the tables of the pre-training, for
# windows of 7, are resized when they are loaded. Not in the paper's tables.
_base_ = '../dino_swin-t_rpb_8xb2-90k_coco.py'
model = dict(backbone=dict(window_size=14, pretrain_window_size=14))
