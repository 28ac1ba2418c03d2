# ViT-S with log-axial RoPE on half of the channels, separate angles per head: the parent of all
# ablations of "Revisiting Positional Information in Transformers in the Era of Fused Attention"
# (Tables 4, 5, 8, 9, 10). As published: 81.41 % top-1 on ImageNet-1k at 224 px (Table 5).
# Where the paper does not settle it: 6 heads of 64 channels, of which its k_rope = 16 rotates 4;
# the authors' own ViT-S has 12 heads of 32 (arch='isotropic_small').
_base_ = '../_base_/models/classifier_in1k.py'

model = dict(
    backbone=dict(
        type='RoPEViT',
        arch=dict(
            embed_dims=384,
            depth=12,
            num_heads=6,
            patch_norm=True,
            with_cls_token=False,
            layer_scale_init_value=None,
            norm_cfg=dict(type='LN', eps=1e-5),
        ),
        rope=dict(type='LogAxialRoPE', k_rope=2, shared=False),
        use_rpb=False,
        drop_path_rate=0.1,
        final_norm=True,
    )
)
