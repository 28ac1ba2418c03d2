"""Plain ViTs of published encoders: DINOv3, LingBot-Vision, EVA-02, Perception Encoder, SAM3."""

TINY = dict(embed_dims=192, depth=12, num_heads=3)
SMALL = dict(embed_dims=384, depth=12, num_heads=6)
BASE = dict(embed_dims=768, depth=12, num_heads=12)
LARGE = dict(embed_dims=1024, depth=24, num_heads=16)

# DINOv3 (Simeoni et al., 2025): public hub code.
DINOV3_ROPE = dict(
    type='AxialRoPE',
    theta=100.0,
    series='periods',
    axes='yx',
    pair_layout='half',
    coordinates=dict(type='centres'),
)
DINOV3 = dict(
    img_size=256,
    qkv_bias=False,  # where its code has q and v biases, the released ones are zero
    rope=dict(DINOV3_ROPE, coordinates=dict(type='centres', rescale=2.0)),
    num_registers=4,
    layer_scale_init_value=1e-5,
    final_norm='all',  # as get_intermediate_layers in its code
    norm_cfg=dict(type='LN', eps=1e-5),
)
# LingBot-Vision (Fu et al., 2026): DINOv3 at another image size, with biases but for the giant.
LINGBOT = dict(DINOV3, img_size=512, qkv_bias='qv')
# EVA-02 (Fang et al., 2023) at its pre-training size.
EVA02_ROPE = dict(
    type='AxialRoPE',
    theta=10000.0,
    axes='yx',
    coordinates=dict(type='index', reference=16),
)
EVA02 = dict(
    patch_size=14,
    mlp='swiglu',
    mlp_ratio=8 / 3,
    qkv_bias='qv',
    rope=EVA02_ROPE,
    use_ape=True,
    layer_scale_init_value=None,
)
EVA02_NORMED = dict(EVA02, mlp='swiglu_norm')
# Perception Encoder (Bolya et al., 2025); the reference grid belongs to its image size,
# and positions are counted from 1 where there is a class token.
PE = dict(
    use_ape=True,
    pre_norm=True,
    layer_scale_init_value=None,
    norm_cfg=dict(type='LN', eps=1e-5),
)


def index_rope(reference: int, offset: float = 0.0) -> dict:
    """Return axial frequencies for indexes from ``offset``, scaled to a grid of ``reference``."""
    coordinates = dict(type='index', offset=offset, reference=reference)
    return dict(type='AxialRoPE', theta=10000.0, coordinates=coordinates)


def pe_rope(reference: int) -> dict:
    """Return the rope of Perception Encoders with a class token, which count from 1."""
    return index_rope(reference, offset=1.0)


PE_GIGANTIC = dict(
    PE,
    embed_dims=1536,
    depth=50,
    num_heads=16,
    img_size=448,
    patch_size=14,
    mlp_ratio=8960 / 1536,
    rope=index_rope(32),
    with_cls_token=False,
)
# The image encoder of SAM3 (Carion et al., 2025): Perception Encoder in windows. It was trained on
# images of 1008 pixels; ``img_size`` belongs to its position embedding: a window of 24 patches.
SAM3_GLOBAL = (7, 15, 23, 31)
SAM3 = dict(
    PE,
    embed_dims=1024,
    depth=32,
    num_heads=16,
    img_size=336,
    patch_size=14,
    mlp_ratio=4.625,
    rope=index_rope(24),
    use_ape='tile',
    with_cls_token=False,
    window_size=24,
    window_block_indexes=tuple(
        index for index in range(32) if index not in SAM3_GLOBAL
    ),
)

# V-JEPA 2.1 (Meta, 2026) for images: facebookresearch/vjepa2, app/vjepa_2_1 at be434e4.
VJEPA2_1 = dict(
    img_size=384,
    rope=dict(
        type='VideoRoPE', theta=10000.0, factor=7.5, coordinates=dict(type='corners')
    ),
    with_cls_token=False,
    layer_scale_init_value=None,
    final_norm='separate',  # published for four blocks of each model, see docs/checkpoints.md
)
# Sapiens2 (Meta, 2026): facebookresearch/sapiens2 at 3098c14. Its blocks but the first and the last
# eight share each head of keys and values between two heads of queries; here each has its own.
SAPIENS2 = dict(
    img_size=(1024, 768),
    mlp='swiglu',
    rope=DINOV3_ROPE,
    num_registers=8,
    qk_norm=True,
    layer_scale_mlp=False,
    final_norm='all',
    norm_cfg=dict(type='RMSNorm', eps=1e-6),
)

