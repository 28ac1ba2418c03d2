# Swin-B, relative position bias. The paper reports 51.5 mIoU (Table 4).
# The paper's weights are not published; these are Microsoft's, trained without rotary embedding.
_base_ = './mask2former_swin-b_rope-mixed_8xb2-160k_ade20k-640x640.py'
weights = 'https://github.com/SwinTransformer/storage/releases/download/v1.0.0/swin_base_patch4_window7_224.pth'
model = dict(
    backbone=dict(
        rope=None, attention=dict(type='TableBias'), init_cfg=dict(checkpoint=weights)
    )
)
del weights
