"""The flagship configs that are trained for a few steps, and what makes them small."""

from __future__ import annotations

Options = dict[str, object]


def of(part: str, options: Options) -> Options:
    """Options of a part of a config, with its name before each."""
    return {f'{part}.{key}': value for key, value in options.items()}


FLAGSHIPS = {  # image sizes that the configs train with, the largest of those that vary
    'dino_vitdet_rope_mixed': (800, 1344),
    'dino_swin_rope_mixed': (800, 1344),
    'upernet_vit_rope_mixed': (512, 512),
    'mask2former_swin_rope_mixed': (512, 512),
    'eomt/eomt_dinov3-b_8xb2-20k_ade20k-512x512': (512, 512),
    'deim/deimv2-s_vit-t_4xb8-488k_coco': (640, 640),
}
TINY_VIT = {'arch': dict(_delete_=True, embed_dims=16, depth=4, num_heads=2)}
TINY_SWIN = {
    'arch': dict(
        _delete_=True, embed_dims=8, depths=(1, 1, 1, 1), num_heads=(1, 2, 2, 2)
    ),
    'window_size': 4,
}
TINY_DINO = {
    'num_queries': 10,
    'encoder.num_layers': 1,
    'decoder.num_layers': 1,
    'dn_cfg.group_cfg.num_dn_queries': 4,
}
SMALL = {
    'dino_vitdet_rope_mixed': TINY_DINO
    | of('backbone', TINY_VIT | {'window_size': 2, 'window_block_indexes': (0,)})
    | {'neck.0.in_channels': 16},
    'dino_swin_rope_mixed': TINY_DINO
    | of('backbone', TINY_SWIN)
    | {'neck.in_channels': [16, 32, 64]},
    'upernet_vit_rope_mixed': of('backbone', TINY_VIT | {'out_indices': (0, 1, 2, 3)})
    | of('decode_head', {'in_channels': [16] * 4, 'channels': 16})
    | of('auxiliary_head', {'in_channels': 16, 'channels': 16})
    | {'neck.embed_dim': 16},
    'mask2former_swin_rope_mixed': of('backbone', TINY_SWIN)
    | of(
        'decode_head',
        {
            'in_channels': [8, 16, 32, 64],
            'num_queries': 10,
            'pixel_decoder.encoder.num_layers': 1,
            'transformer_decoder.num_layers': 1,
            'train_cfg.num_points': 64,
        },
    ),
    'eomt/eomt_dinov3-b_8xb2-20k_ade20k-512x512': of(
        'backbone', TINY_VIT | {'final_norm': True}
    )
    | of('decode_head', {'in_channels': 16, 'num_queries': 8, 'num_blocks': 2}),
    'deim/deimv2-s_vit-t_4xb8-488k_coco': of(
        'backbone', TINY_VIT | {'out_indices': (1, 2, 3)}
    )
    | of('neck', {'in_channels': 16, 'stem_channels': 4, 'out_channels': 16})
    | of(
        'encoder',
        {
            'in_channels': (16, 16, 16),
            'embed_dims': 16,
            'feedforward_channels': 32,
            'num_heads': 2,
        },
    )
    | of(
        'bbox_head',
        {
            'embed_dims': 16,
            'num_queries': 10,
            'decoder.num_layers': 2,
            'decoder.feedforward_channels': 32,
            'decoder.num_heads': 2,
        },
    ),
}
# Options for ``Config.merge_from_dict`` that make each of the flagships small enough for a CPU.
TINY = {name: of('model', options) for name, options in SMALL.items()}
