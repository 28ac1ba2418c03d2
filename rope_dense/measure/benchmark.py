"""The rows of a benchmark, and its files."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import TRANSFORMS
from torch import nn

from ..project.building import build_part
from ..project.errors import UsageError
from ..project.load import used_loaders
from ..project.sizes import at_size
from ..utils.atomic_write import atomic_write, atomic_write_text
from ..utils.config_parts import pipelines, without_labels
from .count import count_products
from .results import csv_text
from .speed import measure_speed
from .time_bars import draw_time_bars

FILE = 480 * 640  # pixels, of most files of COCO


def measure(
    model: nn.Module, cfg: Config, height: int, width: int, args: argparse.Namespace
) -> list[dict]:
    """The rows of one image size, printed as they come.

    Raises:
        UsageError: the model cannot take such images.
    """
    numbers = dict(height=height, width=width, batch=args.batch, rounds=args.rounds)
    rows, scope = [], cfg.default_scope
    try:
        products = count_products(model, height=height, width=width)
        for mode in args.modes:
            with tempfile.TemporaryDirectory() as folder:
                load = None
                if mode == 'end-to-end':
                    file = write_picture(Path(folder), height, width)
                    load = loader(cfg, (height, width), args.batch, file)
                speed = measure_speed(model, scope, mode, **numbers, load=load)
            rows.append(speed | asdict(products))
            print(line(rows[-1]), flush=True)
    except (ValueError, RuntimeError) as error:
        raise UsageError(f'{height} x {width} images, batch {args.batch}: {error}') from error
    return rows


def write_picture(folder: Path, height: int, width: int) -> str:
    """A JPEG file of ``FILE`` pixels at the ratio of height and width, blurred noise."""
    factor = (FILE / (height * width)) ** 0.5
    sides = round(width * factor), round(height * factor)
    coarse = np.random.randint(0, 256, (sides[1] // 8 + 1, sides[0] // 8 + 1, 3), np.uint8)
    mmcv.imwrite(mmcv.imresize(coarse, sides, interpolation='bicubic'), str(folder / 'a.jpg'))
    return str(folder / 'a.jpg')


def loader(cfg: Config, size: tuple[int, int], batch: int, file: str) -> Callable[[], dict]:
    """Load a batch of one picture by the test pipeline, without annotations, at a size.

    Raises:
        UsageError: the config has no such pipeline.
    """
    used_loaders(cfg, 'test')
    key = 'test_dataloader.dataset.pipeline'
    steps = without_labels(next(pipelines(at_size(cfg, size).test_dataloader.dataset)))
    pipeline = Compose([build_part(cfg, key, TRANSFORMS, step) for step in steps])
    return lambda: pseudo_collate([pipeline(dict(img_path=file, img_id=0)) for _ in range(batch)])


def line(row: dict) -> str:
    """A row of the report in words."""
    share = row['share']
    return (
        f'{row["height"]:>5} x {row["width"]:<5} {row["mode"]:<10} {row["median_ms"]:9.1f} ms '
        f'(90 % {row["p90_ms"]:.1f}, 99 % {row["p99_ms"]:.1f})  '
        f'peak {row["memory_mb"]:6.0f} MB  '
        f'{row["multiply_adds"] / 1e9:8.1f} G multiply-adds an image  '
        f'rotation {100 * share["rotation"]:.1f} %  attention {100 * share["attention"]:.1f} %'
    )


def device_name(device: torch.device) -> str:
    """The name of a GPU, or cpu."""
    return torch.cuda.get_device_name(device) if device.type == 'cuda' else device.type


def write(folder: Path, report: dict) -> None:
    """Write the three files; each is complete or absent."""
    rows = report['rows']
    flat = [
        {name: value for name, value in row.items() if name != 'share'}
        | {f'share_{kind}': share for kind, share in row['share'].items()}
        for row in rows
    ]
    title = f'{report["config"]}, {report["parameters"] / 1e6:.1f} M parameters, {report["device"]}'
    with atomic_write(folder / 'benchmark.png') as partial:
        draw_time_bars(rows, partial, title=title)
    atomic_write_text(folder / 'benchmark.csv', csv_text(flat))
    atomic_write_text(folder / 'benchmark.json', json.dumps(report, indent=2) + '\n')
