"""The share of position in a backbone's maps: a constant image beside an image of noise."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import torch
from mmengine.registry import MODELS
from mmengine.utils import to_2tuple

from ..backbones.archs import VIT_ARCHS
from ..backbones.base import Backbone, WindowPrefix, backbone_of
from ..checkpoints.load import load_pretrained
from ..project.contents import trained_size
from ..project.load import Options, find_model
from ..project.model import build_model
from ..project.weights import load_tested_weights
from ..utils.errors import UsageError
from ..utils.results import Results
from ..utils.sizes import ImageSize
from ..utils.validation import parse_size
from .plot import draw_resolutions
from .results import ResultFile, ResultRow, csv_text
from .settings import FROM_CONFIG, GROWTH, parse_scaling

NAME = 'position_bias'  # of the folder in the work folder, and of the files
RATIO = 'spread of a constant image / of noise'
LINE = '{:<8}{:<7}{:<18}{:<7}'  # of a setting in the table


def position_bias(
    config: str | Path,
    checkpoint: str | Path | None = None,
    *,
    sizes: Sequence[str] = (),
    scaling: Sequence[str] = (),
    cfg_options: Options = (),
    work_dir: str | None = None,
) -> list[dict]:
    """Measure how far each map of a backbone depends on position where the image does not.

    Prints a table, and writes position_bias.csv and .png to position_bias/ of the work folder.

    Args:
        config, checkpoint, cfg_options, work_dir: see ``find_model``; or an architecture of
            ``RoPEViT`` with weights as in ``load_pretrained``.
        sizes: see ``parse_size``; by default 1, 1.5 and 2 times the size of the training.
        scaling: see ``each_scaling``.

    Returns:
        A row for each setting and map: height, width, scaling, prefix (see ``prefix_forms``), map
        (its index), and see ``biases``.

    Raises:
        UsageError, CheckpointError, ValueError: the model or a setting cannot be used.
    """
    if str(config) in VIT_ARCHS:
        if checkpoint is None:
            raise UsageError(
                f'{config}: give its weights, too: a file, an address or a name'
            )
        settings = dict(type='RoPEViT', arch=str(config))
        backbone = MODELS.build(settings)
        load_pretrained(backbone, str(checkpoint))
        trained = to_2tuple(backbone.arch.img_size)
        folder = Path('work_dirs', config)
    else:
        cfg, weights = find_model(config, checkpoint, cfg_options, work_dir)
        if weights is None:
            raise UsageError('a model of several tasks: give the config of one of them')
        model = build_model(cfg)
        load_tested_weights(weights, model)
        settings = cfg.model.backbone
        backbone = backbone_of(model)
        trained = trained_size(cfg)
        folder = Path(cfg.work_dir)
    folder = Path(work_dir or folder, NAME)
    results = Results(folder, NAME)
    results.check([folder / f'{NAME}.csv', folder / f'{NAME}.png'])
    pixels = [to_2tuple(parse_size(size)) for size in sizes]
    if not pixels:
        height, width = trained
        pixels = [(round(height * by), round(width * by)) for by in GROWTH]
    rows: list[dict] = []
    for prefix, form in prefix_forms(backbone, settings):
        for text in each_scaling(form, scaling, trained):
            for height, width in pixels:
                setting = dict(
                    height=height,
                    width=width,
                    scaling=text,
                    prefix=prefix,
                )
                maps = biases(form, (height, width))
                if not rows:
                    numbers = [f'    map {number}' for number in range(len(maps))]
                    print(LINE.format(*setting), *numbers)
                figures = [f'{row["bias"]:9.2g}' for row in maps]
                print(LINE.format(*setting.values()), *figures, flush=True)
                for index, row in enumerate(maps):
                    rows.append(setting | dict(map=index) | row)
    drawn = []
    for row in rows:
        drawn.append(
            ResultRow(
                height=row['height'],
                width=row['width'],
                scaling=f'{row["scaling"]}, map {row["map"]}',
                window=row['prefix'],
                metrics={RATIO: row['bias']},
            )
        )
    run = ResultFile(label=str(config), training_size=trained, rows=drawn)
    with results, results.fresh() as partial:
        (partial / f'{NAME}.csv').write_text(csv_text(rows))
        draw_resolutions([run], RATIO, partial / f'{NAME}.png')
    print('0: a map does not show positions; 1: it does as much as the pixels of noise')
    print(f'\n{folder}: {NAME}.csv, {NAME}.png')
    return rows


def prefix_forms(backbone: Backbone, settings: dict) -> Iterator[tuple[str, Backbone]]:
    """The backbone, of a config, with each ``window_prefix`` where that matters; else as '-'."""
    if not (backbone.has_windows and backbone.num_prefix_tokens):
        yield '-', backbone
        return
    for name in get_args(WindowPrefix):
        form = MODELS.build({**settings, 'window_prefix': name, 'init_cfg': None})
        form.load_state_dict(backbone.state_dict())
        yield name, form


def each_scaling(
    backbone: Backbone,
    scalings: Sequence[str],
    trained: ImageSize,
) -> Iterator[str]:
    """Set one scaling after the other, see ``parse_scaling``; ValueError for one not allowed.

    By default the backbone's own, and 'linear' if it can. Open factors are of the growth since
    training, to images of a size in pixels.
    """
    own = backbone.rope_scaling
    for text in scalings or (FROM_CONFIG, 'linear'):
        settings = None if text == FROM_CONFIG else parse_scaling(text)
        if settings and backbone.is_isotropic and ':' not in text:
            settings['grid'] = backbone.patch_embed.grid(*trained)
        try:
            backbone.set_rope_scaling(own if text == FROM_CONFIG else settings)
        except ValueError:
            if scalings:
                raise
            continue
        yield text


@torch.no_grad()
def biases(backbone: Backbone, size: ImageSize) -> list[dict]:
    """For each map the spreads ``constant`` and ``noise`` of two images, and ``bias``, their ratio.

    A spread is the deviation over positions, root mean square over channels. The constant image is
    zero after normalisation, the mean colour; noise has deviation 1.
    """
    channels = backbone.patch_embed.in_channels
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(1, channels, *size, generator=generator)
    spreads = []
    for image in (torch.zeros_like(noise), noise):
        maps = []
        for out in backbone.eval()(image)[: len(backbone.out_indices)]:
            x = out[0] if isinstance(out, tuple) else out  # [1, C, H, W]
            maps.append(x.flatten(2).var(2, correction=0).mean().sqrt().item())
        spreads.append(maps)
    rows = []
    for constant, other in zip(*spreads, strict=True):
        rows.append(dict(constant=constant, noise=other, bias=constant / other))
    return rows
