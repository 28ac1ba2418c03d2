# PMT on DINOv3 ViT-L, COCO instance, 640 x 640, 12 epochs. The authors have 45.4 mask AP.
# Recipe: tue-mps/pmt at 54d73c9, image/configs/coco/instance/pmt_l_640.yaml and the code that
# reads it.
# - The encoder is frozen; maps of four blocks, the FFN of the new blocks as wide as the tokens.
# - A linear warm-up of 6000 iterations, then a cosine.
# Differences: biases of the new attention start at 0; others as in the config of EoMT below.
# The weights have the DINOv3 licence.
_base_ = '../eomt/eomt_dinov3-l_8xb2-88k_coco-instance-640x640.py'

model = dict(
    backbone=dict(frozen_stages='all', out_indices=(5, 11, 17, 23)),
    panoptic_head=dict(num_blocks=6, pmt=dict()),
)

optim_wrapper = dict(paramwise_cfg=dict(_delete_=True, lr_mult={'backbone': 1.0}))
param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=1e-6, begin=0, end=6001),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=6000, end=87948, eta_min=1e-9),
]
custom_hooks = [
    dict(
        type='MaskAnnealingHook',
        start=[0, 23651, 32520, 41389, 50258, 59128],
        end=[3000, 38433, 47302, 56171, 65040, 73910],
        power=0.9,
    )
]
sync_bn = 'torch'
