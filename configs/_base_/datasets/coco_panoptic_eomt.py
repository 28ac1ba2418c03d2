# COCO 2017, things and stuff, with EoMT's augmentation: both sides within 640 times 0.1 to 2.0,
# crops of 640 x 640, padded with black at the bottom and right. Tests fit into 640 x 640, padded as
# well. Needs github.com/cocodataset/panopticapi.
_base_ = './coco_instance_eomt.py'

from rope_dense.utils.config_parts import with_steps

train_dataloader = with_steps(
    _base_.train_dataloader,
    LoadAnnotations=dict(type='LoadPanopticAnnotations'),
    RandomCrop=dict(allow_negative_crop=True),
    FilterAnnotations=dict(keep_empty=False),
    CocoDataset=dict(
        type='CocoPanopticDataset',
        ann_file='annotations/panoptic_train2017.json',
        data_prefix=dict(img='train2017/', seg='annotations/panoptic_train2017/'),
    ),
)
val_dataloader = with_steps(
    _base_.val_dataloader,
    LoadAnnotations=dict(type='LoadPanopticAnnotations'),
    CocoDataset=dict(
        type='CocoPanopticDataset',
        ann_file='annotations/panoptic_val2017.json',
        data_prefix=dict(img='val2017/', seg='annotations/panoptic_val2017/'),
    ),
)
test_dataloader = val_dataloader

val_evaluator = dict(
    _delete_=True,
    type='CocoPanopticMetric',
    ann_file='data/coco/annotations/panoptic_val2017.json',
    seg_prefix='data/coco/annotations/panoptic_val2017/',
)
test_evaluator = val_evaluator
