"""Settings of configs/own/depth.py applied to the recipe of DPT for depth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..datasets.depth import depth_files, read_depth
from ..datasets.own_data import find_masks
from ..utils.validation import check_integer, check_number
from .common import (
    UNKNOWN,
    Own,
    as_folders,
    finished,
    fit_schedule,
    fit_weights,
    read_recipe,
    settings_of,
    warm_up,
)

RECIPE, RECIPE_BATCH = 'depth/dpt_dinov3-b_8xb2-38k_nyu-416x544.py', 16
LEAST = 0.001  # metres: the first bin
READ = 20  # depth maps that are described


@dataclass(frozen=True)
class OwnDepth(Own):
    """The settings of configs/own/depth.py; ``Own`` has the settings of all tasks.

    Attributes:
        size: shorter side of images in pixels; crops are 4 / 3 as wide as high.
        unit: metres of a 1 in the depth files, such as 0.001 for millimetres.
        max_depth: metres; larger depths are neither predicted nor evaluated.
        lora: rank of the adapters of the backbone, which is frozen else; 0 for none.
    """

    size: int = 480
    unit: float = 0.001
    max_depth: float = 10.0
    lora: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number('own.unit', self.unit, above=0)
        check_number('own.max_depth', self.max_depth, above=LEAST)
        check_integer('own.lora', self.lora, 0)


def depth(given: Mapping[str, object]) -> dict:
    """A config of DPT on a plain ViT for depth maps; see ``OwnDepth``.

    The backbone is frozen; it is trained with adapters (``lora``), or whole from random values.

    Raises:
        ValueError: a wrong setting, or data that cannot be used.
    """
    own = settings_of(OwnDepth, given)
    cfg = read_recipe(RECIPE)
    images = fit_data(cfg, own)
    fit_model(cfg, own)
    iterations = fit_schedule(cfg, own, images, RECIPE_BATCH, 'rmse', rule='less')
    cfg['model']['decode_head']['loss_decode']['warm_up'] = min(100, iterations // 10)
    cfg['param_scheduler'] = [
        *warm_up(iterations),
        dict(type='CosineAnnealingLR', by_epoch=False, T_max=iterations, begin=0, end=iterations),
    ]
    finished(cfg, own)
    for step in cfg['train_dataloader']['dataset']['pipeline']:
        if step['type'] == 'RandomResize':  # of a light augmentation: it would change no depth
            step['type'] = 'Resize'
            del step['ratio_range']
    return cfg


def fit_data(cfg: dict, own: OwnDepth) -> int:
    """Set data sets, pipelines and evaluators, in place; returns the number of training images.

    Raises:
        ValueError: folders are not there, or an image has no depth map.
    """
    folders, images = {name: ('images/train', 'depth/train') for name in ('train', 'val')}, 1
    classes: tuple[str, ...] = (UNKNOWN,)  # where the data is not: the tools say so
    if own.root.is_dir():
        for split in folders:
            given = as_folders(split, getattr(own, split))
            folders[split] = find_masks(own.root, split, given, 'depth')
        files = depth_files(*(own.root / name for name in folders['train']))
        images, classes = len(files), ()
        cfg['own_data'] = f'{images} training images with {described(files, own.unit)}'
    resize = dict(type='Resize', scale=(4 * own.size, own.size), keep_ratio=True)
    load = dict(type='LoadDepth', unit=own.unit)
    crop = own.size, math.ceil(own.size * 4 / 3 / 16) * 16
    train, tta = cfg['train_dataloader']['dataset'], cfg['tta_pipeline'][1]['transforms']
    read, _, _, rotate, flip, _, colours, pack = train['pipeline']
    cropped = dict(type='RandomCrop', crop_size=crop)
    train['pipeline'] = [read, load, resize, rotate, flip, cropped, colours, pack]
    tta[0], tta[2] = [resize], [load]
    cfg['model']['data_preprocessor']['size'] = crop
    for name in ('train', 'val', 'test'):
        dataset = cfg[f'{name}_dataloader']['dataset']
        in_images, in_depth = folders['train' if name == 'train' else 'val']
        dataset.update(
            type='ImageDepthDataset',
            data_root=str(own.root),
            data_prefix=dict(img_path=in_images, depth_map_path=in_depth),
            metainfo=dict(classes=classes),
        )
        if name != 'train':
            dataset['pipeline'] = [read, resize, load, pack]
            cfg[f'{name}_evaluator'] = dict(
                type='ValidDepthMetric', min_depth_eval=LEAST, max_depth_eval=own.max_depth
            )
    cfg['train_dataloader']['drop_last'] = False  # a small data set may have less than a batch
    return images


def described(files: list[tuple[Path, Path]], unit: float) -> str:
    """The range of the depths of some files, in words, so that a wrong unit is seen."""
    some = files[:: max(1, len(files) // READ)]
    known = np.concatenate([x[x > 0] for _, path in some if (x := read_depth(path) * unit).any()])
    if not known.size:
        return 'no known depth'
    least, median, most = np.percentile(known, (0, 50, 100))
    return f'depths of {least:.3g} to {most:.3g} m, median {median:.3g} m ({len(some)} files)'


def fit_model(cfg: dict, own: OwnDepth) -> None:
    """Set the backbone and what goes with it, in place."""
    vit, model = own.vit, cfg['model']
    blocks = [vit.depth * part // 4 - 1 for part in (1, 2, 3, 4)]
    model['backbone'].update(arch=vit.arch, out_indices=blocks)
    model['decode_head'].update(
        in_channels=vit.channels,
        post_process_channels=[vit.channels // part for part in (8, 4, 2, 1)],
        max_depth=own.max_depth,
    )
    if not vit.has_cls_token:
        model['backbone']['output_prefix'] = None
        model['decode_head']['readout'] = 'ignore'
    fit_weights(cfg, own)
    model['data_preprocessor']['test_cfg'] = dict(size_divisor=vit.patch_size)
    if own.weights is None:
        model['backbone'].update(frozen_stages=-1, img_size=own.size)
    elif own.lora:
        model['backbone']['lora'] = dict(rank=own.lora)