FOUNDATION_ARCHS: dict[str, dict] = {
    # Of EUPE (Zhu et al., 2026), with qkv_bias='qv'.
    'dinov3_tiny': dict(TINY, **DINOV3),
    'dinov3_small': dict(SMALL, **DINOV3),
    'dinov3_small_plus': dict(SMALL, **DINOV3, mlp='swiglu'),
    'dinov3_base': dict(BASE, **DINOV3),
    'dinov3_large': dict(LARGE, **DINOV3),
    'dinov3_huge_plus': dict(
        DINOV3, embed_dims=1280, depth=32, num_heads=20, mlp='swiglu'
    ),
    'dinov3_7b': dict(
        DINOV3, embed_dims=4096, depth=40, num_heads=32, mlp='swiglu', mlp_ratio=2.0
    ),
    'lingbot_small': dict(SMALL, **LINGBOT),
    'lingbot_base': dict(BASE, **LINGBOT),
    'lingbot_large': dict(LARGE, **LINGBOT),
    'lingbot_giant': dict(
        LINGBOT,
        embed_dims=1536,
        depth=40,
        num_heads=24,
        mlp='swiglu',
        mlp_ratio=8 / 3,
        qkv_bias=False,
    ),
    'eva02_tiny': dict(TINY, **EVA02),
    'eva02_small': dict(SMALL, **EVA02),
    'eva02_base': dict(BASE, **EVA02_NORMED),
    'eva02_large': dict(LARGE, **EVA02_NORMED),
    'eva02_clip_base': dict(BASE, **EVA02_NORMED, attn_norm=True) | dict(patch_size=16),
    'eva02_clip_large': dict(LARGE, **EVA02_NORMED, attn_norm=True),
    'pe_core_tiny': dict(TINY, **PE, img_size=384, rope=pe_rope(24)),
    'pe_core_small': dict(SMALL, **PE, img_size=384, rope=pe_rope(24)),
    'pe_core_base': dict(BASE, **PE, rope=pe_rope(14)),
    'pe_core_large': dict(LARGE, **PE, img_size=336, patch_size=14, rope=pe_rope(24)),
    'pe_core_gigantic': PE_GIGANTIC,
    'pe_spatial_tiny': dict(TINY, **PE, img_size=512, rope=pe_rope(32)),
    'pe_spatial_small': dict(SMALL, **PE, img_size=512, rope=pe_rope(32)),
    'pe_spatial_base': dict(BASE, **PE, img_size=512, rope=pe_rope(32)),
    'pe_spatial_large': dict(
        LARGE, **PE, img_size=448, patch_size=14, rope=pe_rope(32)
    ),
    'pe_spatial_gigantic': dict(PE_GIGANTIC, layer_scale_init_value=0.1),
    'pe_lang_large': dict(LARGE, **PE, img_size=448, patch_size=14, rope=pe_rope(32))
    | dict(depth=23, layer_scale_init_value=0.1),
    'pe_lang_gigantic': dict(PE_GIGANTIC, depth=47, layer_scale_init_value=0.1),
    'sam3': SAM3,
    'vjepa2_1_base': dict(BASE, **VJEPA2_1),
    'vjepa2_1_large': dict(LARGE, **VJEPA2_1),
    'vjepa2_1_giant': dict(
        VJEPA2_1, embed_dims=1408, depth=40, num_heads=22, mlp_ratio=6144 / 1408
    ),
    'vjepa2_1_gigantic': dict(
        VJEPA2_1, embed_dims=1664, depth=48, num_heads=26, mlp_ratio=8192 / 1664
    ),
    'sapiens2_01b': dict(BASE, **SAPIENS2),
    'sapiens2_04b': dict(LARGE, **SAPIENS2),
    'sapiens2_08b': dict(SAPIENS2, embed_dims=1280, depth=32, num_heads=16),
    'sapiens2_1b': dict(SAPIENS2, embed_dims=1536, depth=40, num_heads=24),
    'sapiens2_5b': dict(SAPIENS2, embed_dims=2432, depth=56, num_heads=32),
}
