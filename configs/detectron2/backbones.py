# The backbones of the LazyConfigs in this folder: as in ../dino_vitdet and ../dino_swin with
# RoPE-Mixed. Each relative import in a LazyConfig makes a copy, so a config may change them.
from detectron2.config import LazyCall as L

from rope_dense.models.detectron2 import RoPESwin, RoPEViT

vit_b = L(RoPEViT)(
    arch='base',
    rope=dict(type='MixedRoPE', theta=10.0),
    with_cls_token=False,
    window_size=14,
    window_block_indexes=[0, 1, 3, 4, 6, 7, 9, 10],
    drop_path_rate=0.1,
    checkpoint='hf-hub:naver-ai/rope_mixed_deit_base_patch16_LS',
)
vit_l = L(RoPEViT)(
    arch='large',
    rope=dict(type='MixedRoPE', theta=10.0),
    with_cls_token=False,
    window_size=14,
    window_block_indexes=[*range(5), *range(6, 11), *range(12, 17), *range(18, 23)],
    drop_path_rate=0.4,
    checkpoint='hf-hub:naver-ai/rope_mixed_deit_large_patch16_LS',
)
swin_t = L(RoPESwin)(
    arch='tiny',
    rope=dict(type='MixedRoPE', theta=10.0),
    window_size=7,
    drop_path_rate=0.1,
    out_indices=[1, 2, 3],
    checkpoint='hf-hub:naver-ai/swin_rope_mixed_tiny_patch4_window7_224',
)
swin_s = L(RoPESwin)(
    arch='small',
    rope=dict(type='MixedRoPE', theta=10.0),
    window_size=7,
    drop_path_rate=0.2,
    out_indices=[1, 2, 3],
    checkpoint='hf-hub:naver-ai/swin_rope_mixed_small_patch4_window7_224',
)
swin_b = L(RoPESwin)(
    arch='base',
    rope=dict(type='MixedRoPE', theta=10.0),
    window_size=7,
    drop_path_rate=0.2,
    out_indices=[1, 2, 3],
    checkpoint='hf-hub:naver-ai/swin_rope_mixed_base_patch4_window7_224',
)
