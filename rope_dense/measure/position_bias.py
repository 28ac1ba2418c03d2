"""How much of a backbone's maps is position alone: a constant image beside an image of noise."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import get_args

import torch
from matplotlib.figure import Figure
from mmengine.config import Config
from mmengine.utils import to_2tuple
from torch import Tensor

from ..backbones import RoPEViT
from ..backbones.archs import VIT_ARCHS
from ..backbones.base import Backbone, WindowPrefix, backbone_of
from ..checkpoints.load import load_pretrained
from ..project.errors import UsageError
from ..project.load import find_model
from ..project.model import build_model
from ..project.sizes import trained_size
from ..project.weights import load_tested_weights
from ..utils.atomic_write import atomic_files
from ..utils.size_text import parse_size
from ..utils.sizes import ImageSize
from .plot import COLOURS, STYLES
from .results import csv_text
from .settings import FROM_CONFIG, parse_scaling

GROWTH = (1, 1.5, 2)  # of the default sizes
NAME = 'position_bias'  # of the folder in the work folder, and of the files
WIDTHS = dict(height=8, width=7, scaling=18, prefix=8)  # of the columns of a setting
Backbones = dict[str, Backbone]  # by ``window_prefix``, or '-' where there is one form


def position_bias(
    config: str | Path,
    checkpoint: str | Path | None = None,
    *,
    sizes: Sequence[str] = (),
    scaling: Sequence[str] = (),
    cfg_options: Iterable[str] | Mapping[str, object] = (),
    work_dir: str | None = None,
) -> list[dict]:
    """Measure how far each map of a backbone depends on position where the image does not.

    Prints a line for each setting, and writes position_bias.csv and position_bias.png to the folder
    position_bias/ of the work folder.

    Args:
        config: of a detector or segmentor, see ``find_model``; or the name of an architecture of
            ``RoPEViT``.
        checkpoint: of the whole model; of an architecture see ``load_pretrained``.
        sizes: '640' for squares, or '480x640', height and width in pixels; by default 1, 1.5 and 2
            times the size that the weights last saw.
        scaling: see ``parse_scaling``; without a factor by the growth since that size. By default
            the model's own, and 'linear' where positions can be scaled.
        cfg_options, work_dir: see ``find_model``.

    Returns:
        A row for each setting and map: height, width, scaling, prefix (``window_prefix``, or '-'
        where windows have no prefix tokens), map (its index), ``constant`` and ``noise`` (the
        ``spread`` of the two images) and ``bias``, their ratio.

    Raises:
        UsageError, CheckpointError, ValueError: the model or a setting cannot be used.
    """
    if str(config) in VIT_ARCHS and not Path(config).exists():
        backbones, trained = of_arch(str(config), checkpoint)
        folder = Path(work_dir or Path('work_dirs', str(config)), NAME)
    else:
        cfg, weights = find_model(config, checkpoint, cfg_options, work_dir)
        if weights is None:
            raise UsageError('a model of several tasks: give the config of one of them')
        backbones, trained = of_config(cfg, weights), trained_size(cfg)
        folder = Path(cfg.work_dir, NAME)
    pixels = [to_2tuple(parse_size(size)) for size in sizes]
    pixels = pixels or [(round(trained[0] * by), round(trained[1] * by)) for by in GROWTH]
    scalings = scaling or default_scalings(next(iter(backbones.values())))
    rows: list[dict] = []
    for (prefix, backbone), text in product(backbones.items(), scalings):
        set_scaling(backbone, text, trained)
        for size in pixels:
            setting = dict(height=size[0], width=size[1], scaling=text, prefix=prefix)
            maps = biases(backbone, size)
            if not rows:
                print(line({name: name for name in WIDTHS}, [f'map {n}' for n in range(len(maps))]))
            rows += [setting | dict(map=index) | row for index, row in enumerate(maps)]
            print(line(setting, [f'{row["bias"]:.2g}' for row in maps]), flush=True)
    with atomic_files(folder) as partial:
        (partial / f'{NAME}.csv').write_text(csv_text(rows))
        draw(rows, partial / f'{NAME}.png')
    print(f'\n{folder}: {NAME}.csv, {NAME}.png')
    return rows


def of_arch(arch: str, checkpoint: str | Path | None) -> tuple[Backbones, ImageSize]:
    """Backbones of an architecture with weights, and the size (height, width) of pre-training."""
    if checkpoint is None:
        raise UsageError(f'{arch}: give its weights, too: a file, https:// or hf-hub:owner/name')
    model = RoPEViT(arch).eval()
    load_pretrained(model, str(checkpoint))
    backbones: Backbones = {'-': model}
    if has_prefix_in_windows(model):
        backbones = {name: RoPEViT(arch, window_prefix=name) for name in get_args(WindowPrefix)}
    for other in backbones.values():
        other.load_state_dict(model.state_dict())
    height, width = (side * model.arch.patch_size for side in model.pretrain_grid)
    return backbones, (height, width)


def of_config(cfg: Config, checkpoint: str) -> Backbones:
    """Backbones of a config's model with the weights of a checkpoint."""
    model = build_model(cfg)
    load_tested_weights(checkpoint, model)
    backbone = backbone_of(model)
    if not has_prefix_in_windows(backbone):
        return {'-': backbone}
    backbones: Backbones = {}
    for name in get_args(WindowPrefix):
        other = copy.deepcopy(cfg)
        other.model.backbone.window_prefix = name
        backbones[name] = backbone_of(build_model(other))
        backbones[name].load_state_dict(backbone.state_dict())
    return backbones


