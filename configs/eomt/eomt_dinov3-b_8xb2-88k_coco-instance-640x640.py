# EoMT on DINOv3 ViT-B, COCO instance, 640 x 640, 12 epochs. Not among the authors' configs: the
# config for ViT-L with 3 blocks, annealed as in
# their configs/dinov2/coco/panoptic/eomt_base_640.yaml. Its accuracy was not measured.
_base_ = './eomt_dinov3-l_8xb2-88k_coco-instance-640x640.py'

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
custom_hooks = [
    dict(
        type='MaskAnnealingHook',
        start=[14782, 36955, 59128],
        end=[29564, 51737, 73910],
        power=0.9,
    )
]
