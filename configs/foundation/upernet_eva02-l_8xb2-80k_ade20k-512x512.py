# UperNet on EVA-02-L, fine-tuned, ADE20K, 512 x 512, 80k iterations of 16 images; as for size B.
# The authors report 59.8 mIoU with patches resized to 16 pixels.
# Recipe: baaivision/EVA, EVA-02/seg/configs/eva02/upernet/upernet_eva02_large_24_512_slide_80k.py.
_base_ = './upernet_eva02-b_8xb4-60k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='eva02_large',
        out_indices=(7, 11, 15, 23),
        drop_path_rate=0.2,
        init_cfg=dict(checkpoint='hf-hub:timm/eva02_large_patch14_224.mim_m38m'),
    ),
    neck=dict(embed_dim=1024),
    decode_head=dict(in_channels=[1024, 1024, 1024, 1024], channels=1024),
    auxiliary_head=dict(in_channels=1024),
)
train_dataloader = dict(batch_size=2)
optim_wrapper = dict(optimizer=dict(lr=4e-5), paramwise_cfg=dict(layer_decay=0.9))
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=1e-6, begin=0, end=1500),
    dict(type='PolyLR', by_epoch=False, power=1.0, eta_min=0.0, begin=0, end=80000),
]
train_cfg = dict(max_iters=80000, val_interval=8000)
default_hooks = dict(checkpoint=dict(interval=8000))
auto_scale_lr = dict(base_batch_size=16)
