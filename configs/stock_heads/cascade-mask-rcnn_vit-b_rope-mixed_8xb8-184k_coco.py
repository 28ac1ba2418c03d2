# ViTDet: Cascade Mask R-CNN on ViT-B with RoPE-Mixed, COCO, 100 epochs. No paper reports this run;
# its accuracy was not measured (detectron2 reports 54.0 box AP, 46.7 mask AP from MAE).
# Recipe: detectron2 at 02b5c4e, projects/ViTDet/configs/COCO/cascade_mask_rcnn_vitdet_b_100ep.py,
# as for Mask R-CNN. Differences, as in mmdet: losses of the three stages count 1, 0.5 and 0.25,
# and each stage has a mask head.
_base_ = './mask-rcnn_vit-b_rope-mixed_8xb8-184k_coco.py'

model = dict(
    type='CascadeRCNN',
    roi_head=dict(
        type='CascadeRoIHead',
        num_stages=3,
        stage_loss_weights=[1, 0.5, 0.25],
        bbox_head=[
            dict(
                type='Shared4Conv1FCBBoxHead',
                in_channels=256,
                conv_out_channels=256,
                fc_out_channels=1024,
                roi_feat_size=7,
                num_classes=80,
                norm_cfg=dict(type='ChannelLayerNorm', eps=1e-6),
                reg_class_agnostic=True,
                bbox_coder=dict(
                    type='DeltaXYWHBBoxCoder',
                    target_means=[0.0, 0.0, 0.0, 0.0],
                    target_stds=[
                        1 / w for w in (weight, weight, weight / 2, weight / 2)
                    ],
                ),
                loss_cls=dict(
                    type='CrossEntropyLoss', use_sigmoid=False, loss_weight=1.0
                ),
                loss_bbox=dict(type='L1Loss', loss_weight=1.0),
            )
            for weight in (10, 20, 30)
        ],
    ),
    train_cfg=dict(
        rcnn=[
            dict(
                assigner=dict(
                    type='MaxIoUAssigner',
                    pos_iou_thr=threshold,
                    neg_iou_thr=threshold,
                    min_pos_iou=threshold,
                    match_low_quality=False,
                    ignore_iof_thr=-1,
                ),
                sampler=dict(
                    type='RandomSampler',
                    num=512,
                    pos_fraction=0.25,
                    neg_pos_ub=-1,
                    add_gt_as_proposals=True,
                ),
                mask_size=28,
                pos_weight=-1,
                debug=False,
            )
            for threshold in (0.5, 0.6, 0.7)
        ]
    ),
)
