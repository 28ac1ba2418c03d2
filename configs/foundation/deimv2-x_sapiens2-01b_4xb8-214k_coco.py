# DEIMv2-X on Sapiens2-0.1B, COCO, 58 epochs: the recipe of
# ../deim/deimv2-x_dinov3-s-plus_4xb8-214k_coco.py. Not among its authors' configs, and its accuracy
# was not measured.
# The weights are under the Sapiens2 License, which forbids some uses, such as surveillance, the
# processing of biometric data, military uses and critical infrastructure, and may be audited. Read
# it before you train: https://github.com/facebookresearch/sapiens2/blob/main/LICENSE.md
_base_ = '../deim/deimv2-x_dinov3-s-plus_4xb8-214k_coco.py'

model = dict(
    backbone=dict(
        arch='sapiens2_01b',
        qkv_bias='default',
        init_cfg=dict(
            checkpoint='https://huggingface.co/facebook/sapiens2-pretrain-0.1b/resolve/main/'
            'sapiens2_0.1b_pretrain.safetensors'
        ),
    ),
    neck=dict(in_channels=768),
)
