# UperNet-ViT-L with RoPE-Mixed, ADE20K, 512 x 512, 160k iterations. The paper reports 51.5 mIoU at
# one scale and 52.3 at several (Table 3; --tta).
# Recipe: BEiT v2 with ImageNet-1k pre-training, upernet_beit_large_24_512_slide_160k_ade20k.py.
# Where no source settles it: as for ViT-B.
_base_ = './upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='large',
        out_indices=(7, 11, 15, 23),
        drop_path_rate=0.2,
        init_cfg=dict(checkpoint='hf-hub:naver-ai/rope_mixed_deit_large_patch16_LS'),
    ),
    neck=dict(embed_dim=1024),
    decode_head=dict(in_channels=[1024, 1024, 1024, 1024], channels=1024),
    auxiliary_head=dict(in_channels=1024),
)
optim_wrapper = dict(optimizer=dict(lr=4e-5), paramwise_cfg=dict(layer_decay=0.9))
