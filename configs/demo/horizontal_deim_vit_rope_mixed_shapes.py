# The detector of ./oriented_deim_vit_rope_mixed_shapes.py with horizontal boxes around the rotated
# shapes, which are scored as oriented boxes at angle 0: what an angle is worth.
_base_ = './oriented_deim_vit_rope_mixed_shapes.py'
custom_imports = dict(
    imports=['rope_dense', 'rope_dense.models.mmrotate', 'research.oriented']
)

model = dict(bbox_head=dict(type='DEIMHead'))
train_dataloader = dict(
    dataset=dict(
        pipeline=[
            dict(type='mmdet.LoadImageFromFile'),
            dict(type='mmdet.LoadAnnotations', with_bbox=True, box_type='qbox'),
            dict(type='ConvertBoxType', box_type_mapping=dict(gt_bboxes='hbox')),
            dict(
                type='mmdet.RandomFlip',
                prob=0.75,
                direction=['horizontal', 'vertical', 'diagonal'],
            ),
            dict(type='mmdet.PackDetInputs'),
        ]
    )
)
val_evaluator = dict(type='HorizontalDOTAMetric')
test_evaluator = val_evaluator
