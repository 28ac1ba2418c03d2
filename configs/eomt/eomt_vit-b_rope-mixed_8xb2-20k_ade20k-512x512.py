# EoMT on ViT-B with RoPE-Mixed, ADE20K semantic: the config for DINOv3 with the paper's weights and
# their final norm. No paper reports this run; its accuracy was not measured.
_base_ = './eomt_dinov3-b_8xb2-20k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='base',
        qkv_bias='default',
        rope=dict(type='MixedRoPE', theta=10.0),
        final_norm=True,
        init_cfg=dict(checkpoint='hf-hub:naver-ai/rope_mixed_deit_base_patch16_LS'),
    )
)
optim_wrapper = dict(paramwise_cfg=dict(no_decay=['frequency']))
