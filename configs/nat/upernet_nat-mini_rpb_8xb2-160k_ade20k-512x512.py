# UperNet, NAT-Mini, bias, ADE20K. As published: 45.1 mIoU at one scale, 46.4 at several.
# Recipe: SHI-Labs/Neighborhood-Attention-Transformer at d334f5b,
# segmentation/configs/nat/upernet_nat_mini_512x512_160k_ade20k.py and its base files.
# Where no source settles it: several scales as in upernet_vit (--tta).
_base_ = [
    '../_base_/models/upernet_stages.py',
    '../_base_/datasets/ade20k.py',
    '../_base_/schedules/upernet_160k.py',
    '../_base_/mmseg_runtime.py',
]

model = dict(
    backbone=dict(
        type='RoPENAT',
        arch='nat_mini',
        rope=None,
        attention=dict(type='TableBias'),
        kernel_size=7,
        drop_path_rate=0.2,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='https://shi-labs.com/projects/nat/checkpoints/CLS/nat_mini.pth',
        ),
    ),
    decode_head=dict(in_channels=[64, 128, 256, 512]),
    auxiliary_head=dict(in_channels=256),
)

optim_wrapper = dict(
    _delete_=True,
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=6e-5, betas=(0.9, 0.999), weight_decay=0.01),
    paramwise_cfg=dict(
        custom_keys={
            'relative_position_bias_table': dict(decay_mult=0.0),
            'norm': dict(decay_mult=0.0),
            'freqs': dict(decay_mult=0.0),
        }
    ),
)
default_hooks = dict(checkpoint=dict(interval=16000))
