# A classifier of ImageNet-1k, evaluated as in the fused-attention paper. A config adds the rest.
custom_imports = dict(imports=['research'], allow_failed_imports=False)
default_scope = 'mmengine'

model = dict(
    type='RoPEClassifier',
    num_classes=1000,
    data_preprocessor=dict(
        type='ImgDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        bgr_to_rgb=True,
    ),
)
# For rope-dense research eval-classification --config.
evaluation = dict(sizes=[128, 192, 224, 256, 320, 384, 480, 512], crop_ratio=0.875)
