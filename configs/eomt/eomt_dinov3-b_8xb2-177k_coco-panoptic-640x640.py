# EoMT on DINOv3 ViT-B, COCO panoptic, 640 x 640, 24 epochs. The authors have 53.1 PQ.
# Recipe: tue-mps/eomt at 7bd19dd, configs/dinov3/coco/panoptic/eomt_base_640_2x.yaml; queries join
# 3 of 12 blocks.
_base_ = './eomt_dinov3-l_8xb2-89k_coco-panoptic-640x640.py'

model = dict(
    backbone=dict(
        arch='dinov3_base',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_base_patch16_dinov3_qkvb.lvd1689m'),
    ),
    panoptic_head=dict(in_channels=768, num_blocks=3),
)

rates = {f'backbone.blocks.{block}': 0.8 ** (11 - block) for block in range(9)}
rates |= {'backbone': 0.8**11, 'backbone.blocks': 1.0, 'backbone.norm': 1.0}
optim_wrapper = dict(paramwise_cfg=dict(_delete_=True, lr_mult=rates))
del rates
param_scheduler = [
    dict(
        type='TwoStageWarmupPolyLR',
        by_epoch=False,
        warmup=2000,
        backbone_warmup=3000,
        end=177384,
        power=0.9,
    )
]
train_cfg = dict(max_iters=177384, val_interval=7391)
custom_hooks = [
    dict(
        type='MaskAnnealingHook',
        start=[0, 73910, 118256],
        end=[3000, 103474, 147820],
        power=0.9,
    )
]
