# EoMT on ViT-L with RoPE-Axial, COCO panoptic: the config for DINOv3 with the paper's weights and
# their final norm. No paper reports this run; its accuracy was not measured.
_base_ = './eomt_dinov3-l_8xb2-89k_coco-panoptic-640x640.py'

model = dict(
    backbone=dict(
        arch='large',
        qkv_bias='default',
        rope=dict(type='AxialRoPE', theta=100.0),
        final_norm=True,
        init_cfg=dict(checkpoint='hf-hub:naver-ai/rope_axial_deit_large_patch16_LS'),
    )
)
optim_wrapper = dict(paramwise_cfg=dict(no_decay=['frequency']))
