# Mask2Former-Swin-B with RoPE-Mixed as Swin-S is trained, on crops of 512: the other reading of the
# paper, which does not name the crop of Swin-B.
_base_ = '../mask2former_swin-s_rope-mixed_8xb2-160k_ade20k-512x512.py'
model = dict(
    backbone=dict(
        arch='base',
        init_cfg=dict(checkpoint='hf-hub:naver-ai/swin_rope_mixed_base_patch4_window7_224'),
    ),
    decode_head=dict(in_channels=[128, 256, 512, 1024]),
)
