# ViTDet: Mask R-CNN on ViT-B with RoPE-Mixed, COCO, 100 epochs. No paper reports this run; its
# accuracy was not measured (detectron2 reports 51.6 box AP, 45.9 mask AP from MAE's weights).
# Recipe: detectron2 at 02b5c4e, projects/ViTDet/configs/COCO/mask_rcnn_vitdet_b_100ep.py, with
# another position embedding; the head is mmdet's, in ViTDet's form: two convolutions in the RPN,
# four and one linear layer in the box head, channel-wise LayerNorm.
# Other backbones of 16-pixel patches: model.backbone and model.neck.in_channels.
_base_ = [
    'mmdet::_base_/models/mask-rcnn_r50_fpn.py',
    '../_base_/datasets/coco_lsj.py',
    '../_base_/schedules/vitdet_184k.py',
    '../_base_/mmdet_runtime.py',
]

norm_cfg = dict(type='ChannelLayerNorm', eps=1e-6)
model = dict(
    data_preprocessor=dict(pad_size_divisor=1024),
    backbone=dict(
        _delete_=True,
        type='RoPEViT',
        arch='base',
        rope=dict(type='MixedRoPE', theta=10.0),
        rope_scaling=dict(
            type='none', grid=(64, 64)
        ),  # of 1024 pixels, for other types at test
        with_cls_token=False,
        window_size=14,
        window_block_indexes=(0, 1, 3, 4, 6, 7, 9, 10),
        drop_path_rate=0.1,
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
    rpn_head=dict(num_convs=2),
    roi_head=dict(
        bbox_head=dict(
            type='Shared4Conv1FCBBoxHead', conv_out_channels=256, norm_cfg=norm_cfg
        ),
        mask_head=dict(norm_cfg=norm_cfg),
    ),
)
del norm_cfg  # an override of this key would change nothing
