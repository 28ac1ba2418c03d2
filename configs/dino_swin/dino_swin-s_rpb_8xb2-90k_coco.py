# Swin-S, relative position bias. The paper reports 53.0 box AP (Table 2).
# The paper's weights are not published; these are Microsoft's, trained without rotary embedding.
_base_ = './dino_swin-s_rope-mixed_8xb2-90k_coco.py'
weights = 'https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_small_patch4_window7_224.pth'
model = dict(
    backbone=dict(
        rope=None, attention=dict(type='TableBias'), init_cfg=dict(checkpoint=weights)
    )
)
del weights
