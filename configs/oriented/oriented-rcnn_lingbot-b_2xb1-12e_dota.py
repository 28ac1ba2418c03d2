# Oriented R-CNN on LingBot-Vision-B, DOTA-1.0, 12 epochs: the default for commercial use, because
# its weights have the Apache-2.0 licence. No paper reports this run; its accuracy was not measured:
# it is oriented-rcnn_vit-b_rope-mixed_2xb1-12e_dota.py with other weights. Nothing was tuned.
# Class token and registers stay, and window blocks attend to a copy of them in each window.
# Normalised coordinates span any grid, so there is nothing for rope_scaling to adapt.
_base_ = './oriented-rcnn_vit-b_rope-mixed_2xb1-12e_dota.py'

model = dict(
    backbone=dict(
        arch='lingbot_base',
        rope='default',
        with_cls_token='default',
        window_size=16,
        window_prefix='copy',
        rope_scaling=None,
        init_cfg=dict(checkpoint='hf-hub:robbyant/lingbot-vision-vit-base'),
    )
)
optim_wrapper = dict(paramwise_cfg=dict(no_decay=['bias', 'one_dim']))
