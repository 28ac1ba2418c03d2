# PMT on a frozen encoder: the demo config of EoMT, with 20 queries in 2 blocks of their own on four
# maps. The encoder was trained before, by UperNet on other pictures. Results: docs/eomt.md.
_base_ = './eomt_vit_rope_mixed_shapes.py'

model = dict(
    backbone=dict(
        frozen_stages='all',
        out_indices=(1, 2, 3, 5),
        init_cfg=dict(type='Pretrained', checkpoint='work_dirs/encoder/iter_300.pth'),
    ),
    decode_head=dict(pmt=dict(), num_blocks=2),
)
train_dataloader = dict(batch_size=8)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.01, begin=0, end=20),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=0, T_max=150, eta_min=1e-6),
]
train_cfg = dict(max_iters=150, val_interval=150)
custom_hooks = [dict(type='MaskAnnealingHook', start=[10, 45], end=[55, 95])]
