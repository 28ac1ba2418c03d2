# Oriented R-CNN on ViT-B with RoPE-Mixed in windows, DOTA-1.0, 12 epochs, tiles of 1024 pixels. No
# paper reports this run; its accuracy was not measured (ViT-B with RVSA from MAE's weights: 78.75
# mAP). Recipe: Remote-Sensing-RVSA at ef153d7, oriented_rcnn/vit_base_win/
# faster_rcnn_orpn_our_rsp_vit-base-win-rvsa_v3_wsz7_fpn_1x_dota10_lr1e-4_ldr75_dpr15.py, its log:
# AdamW 1e-4, weight decay 0.05 (not of biases and norms), layer decay 0.75, drop path 0.15, two
# GPUs with an image each, warm-up of 500 iterations from factor 0.001, every third block global.
# - Windows without RVSA's learned shape. Window 'auto' has 16 x 16 tokens in 64 x 64, so that no
#   token is padding; RVSA's have 7 x 7. Another image size gets the window that divides its grid.
# - Low frequencies of global blocks are adapted to grids larger than the 14 x 14 of pre-training
#   ('by_parts'), so tiles of 1024 pixels and more have no angle that pre-training has not seen.
# - One pyramid from the last map (ViTDet's) in place of RVSA's with an FPN behind it.
# - The detector is mmrotate's, whose assigner and losses are those of the source.
_base_ = 'mmrotate::oriented_rcnn/oriented-rcnn-le90_r50_fpn_1x_dota.py'
custom_imports = dict(imports=['rope_dense', 'rope_dense.models.mmrotate'])

model = dict(
    backbone=dict(
        _delete_=True,
        type='RoPEViT',
        arch='base',
        rope=dict(type='MixedRoPE', theta=10.0),
        with_cls_token=False,
        window_size='auto',
        window_block_indexes=(0, 1, 3, 4, 6, 7, 9, 10),
        rope_scaling=dict(type='by_parts'),
        drop_path_rate=0.15,
        init_cfg=dict(
            type='Pretrained',
            checkpoint='hf-hub:naver-ai/rope_mixed_deit_base_patch16_LS',
        ),
    ),
    neck=dict(
        _delete_=True,
        type='PlainViTFPN',
        in_channels=768,
        out_channels=256,
        scale_factors=(4, 2, 1, 0.5),
        num_outs=5,
    ),
)
train_dataloader = dict(batch_size=1)
optim_wrapper = dict(
    optimizer=dict(
        _delete_=True, type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05
    ),
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(
        layer_decay=0.75, no_decay=['bias', 'one_dim', 'position', 'frequency']
    ),
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.001, begin=0, end=500),
    dict(
        type='MultiStepLR',
        by_epoch=True,
        begin=0,
        end=12,
        milestones=[8, 11],
        gamma=0.1,
    ),
]
auto_scale_lr = dict(enable=False, base_batch_size=2)
