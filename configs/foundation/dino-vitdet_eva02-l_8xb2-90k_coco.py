# DINO on EVA-02-L, fine-tuned, COCO, 12 epochs; as for size B, from detrex's
# dino_eva_02_vitdet_l_4attn_1024_lrd0p8_4scale_12ep.py at 64135ca: drop path 0.4, layer decay
# 0.8, four global blocks.
_base_ = './dino-vitdet_eva02-b_8xb2-90k_coco.py'

model = dict(
    backbone=dict(
        arch='eva02_large',
        window_block_indexes=(*range(5), *range(6, 11), *range(12, 17), *range(18, 23)),
        drop_path_rate=0.4,
        init_cfg=dict(checkpoint='hf-hub:timm/eva02_large_patch14_224.mim_m38m'),
    ),
    neck=[
        dict(type='PlainViTFPN', in_channels=1024, out_channels=256),
        dict(
            type='ChannelMapper',
            in_channels=[256, 256, 256, 256],
            kernel_size=1,
            out_channels=256,
            bias=True,
            act_cfg=None,
            norm_cfg=dict(type='GN', num_groups=32),
            num_outs=4,
        ),
    ],
)
optim_wrapper = dict(paramwise_cfg=dict(layer_decay=0.8))
