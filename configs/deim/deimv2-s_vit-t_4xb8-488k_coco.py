# DEIMv2-S on ViT-T, COCO, 132 epochs. Its authors report 50.9 AP.
# Recipe: Intellindust-AI-Lab/DEIMv2 at 0fff8d4, configs/deimv2/deimv2_dinov3_s_coco.yml. What
# differs from it: docs/realtime.md. The weights of the ViT are its authors' (Google Drive).
_base_ = [
    '../_base_/models/deim.py',
    '../_base_/datasets/coco_dense.py',
    '../_base_/schedules/dense.py',
    '../_base_/mmdet_runtime.py',
]

custom_imports = dict(imports=['rope_dense', 'rope_dense.data.dense'])
model = dict(
    backbone=dict(
        init_cfg=dict(type='Pretrained', checkpoint='checkpoints/vitt_distill.pt')
    )
)
default_hooks = dict(
    checkpoint=dict(
        interval=3696, max_keep_ckpts=2, save_best='coco/bbox_mAP', rule='greater'
    )
)
