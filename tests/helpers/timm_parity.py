"""Same weights, same tokens: timm's models against ours, the weights passed on in a file.

``PYTHONPATH=tests python -m helpers.timm_parity > docs/parity.csv`` takes minutes.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import torch
from torch import nn

from helpers.reference import relative_error
from helpers.small_checkpoints import load, randomize, saved
from helpers.timm_import import import_timm
from rope_dense.backbones import RoPEViT
from rope_dense.backbones.archs import ViTArch, find_arch

AXIAL = dict(type='AxialRoPE', theta=100.0)
MIXED = dict(type='MixedRoPE', theta=10.0)
SIZES = ('small', 'base', 'large')
WIDEST = 1536  # channels in the table, which leaves out the 7B
NARROW = 576  # channels of models that are compared in a smaller size (512 of the 7B: whole heads)


@dataclass(frozen=True)
class Model:
    """A model of timm, and what makes ours the same.

    Attributes:
        timm: its name there.
        arch: and here.
        options: arguments of ``RoPEViT`` beside it.
    """

    timm: str
    arch: str
    options: tuple[tuple[str, object], ...] = ()

    @property
    def grid(self) -> int:
        """Patches of a side at its native image size."""
        arch = find_arch(ViTArch, RoPEViT.ARCHS, self.arch)
        return arch.img_size // arch.patch_size


def rope_vit(size: str, variant: str, **options: object) -> Model:
    return Model(f'vit_{size}_patch16_rope_{variant}224', size, tuple(options.items()))


def dinov3(size: str, name: str, **options: object) -> Model:
    return Model(
        f'vit_{size}_patch16_dinov3{name}', f'dinov3_{size}', tuple(options.items())
    )


def lingbot(size: str) -> Model:
    return Model(f'vit_{size}_patch16_lingbot', f'lingbot_{size}')


def pe(kind: str, size: str, patch_size: int, img_size: int) -> Model:
    return Model(
        f'vit_pe_{kind}_{size}_patch{patch_size}_{img_size}', f'pe_{kind}_{size}'
    )


MODELS = [
    *(rope_vit(size, '', rope=AXIAL) for size in SIZES),
    *(rope_vit(size, 'mixed_', rope=MIXED) for size in SIZES),
    *(rope_vit(size, 'ape_', rope=AXIAL, use_ape=True) for size in SIZES),
    *(rope_vit(size, 'mixed_ape_', rope=MIXED, use_ape=True) for size in SIZES),
    Model('vit_medium_patch16_rope_reg1_gap_256', 'rope_reg1_medium'),
    Model('vit_mediumd_patch16_rope_reg1_gap_256', 'rope_reg1_mediumd'),
    Model('vit_betwixt_patch16_rope_reg4_gap_256', 'rope_reg4_betwixt'),
    Model('vit_base_patch16_rope_reg1_gap_256', 'rope_reg1_base'),
    *(
        dinov3(size, '')
        for size in ('small', 'small_plus', 'base', 'large', 'huge_plus')
    ),
    dinov3('7b', ''),
    *(
        dinov3(size, '_qkvb', qkv_bias='qv')
        for size in ('small', 'small_plus', 'base', 'large')
    ),
    dinov3('huge_plus', '_qkvb', qkv_bias='qv'),
    dinov3('tiny', '_qkvb', qkv_bias='qv'),
    *(lingbot(size) for size in (*SIZES, 'giant')),
    *(Model(f'eva02_{size}_patch14_224', f'eva02_{size}') for size in ('tiny', *SIZES)),
    Model('eva02_base_patch16_clip_224', 'eva02_clip_base'),
    Model('eva02_large_patch14_clip_224', 'eva02_clip_large'),
    *(pe('core', size, 16, 384) for size in ('tiny', 'small')),
    pe('core', 'base', 16, 224),
    pe('core', 'large', 14, 336),
    pe('core', 'gigantic', 14, 448),
    *(pe('spatial', size, 16, 512) for size in ('tiny', 'small', 'base')),
    *(
        pe(kind, size, 14, 448)
        for kind in ('spatial', 'lang')
        for size in ('large', 'gigantic')
    ),
]
NAMES = [model.timm for model in MODELS]


def without_norm(theirs: nn.Module) -> bool:
    return not isinstance(theirs.norm, nn.LayerNorm)


def build_pair(
    timm: ModuleType, model: Model, folder: Path, *, grid: int, depth: int, widest: int
) -> tuple[nn.Module, RoPEViT]:
    """timm's model with random weights, and ours with the same, loaded from a file.

    Args:
        grid: patches of a side at the image size of pre-training.
        depth: blocks of both.
        widest: channels; a model that has more is compared with as many, ``NARROW`` at most.
    """
    arch = dict(RoPEViT.ARCHS[model.arch], depth=depth)
    settings: dict[str, object] = dict(depth=depth, dynamic_img_size=True)
    if (channels := arch['embed_dims']) > widest:
        narrow = min(widest, NARROW)
        heads = narrow * arch['num_heads'] // channels  # with as many channels each
        narrow = heads * channels // arch['num_heads']
        arch |= dict(embed_dims=narrow, num_heads=heads)
        settings |= dict(embed_dim=narrow, num_heads=heads)
    if model.arch.startswith('pe_'):  # whose reference grid is that of pre-training
        coordinates = dict(arch['rope']['coordinates'], reference=grid)
        arch['rope'] = dict(arch['rope'], coordinates=coordinates)
        settings |= dict(ref_feat_shape=(grid, grid))
    img_size = grid * arch.get('patch_size', 16)
    theirs = timm.create_model(model.timm, img_size=img_size, **settings).eval()
    randomize(theirs)
    options = dict(model.options, img_size=img_size, out_indices=range(depth))
    path = saved(theirs.state_dict(), folder)
    final_norm = not without_norm(theirs)
    return theirs, load(
        RoPEViT, path, arch=arch, final_norm=final_norm, **options
    ).eval()


def without_antialiasing() -> AbstractContextManager:
    """Within it timm resizes position embeddings as published code and ours do."""
    eva = sys.modules['timm.models.eva']
    resize = partial(eva.resample_abs_pos_embed, antialias=False)
    return patch.object(eva, 'resample_abs_pos_embed', resize)


@torch.no_grad()
def largest_error(theirs: nn.Module, ours: RoPEViT, grid: tuple[int, int]) -> float:
    """Relative, of all maps: those of the blocks, the last after the final norm if it has one."""
    patch_size = ours.arch.patch_size
    image = torch.randn(1, 3, grid[0] * patch_size, grid[1] * patch_size)
    *maps, tokens = ours(image)
    with without_antialiasing():
        final, expected = theirs.forward_intermediates(
            image, indices=list(range(len(maps)))
        )
    final = final[:, theirs.num_prefix_tokens :].transpose(1, 2)
    errors = [relative_error(tokens.flatten(2), final)]
    errors += [relative_error(*pair) for pair in zip(maps, expected, strict=True)]
    return max(errors)


def other_grids(grid: int) -> tuple[tuple[int, int], ...]:
    """A larger one and one that is not square."""
    return (grid + 3, grid + 3), (grid - 1, grid + 5)


COLUMNS = ('native grid', 'larger grid', 'not square')


def write_table(timm: ModuleType, depth: int = 4) -> None:
    writer = csv.writer(sys.stdout, lineterminator='\n')
    differences = ('difference', 'difference of larger', 'difference of not square')
    pairs = zip(COLUMNS, differences, strict=True)
    writer.writerow(['timm', 'RoPEViT', *(name for pair in pairs for name in pair)])
    for model in MODELS:
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            pair = build_pair(
                timm, model, Path(folder), grid=model.grid, depth=depth, widest=WIDEST
            )
        grids = ((model.grid, model.grid), *other_grids(model.grid))
        cells = [(f'{g[0]}x{g[1]}', f'{largest_error(*pair, g):.1e}') for g in grids]
        options = [f'{key}={value!r}' for key, value in model.options]
        ours = ', '.join([f'arch={model.arch!r}', *options])
        writer.writerow([model.timm, ours, *(text for cell in cells for text in cell)])


if __name__ == '__main__':
    write_table(import_timm())
