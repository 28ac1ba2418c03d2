# DPT on a frozen DINOv3 ViT-B, ADE20K, 512 x 512, 40k iterations. No paper reports this run; its
# accuracy was not measured.
# - Maps: as in Meta's DPT heads for depth on frozen DINOv3 (dinov3/hub/depthers.py): four at
#   even intervals, each after the final norm, each with its class token ("project", as in CHMv2's).
# - Head: mmseg's DPTHead with the sizes of its own config for ViT-B.
# - Training: the linear recipe; nothing was tuned.
_base_ = './linear_dinov3-b_8xb2-40k_ade20k-512x512.py'

model = dict(
    backbone=dict(out_indices=(2, 5, 8, 11), output_prefix='cls'),
    decode_head=dict(
        _delete_=True,
        type='DPTHead',
        in_channels=[768, 768, 768, 768],
        in_index=[0, 1, 2, 3],
        input_transform='multiple_select',
        embed_dims=768,
        channels=256,
        post_process_channels=[96, 192, 384, 768],
        readout_type='project',
        num_classes=150,
        norm_cfg=dict(type='SyncBN', requires_grad=True),
        align_corners=False,
        loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0),
    ),
)
