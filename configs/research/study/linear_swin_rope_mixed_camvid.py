# As linear_vit_rope_mixed_camvid.py, with a small Swin: patches of 5 pixels, windows of 8 x 6
# tokens, the last of its three maps one window. The linear decoder sees the channels of all three.
_base_ = './linear_vit_rope_mixed_camvid.py'

model = dict(
    backbone=dict(
        _delete_=True,
        type='RoPESwin',
        arch=dict(embed_dims=32, depths=(2, 2, 2), num_heads=(1, 2, 4)),
        rope=dict(type='MixedRoPE', theta=10.0),
        window_size=(6, 8),
        pretrain_window_size=(6, 8),
        patch_size=5,
        drop_path_rate=0.0,
        out_indices=(0, 1, 2),
    ),
    decode_head=dict(
        in_channels=[32, 64, 128],
        channels=224,
        in_index=[0, 1, 2],
        input_transform='resize_concat',
    ),
)
