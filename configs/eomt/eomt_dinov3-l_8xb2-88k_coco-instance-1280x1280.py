# EoMT on DINOv3 ViT-L, COCO instance, 1280 x 1280, 12 epochs. The authors have 49.9 mask AP.
# Recipe: tue-mps/eomt at 7bd19dd, configs/dinov3/coco/instance/eomt_large_1280.yaml, the
# config for 640 with larger images.
_base_ = './eomt_dinov3-l_8xb2-88k_coco-instance-640x640.py'

train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True, with_mask=True),
    dict(type='RandomFlip', prob=0.5),
    dict(
        type='RandomResize', scale=(1280, 1280), ratio_range=(0.1, 2.0), keep_ratio=True
    ),
    dict(
        type='RandomCrop',
        crop_size=(1280, 1280),
        crop_type='absolute',
        recompute_bbox=True,
        allow_negative_crop=False,
    ),
    dict(
        type='FilterAnnotations',
        min_gt_bbox_wh=(1e-5, 1e-5),
        by_mask=True,
        keep_empty=True,
    ),
    dict(
        type='rope_dense.data.transforms.PadBottomRight',
        size=(1280, 1280),
        pad_val=dict(img=0, seg=255),
    ),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(1280, 1280), keep_ratio=True),
    dict(
        type='rope_dense.data.transforms.PadBottomRight',
        pad_to_square=True,
        pad_val=dict(img=0, seg=255),
    ),
    dict(
        type='LoadAnnotations', with_bbox=True, with_mask=True
    ),  # after Resize: masks keep the size of the original
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape', 'scale_factor'),
    ),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = dict(dataset=dict(pipeline=test_pipeline))
del train_pipeline, test_pipeline  # an override of these keys would change nothing
