# UperNet on LingBot-Vision-B, ADE20K, 512 x 512, 160k iterations. No paper has this run and its
# accuracy was not measured: it is the recipe of ../upernet_vit_rope_mixed.py with other weights,
# and nothing was tuned to them.
# - LingBot-Vision's norm of the last block is kept; the recipe's ViT has none.
# - Its coordinates are augmented in training, as in its pre-training.
# The weights have the Apache-2.0 licence.
_base_ = '../upernet_vit_rope_mixed.py'

model = dict(
    backbone=dict(
        arch='lingbot_base',
        rope='default',
        final_norm=True,
        init_cfg=dict(checkpoint='hf-hub:robbyant/lingbot-vision-vit-base'),
    )
)
