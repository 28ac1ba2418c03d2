# DPT for depth on a frozen DINOv3 ViT-B, NYU Depth v2, crops of 416 x 544, 38.4k iterations. No
# paper reports this run; its accuracy was not measured.
# - Maps: four at even intervals after the final norm, each with its class token, as CHMv2's.
# - Head: that of CHMv2 with even bins and, of mmseg's DPT for ViT-B, the channels of the maps.
# - Training: the linear recipe; nothing was tuned.
_base_ = './linear_dinov3-b_8xb2-38k_nyu-416x544.py'

model = dict(
    backbone=dict(out_indices=(2, 5, 8, 11), output_prefix='cls'),
    decode_head=dict(
        _delete_=True,
        type='DPTDepthHead',
        in_channels=768,
        post_process_channels=[96, 192, 384, 768],
        num_bins=256,
        min_depth=0.001,
        max_depth=10.0,
        align_corners=False,
        loss_decode=dict(type='BatchSiLogLoss', warm_up=100),
    ),
)
