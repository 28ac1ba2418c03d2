"""The classifiers of the papers by name, with the arguments of ``RoPEClassifier`` for each.

Models in ``research.timm_models`` and its checkpoints have the same names.
"""

import math
from copy import deepcopy
from dataclasses import dataclass

from torch import Tensor

from rope_dense.backbones import RoPENAT, RoPEViT
from rope_dense.backbones.archs import DEFAULT, ViTArch, find_arch
from rope_dense.utils.sizes import Size
from rope_dense.utils.validation import refuse

OFFSETS = 'relative_position_bias_table'
TABLES = ('pos_embed', OFFSETS)
ANY_CONFIG = (
    'rope_classifier'  # the name of all models that have a config and no other name
)
VIT_PATCH = 16  # of those below
SWIN_STRIDE = 32  # of the last map: 224 pixels are a window of 7 tokens

MIXED = dict(type='MixedRoPE', theta=10.0)
AXIAL = dict(type='AxialRoPE', theta=100.0)
SWIN_AXIAL = dict(type='AxialRoPE', theta=50.0)  # as released
LOG_AXIAL = dict(type='LogAxialRoPE', k_rope=2)
TABLE_BIAS = dict(type='TableBias')

# "Rotary Position Embedding for Vision Transformer" (Heo et al., ECCV 2024).
VIT_POSITIONS: dict[str, dict] = {
    'ape': dict(rope=None, use_ape=True),
    'axial': dict(rope=AXIAL),
    'axial_learned': dict(rope=dict(AXIAL, learned=True)),
    'mixed': dict(rope=MIXED),
    'axial_ape': dict(rope=AXIAL, use_ape=True),
    'mixed_ape': dict(rope=MIXED, use_ape=True),
}
VIT_DROP_PATHS = dict(
    small=0.0, base=0.1, large=0.4
)  # before the fine-tuning at 224 pixels
# "Revisiting Positional Information in Transformers in the Era of Fused Attention".
FUSED_POSITIONS: dict[str, dict] = {
    'rpb': dict(rope=None, attention=TABLE_BIAS),
    'none': dict(rope=None, attention=None),
    'log_axial': dict(rope=LOG_AXIAL, attention=None),
}
SWIN_POSITIONS: dict[str, dict] = {
    **FUSED_POSITIONS,
    'axial': dict(rope=SWIN_AXIAL),
    'mixed': dict(rope=MIXED),
    'axial_rpb': dict(rope=SWIN_AXIAL, attention=TABLE_BIAS),
    'mixed_rpb': dict(rope=MIXED, attention=TABLE_BIAS),
}
SWIN_DROP_PATHS = dict(tiny=0.2, small=0.3, base=0.5)
ISOTROPIC_DROP_PATHS = dict(small=0.1, base=0.4)


@dataclass(frozen=True)
class NamedClassifier:
    """A classifier of ImageNet-1k as published.

    Attributes:
        backbone: its config, for ``RoPEClassifier``; with the drop path of the pre-training.
        crop_ratio: of the published evaluation, see ``ResizeCentreCrop``: 1 in rope-vit's README,
            as in DeiT-III; 224 / 256 in the code of Swin, ResFormer, NAT and SHI-Labs.
        sizes: of the published evaluation: pixels, or a table of a paper.
        constant_drop_path: all blocks have the same drop path (DeiT-III); otherwise it grows
            linearly from block to block.
    """

    backbone: dict
    crop_ratio: float = 0.875
    sizes: str = '224'
    constant_drop_path: bool = False


def vit(arch: str, drop_path_rate: float, **options: object) -> dict:
    """The config of a ViT."""
    settings = dict(arch=arch, final_norm=True, drop_path_rate=drop_path_rate)
    return dict(type='RoPEViT', **settings, **options)


def swin_config(arch: str, drop_path_rate: float, **options: object) -> dict:
    """The config of a Swin whose last stage is its output."""
    settings = dict(arch=arch, shift_single_window=False, drop_path_rate=drop_path_rate)
    return dict(type='RoPESwin', **settings, out_indices=(3,), **options)


CLASSIFIERS: dict[str, NamedClassifier] = {
    **{
        f'ropevit_{size}_{name}': NamedClassifier(
            vit(size, rate, **position), 1.0, 'table-a.4', constant_drop_path=True
        )
        for size, rate in VIT_DROP_PATHS.items()
        for name, position in VIT_POSITIONS.items()
    },
    **{
        f'ropeswin_{size}_{name}': NamedClassifier(
            swin_config(size, rate, **position), sizes='table-a.8'
        )
        for size, rate in SWIN_DROP_PATHS.items()
        for name, position in SWIN_POSITIONS.items()
    },
    **{
        f'isotropic_{size}_{name}': NamedClassifier(
            vit(f'isotropic_{size}', rate, **position), sizes='fused-table-4'
        )
        for size, rate in ISOTROPIC_DROP_PATHS.items()
        for name, position in FUSED_POSITIONS.items()
    },
    **{
        f'{arch}_{name}': NamedClassifier(
            dict(type='RoPENAT', arch=arch, out_indices=(3,), **position)
        )
        for arch in RoPENAT.ARCHS
        for name, position in FUSED_POSITIONS.items()
    },
    'resformer_small': NamedClassifier(vit('resformer_small', 0.1), sizes='table-5'),
}


def with_image_size(backbone: dict, image_size: Size) -> dict:
    """Config of a backbone for pre-training at (height, width) pixels.

    Sets the grid of a ViT's tables, and a Swin's windows to 1 / 32 of the image. A NAT is the same
    at any size. ValueError for sides that are no multiples of the patch size (ViT) or of 32
    (others).
    """
    multiple = SWIN_STRIDE
    if backbone['type'] == 'RoPEViT':
        given = dict(patch_size=backbone.get('patch_size', DEFAULT))
        multiple = find_arch(ViTArch, RoPEViT.ARCHS, backbone['arch'], given).patch_size
    if any(side % multiple for side in image_size):
        refuse(
            'img_size',
            image_size,
            f'multiples of {multiple} pixels for a {backbone["type"]}',
        )
    if backbone['type'] == 'RoPEViT':
        return dict(backbone, img_size=image_size)
    if backbone['type'] == 'RoPESwin':
        window = image_size[0] // SWIN_STRIDE, image_size[1] // SWIN_STRIDE
        return dict(backbone, window_size=window, pretrain_window_size=window)
    return backbone


def backbone_config(name: str, weights: dict[str, Tensor]) -> dict:
    """The config of the backbone of a named classifier.

    Args:
        name: in ``CLASSIFIERS``.
        weights: of the classifier, in our layout. Their position tables tell the image size, a
            square, of the training; without any it is 224 pixels.
    """
    backbone = deepcopy(CLASSIFIERS[name].backbone)
    if backbone['type'] == 'RoPENAT':  # its tables cover a neighbourhood
        return backbone
    pixels = VIT_PATCH if backbone['type'] == 'RoPEViT' else SWIN_STRIDE
    for key, table in weights.items():
        side = (
            math.isqrt(table.shape[-2])
            if key.endswith(TABLES) and table.ndim > 1
            else 0
        )
        if key.endswith(OFFSETS):
            side = (side + 1) // 2  # from - (side - 1) to side - 1
        if side:
            return with_image_size(backbone, (pixels * side, pixels * side))
    return backbone
