# Linear segmentation on a frozen V-JEPA 2.1 B, ADE20K, 512 x 512, 40k iterations: DINOv3's recipe,
# linear_dinov3-b_8xb2-40k_ade20k-512x512.py. Not its authors' recipe, and never run at full size.
# - The map of the last block after its norm, without prefix tokens: the model has none.
# The weights are under the MIT licence.
_base_ = './linear_dinov3-b_8xb2-40k_ade20k-512x512.py'

model = dict(
    backbone=dict(
        arch='vjepa2_1_base',
        init_cfg=dict(
            checkpoint='https://dl.fbaipublicfiles.com/vjepa2/vjepa2_1_vitb_dist_vitG_384.pt'
        ),
    )
)
