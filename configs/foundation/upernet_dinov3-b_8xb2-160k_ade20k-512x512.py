# UperNet on DINOv3 ViT-B, fine-tuned, ADE20K, 512 x 512, 160k iterations. No paper reports this
# run; its accuracy was not measured: training follows ../upernet_vit_rope_mixed.py (learning rate
# 5e-5, layer decay 0.75), and nothing was tuned to the weights.
# - Maps: four at even intervals, each after the final norm (DINOv3's default, final_norm='all').
# - DINOv3's coordinates are augmented in training, as in its pre-training.
# The weights have the DINOv3 licence.
_base_ = '../upernet_vit/upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='dinov3_base',
        rope='default',
        out_indices=(2, 5, 8, 11),
        init_cfg=dict(checkpoint='hf-hub:timm/vit_base_patch16_dinov3.lvd1689m'),
    )
)
