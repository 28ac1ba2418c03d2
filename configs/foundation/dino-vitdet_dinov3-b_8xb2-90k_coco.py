# DINO on DINOv3 ViT-B, fine-tuned, COCO, 12 epochs. No paper reports this run; its accuracy was not
# measured: it is the recipe of ../dino_vitdet_rope_mixed.py with the learning rates of detrex's
# DINO on EVA-02-B (1e-4, layer decay 0.7), and nothing was tuned to the weights.
# - Class token and registers stay, because the weights were trained with them: window blocks attend
#   to a copy of them in each window. Windows have 16 x 16 tokens, the grid of DINOv3's crops of 256
#   pixels.
# - The map is taken after the final norm (DINOv3's default, final_norm='all').
# - DINOv3's coordinates are augmented in training, as in its pre-training.
# The weights have the DINOv3 licence.
_base_ = '../dino_vitdet/dino-vitdet_vit-b_rope-mixed_8xb2-90k_coco.py'

model = dict(
    backbone=dict(
        arch='dinov3_base',
        rope='default',
        with_cls_token='default',
        window_size=16,
        window_prefix='copy',
        init_cfg=dict(checkpoint='hf-hub:timm/vit_base_patch16_dinov3.lvd1689m'),
    )
)
optim_wrapper = dict(paramwise_cfg=dict(_delete_=True, layer_decay=0.7))