def has_prefix_in_windows(backbone: Backbone) -> bool:
    """Whether ``window_prefix`` makes a difference."""
    return backbone.has_windows and backbone.num_prefix_tokens > 0


def default_scalings(backbone: Backbone) -> list[str]:
    """The model's own scaling, and 'linear' if its positions can be scaled."""
    own = backbone.rope_scaling
    try:
        backbone.set_rope_scaling(dict(type='linear'))
    except ValueError:
        return [FROM_CONFIG]
    finally:
        backbone.set_rope_scaling(own)
    return [FROM_CONFIG, 'linear']


def set_scaling(backbone: Backbone, text: str, trained: ImageSize) -> None:
    """Scale the positions as ``parse_scaling`` says, an open factor by the growth since training.

    Raises:
        ValueError: the backbone does not allow it.
    """
    if text == FROM_CONFIG:
        return
    settings = parse_scaling(text)
    if settings is not None and ':' not in text and backbone.is_isotropic:
        settings['grid'] = backbone.patch_embed.grid(*trained)
    backbone.set_rope_scaling(settings)


@torch.no_grad()
def biases(backbone: Backbone, size: ImageSize) -> list[dict]:
    """For each map the ``spread`` of a constant image and of noise, and their ratio.

    The constant image is zero after normalisation, the mean colour; noise has deviation 1.
    """
    channels, generator = backbone.patch_embed.in_channels, torch.Generator().manual_seed(0)
    noise = torch.randn(1, channels, *size, generator=generator)
    spreads = []
    for image in (torch.zeros_like(noise), noise):
        maps = backbone.eval()(image)[: len(backbone.out_indices)]
        spreads.append([spread(x[0] if isinstance(x, tuple) else x) for x in maps])
    rows = (dict(constant=constant, noise=noise) for constant, noise in zip(*spreads, strict=True))
    return [row | dict(bias=row['constant'] / row['noise']) for row in rows]


def spread(x: Tensor) -> float:
    """The deviation of a map [1, C, H, W] over its positions, root mean square over channels."""
    return (x - x.mean((2, 3), keepdim=True)).square().mean().sqrt().item()


def line(setting: dict, figures: Sequence[str]) -> str:
    """A line of the table."""
    left = (f'{setting[name]:<{width}}' for name, width in WIDTHS.items())
    return ''.join([*left, *(f'{figure:>10}' for figure in figures)])


def draw(rows: Sequence[dict], path: Path) -> None:
    """Draw the bias of each map against the side of the image, a line for each setting."""
    figure = Figure(figsize=(7, 4.2), layout='constrained')
    axes = figure.subplots()
    settings = list(dict.fromkeys((row['scaling'], row['prefix']) for row in rows))
    for index, (number, setting) in product(sorted({r['map'] for r in rows}), enumerate(settings)):
        points = [
            ((row['height'] * row['width']) ** 0.5, row['bias'])
            for row in rows
            if (row['map'], row['scaling'], row['prefix']) == (index, *setting)
        ]
        names = [f'map {index}', f'scaling {setting[0]}', *([setting[1]] * (setting[1] != '-'))]
        axes.plot(
            *zip(*sorted(points), strict=True),
            color=COLOURS[index % len(COLOURS)],
            linestyle=STYLES[number % len(STYLES)],
            marker='o',
            label=', '.join(names),
        )
    axes.set(yscale='log', xlabel='side of the image in pixels (root of its area)')
    axes.set_ylabel('spread of a constant image / of noise')
    axes.spines[['top', 'right']].set_visible(False)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=150)
