# DEIMv2-L with an angle on LingBot-Vision-S (Apache-2.0), DOTA-1.0, 72 epochs, tiles of 1024 pixels
# with random rotations. No paper reports this run; its accuracy was not measured. Published for
# real-time DETRs with an angle, on ResNets: O2-RTDETR-R50 78.45 mAP, O2-DEIM-R50 80.15 (TGRS 2026,
# arXiv 2603.15497).
# - Recipe: wokaikaixinxin/ai4rs at e018cb4, projects/rotated_rtdetr/configs/
#   o2_rtdetr_r50vd_2xb4_72e_dota.py: AdamW 1e-4, weight decay 1e-4 (not of norms), backbone at a
#   tenth of the learning rate, clip 0.1, warm-up of 2000 iterations, then constant; flips and
#   rotations, a moving average of the weights; KLD 2 and a distance 5 in losses and matching.
# - Ours: the detector (deimv2-l_lingbot-s_4xb8-251k_coco.py with another head), numbers of boxes
#   and their distributions; MAL, FGL and DDF with DEIMv2's weights, biases without weight decay, no
#   late matching. See docs/oriented.md.
_base_ = [
    '../_base_/models/deim.py',
    'mmrotate::_base_/datasets/dota.py',
    'mmrotate::_base_/schedules/schedule_1x.py',
    'mmrotate::_base_/default_runtime.py',
]
custom_imports = dict(imports=['rope_dense', 'rope_dense.models.mmrotate'])

model = dict(
    data_preprocessor=dict(
        type='mmdet.DetDataPreprocessor', boxtype2tensor=False, batch_augments=None
    ),
    backbone=dict(
        arch='lingbot_small',
        out_indices=(5, 8, 11),
        init_cfg=dict(
            type='Pretrained', checkpoint='hf-hub:robbyant/lingbot-vision-vit-small'
        ),
    ),
    neck=dict(in_channels=384, stem_channels=32, out_channels=224),
    encoder=dict(
        in_channels=(224, 224, 224),
        embed_dims=224,
        feedforward_channels=896,
        num_blocks=3,
        expansion=1.0,
    ),
    bbox_head=dict(
        type='OrientedDEIMHead',
        num_classes=15,
        embed_dims=224,
        decoder=dict(feedforward_channels=1792),
        matching=dict(_delete_=True, class_cost=2.0, bbox_cost=5.0, kld_cost=2.0),
        loss_weights=dict(_delete_=True, mal=1.0, bbox=5.0, kld=2.0, fgl=0.15, ddf=1.5),
    ),
)
tta_model = None

train_dataloader = dict(
    batch_size=4,
    num_workers=4,
    dataset=dict(
        pipeline=[
            dict(type='mmdet.LoadImageFromFile'),
            dict(type='mmdet.LoadAnnotations', with_bbox=True, box_type='qbox'),
            dict(type='ConvertBoxType', box_type_mapping=dict(gt_bboxes='rbox')),
            dict(type='mmdet.Resize', scale=(1024, 1024), keep_ratio=True),
            dict(
                type='mmdet.RandomFlip',
                prob=0.75,
                direction=['horizontal', 'vertical', 'diagonal'],
            ),
            dict(
                type='RandomRotate', prob=0.5, angle_range=180, rect_obj_labels=[9, 11]
            ),
            dict(
                type='mmdet.Pad', size=(1024, 1024), pad_val=dict(img=(114, 114, 114))
            ),
            dict(type='mmdet.PackDetInputs'),
        ]
    ),
)
optim_wrapper = dict(
    _delete_=True,
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=1e-4),
    clip_grad=dict(max_norm=0.1, norm_type=2),
    constructor='NamedGroupsConstructor',
    paramwise_cfg=dict(
        lr_mult={'backbone': 0.1}, no_decay=['norm', 'bias', 'frequency']
    ),
)
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=0.001, begin=0, end=2000),
]
train_cfg = dict(max_epochs=72, val_interval=6)
custom_hooks = [
    dict(
        type='EMAHook',
        ema_type='mmdet.ExpMomentumEMA',
        momentum=1e-4,
        update_buffers=True,
    ),
]
auto_scale_lr = dict(enable=False, base_batch_size=8)
