"""The named architectures of ``RoPEViT``."""

from .foundation import BASE, DINOV3_ROPE, EVA02_ROPE, FOUNDATION_ARCHS, LARGE, SMALL, TINY
from .towers import TOWER_ARCHS

# timm's own models, called vit_*_patch16_rope_reg*_gap_256 there.
ROPE_REG = dict(
    img_size=256,
    qkv_bias='qv',
    rope=EVA02_ROPE,
    with_cls_token=False,
    num_registers=1,
    layer_scale_init_value=1e-5,
)
# The plain ViT of the neighbourhood-attention papers: public code, ``isotropic.py``. Its weights
# are the rows with a bias of the fused-attention paper, whose ViTs are therefore taken to have its
# heads of 32 too, in all rows but k_rope = 16, which heads of 32 do not allow.
ISOTROPIC = dict(
    depth=12,
    rope=None,
    attention=dict(type='TableBias'),
    patch_norm=True,
    with_cls_token=False,
    layer_scale_init_value=None,
    norm_cfg=dict(type='LN', eps=1e-5),
)

# The small ViTs of real-time detectors, with the positions of DINOv3: DEIMv2 (Huang et al., 2025)
# and EdgeCrafter (2026), both of Intellindust-AI-Lab. DEIMv2-L and X are on DINOv3.
TINY_PLUS = dict(embed_dims=256, depth=12, num_heads=4)
REALTIME = dict(img_size=640, rope=DINOV3_ROPE, layer_scale_init_value=None)
ECVIT = dict(REALTIME, with_cls_token=False, num_registers=1, conv_stem=True)

VIT_ARCHS: dict[str, dict] = {
    'tiny': TINY,
    'small': SMALL,
    'base': BASE,
    'large': LARGE,
    **FOUNDATION_ARCHS,
    **TOWER_ARCHS,
    'rope_reg1_medium': dict(ROPE_REG, embed_dims=512, depth=12, num_heads=8),
    'rope_reg1_mediumd': dict(ROPE_REG, embed_dims=512, depth=20, num_heads=8, qkv_bias=False),
    'rope_reg4_betwixt': dict(ROPE_REG, embed_dims=640, depth=12, num_heads=10, num_registers=4),
    'rope_reg1_base': dict(ROPE_REG, **BASE),
    'isotropic_small': dict(ISOTROPIC, embed_dims=384, num_heads=12),
    'isotropic_base': dict(ISOTROPIC, embed_dims=768, num_heads=24),
    'deimv2_tiny': dict(TINY, **REALTIME),
    'deimv2_tiny_plus': dict(TINY_PLUS, **REALTIME),
    'ecvit_tiny': dict(TINY, **ECVIT),
    'ecvit_tiny_plus': dict(TINY_PLUS, **ECVIT),
    'ecvit_small': dict(SMALL, **ECVIT),
    'ecvit_small_plus': dict(SMALL, **ECVIT, mlp_ratio=6.0),
    'resformer_small': dict(
        SMALL,
        rope=None,
        use_ape='sine_conv',
        attention=dict(type='LocalPosition'),
        layer_scale_init_value=None,
    ),
}
