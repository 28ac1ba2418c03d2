"""The named architectures of ``RoPESwin`` and ``RoPENAT``."""

SWIN_TINY = dict(embed_dims=96, depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24))
SWIN_SMALL = dict(SWIN_TINY, depths=(2, 2, 18, 2))
SWIN_BASE = dict(SWIN_SMALL, embed_dims=128, num_heads=(4, 8, 16, 32))

SWIN_ARCHS: dict[str, dict] = {
    'tiny': SWIN_TINY,
    'small': SWIN_SMALL,
    'base': SWIN_BASE,
}

NAT_MINI = dict(
    embed_dims=64, depths=(3, 4, 6, 5), num_heads=(2, 4, 8, 16), mlp_ratio=3.0
)
NAT_TINY = dict(NAT_MINI, depths=(3, 4, 18, 5))
NAT_SMALL = dict(
    embed_dims=96,
    depths=(3, 4, 18, 5),
    num_heads=(3, 6, 12, 24),
    mlp_ratio=2.0,
    drop_path_rate=0.3,
)
NAT_BASE = dict(NAT_SMALL, embed_dims=128, num_heads=(4, 8, 16, 32), drop_path_rate=0.5)
SCALED = dict(layer_scale_init_value=1e-5)
DILATED = dict(dilations=((1, 8), (1, 4), (1, 2), (1,)))
# With the sizes of Swin.
NAT_S_TINY = dict(SWIN_TINY, overlapping=False)
NAT_S_SMALL = dict(SWIN_SMALL, overlapping=False, drop_path_rate=0.3)
NAT_S_BASE = dict(SWIN_BASE, overlapping=False, drop_path_rate=0.5)

NAT_ARCHS: dict[str, dict] = {
    'nat_mini': NAT_MINI,
    'nat_tiny': NAT_TINY,
    'nat_small': dict(NAT_SMALL, **SCALED),
    'nat_base': dict(NAT_BASE, **SCALED),
    'dinat_mini': dict(NAT_MINI, **DILATED),
    'dinat_tiny': dict(NAT_TINY, **DILATED),
    'dinat_small': dict(NAT_SMALL, **DILATED),
    'dinat_base': dict(NAT_BASE, **SCALED, **DILATED),
    'nat_s_tiny': NAT_S_TINY,
    'nat_s_small': NAT_S_SMALL,
    'nat_s_base': NAT_S_BASE,
    'dinat_s_tiny': dict(NAT_S_TINY, **DILATED),
    'dinat_s_small': dict(NAT_S_SMALL, **DILATED),
    'dinat_s_base': dict(NAT_S_BASE, **DILATED),
}
