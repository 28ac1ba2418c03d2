"""Vision towers of multimodal models: MLCD and RICE, Qwen3-VL."""

from .foundation import BASE, LARGE

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
    'qwen3_416m': dict(QWEN3, embed_dims=1152, depth=27, num_heads=16, mlp_ratio=4304 / 1152),
}
