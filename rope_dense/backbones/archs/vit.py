"""Vision towers of multimodal models: MLCD and RICE, Qwen3-VL.

The named architectures of ``RoPEViT``.
"""

from .foundation import (
    BASE,
    DINOV3_ROPE,
    EVA02_ROPE,
    FOUNDATION_ARCHS,
    LARGE,
    SMALL,
    TINY,
)

INDEX_ROPE = dict(theta=10000.0, axes='yx', pair_layout='half')
# MLCD (An et al., 2024) and RICE (Xie et al., 2025): a class token with learned angles.
MLCD = dict(
    patch_size=14,
    rope=dict(INDEX_ROPE, type='OffsetAxialRoPE'),
    pre_norm=True,
    layer_scale_init_value=None,
    norm_cfg=dict(type='LN', eps=1e-5),
)
MLCD_BIGG = dict(MLCD, embed_dims=1664, depth=48, num_heads=16, mlp_ratio=8192 / 1664)
# Qwen3-VL, Qwen3.5 and Qwen3.8 (Qwen team, 2025 and 2026).
QWEN3 = dict(
    img_size=768,
    mlp='gelu_tanh',
    rope=dict(INDEX_ROPE, type='AxialRoPE'),
    use_ape='bilinear',
    with_cls_token=False,
    layer_scale_init_value=None,
)

TOWER_ARCHS: dict[str, dict] = {
    'mlcd_bigg_336': dict(MLCD_BIGG, img_size=336),
    'mlcd_bigg_448': dict(MLCD_BIGG, img_size=448),
    'rice_large': dict(LARGE, **MLCD, img_size=560),
    'qwen3_88m': dict(BASE, **QWEN3),
    'qwen3_306m': dict(LARGE, **QWEN3),
    'qwen3_416m': dict(
        QWEN3, embed_dims=1152, depth=27, num_heads=16, mlp_ratio=4304 / 1152
    ),
}


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
    'rope_reg1_mediumd': dict(
        ROPE_REG, embed_dims=512, depth=20, num_heads=8, qkv_bias=False
    ),
    'rope_reg4_betwixt': dict(
        ROPE_REG, embed_dims=640, depth=12, num_heads=10, num_registers=4
    ),
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
