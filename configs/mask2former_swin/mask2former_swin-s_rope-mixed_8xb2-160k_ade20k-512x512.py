# Mask2Former-Swin-S with RoPE-Mixed, ADE20K, 160k iterations. The paper has 51.1 mIoU (Table 4).
# Recipe: configs/ade20k/semantic-segmentation/swin/maskformer2_swin_small_bs16_160k.yaml of
# Mask2Former, without the relative position bias. The paper tests one scale; --tta is the recipe's.
# Where no source settles it: frequencies have no weight decay (the rule of the pre-training) and
# the backbone's learning rate; colour augmentation is mmseg's PhotoMetricDistortion.
_base_ = [
    '../_base_/models/mask2former.py',
    '../_base_/datasets/ade20k_mask2former.py',
    '../_base_/schedules/mask2former_160k.py',
    '../_base_/mmseg_runtime.py',
]

model = dict(
    backbone=dict(
        type='RoPESwin',
        arch='small',
        rope=dict(type='MixedRoPE', theta=10.0),
        window_size=7,
        drop_path_rate=0.3,
        out_indices=(0, 1, 2, 3),
        init_cfg=dict(
            type='Pretrained',
            checkpoint='hf-hub:naver-ai/swin_rope_mixed_small_patch4_window7_224',
        ),
    ),
    decode_head=dict(in_channels=[96, 192, 384, 768]),
)
