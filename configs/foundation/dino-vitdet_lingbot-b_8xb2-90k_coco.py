# DINO on LingBot-Vision-B, COCO, 12 epochs. No paper has this run and its accuracy was not
# measured: it is the recipe of ../dino_vitdet_rope_mixed.py with other weights, and nothing was
# tuned to them.
# - All blocks attend globally, with class token and registers, as the weights were trained. For
#   ViTDet's windows set window_block_indexes, with_cls_token=False and num_registers=0.
# - LingBot-Vision's norm of the last block is kept; the recipe's ViT has none.
# - Its coordinates are augmented in training, as in its pre-training.
# The weights have the Apache-2.0 licence.
_base_ = '../dino_vitdet_rope_mixed.py'

model = dict(
    backbone=dict(
        arch='lingbot_base',
        rope='default',
        with_cls_token=True,
        window_block_indexes=(),
        final_norm=True,
        init_cfg=dict(checkpoint='hf-hub:robbyant/lingbot-vision-vit-base'),
    )
)
