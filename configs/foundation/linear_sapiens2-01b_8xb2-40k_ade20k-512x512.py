# Linear segmentation on a frozen Sapiens2-0.1B, ADE20K, 512 x 512, 40k iterations: DINOv3's recipe,
# linear_dinov3-b_8xb2-40k_ade20k-512x512.py. Not its authors' recipe, and never run at full size.
# The weights are under the Sapiens2 License, which forbids some uses, such as surveillance, the
# processing of biometric data, military uses and critical infrastructure, and may be audited. Read
# it before you train: https://github.com/facebookresearch/sapiens2/blob/main/LICENSE.md
_base_ = './linear_dinov3-b_8xb2-40k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='sapiens2_01b',
        init_cfg=dict(
            checkpoint='https://huggingface.co/facebook/sapiens2-pretrain-0.1b/resolve/main/'
            'sapiens2_0.1b_pretrain.safetensors'
        ),
    )
)
