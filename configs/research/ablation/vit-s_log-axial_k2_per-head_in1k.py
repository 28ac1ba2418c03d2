# ViT-S with log-axial RoPE on half of the channels, separate angles per head: the parent of all
# ablations of "Revisiting Positional Information in Transformers in the Era of Fused Attention"
# (Tables 4, 5, 8, 9, 10). As published: 81.41 % top-1 on ImageNet-1k at 224 px (Table 5).
# The ViT-S has 12 heads of 32 channels, as SHI-Labs' weights, whose accuracy is that of the paper's
# rows with a bias (arch='isotropic_small', written out). k = 16 needs 6 heads of 64: see README.md.
_base_ = '../_base_/classifier_in1k.py'

model = dict(
    backbone=dict(
        type='RoPEViT',
        arch=dict(
            embed_dims=384,
            depth=12,
            num_heads=12,
            patch_norm=True,
            with_cls_token=False,
            layer_scale_init_value=None,
            norm_cfg=dict(type='LN', eps=1e-5),
        ),
        rope=dict(type='LogAxialRoPE', k_rope=2, shared=False),
        drop_path_rate=0.1,
        final_norm=True,
    )
)
