# PMT on DINOv3 ViT-L, ADE20K semantic, 512 x 512, 16 epochs. The authors have 58.5 mIoU.
# Recipe: tue-mps/pmt at 54d73c9, image/configs/ade20k/semantic/pmt_l.yaml and the code that
# reads it.
# - The encoder is frozen; maps of four blocks, the FFN of the new blocks as wide as the tokens.
# - A linear warm-up of 6000 iterations, then a cosine.
# Differences: biases of the new attention start at 0; others as in the config of EoMT below.
# The weights have the DINOv3 licence.
_base_ = '../eomt/eomt_dinov3-l_8xb2-20k_ade20k-512x512.py'

model = dict(
    backbone=dict(frozen_stages='all', out_indices=(5, 11, 17, 23)),
    decode_head=dict(num_blocks=6, pmt=dict()),
)

param_scheduler = [
    dict(type='LinearLR', by_epoch=False, start_factor=1e-6, begin=0, end=6001),
    dict(type='CosineAnnealingLR', by_epoch=False, begin=6000, end=20208, eta_min=1e-9),
]
custom_hooks = [
    dict(
        type='MaskAnnealingHook',
        start=[0, 5384, 7403, 9422, 11442, 13461],
        end=[3000, 8749, 10769, 12788, 14807, 16826],
        power=0.9,
    )
]
sync_bn = 'torch'
