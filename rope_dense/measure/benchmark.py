"""Measure a model: parameters, multiply-adds, memory, and time by kind of operation."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import TRANSFORMS
from mmengine.structures import BaseDataElement
from mmengine.utils import to_2tuple
from torch import nn

from ..backbones.base import image_channels
from ..project.building import build_part, checked_device
from ..project.contents import at_size, configured_size, used_loaders
from ..project.load import Options, load_config
from ..project.model import random_model
from ..rope import Rotary, RotaryEmbedding
from ..utils.config_parts import pipelines, without_labels
from ..utils.errors import UsageError
from ..utils.results import Results
from ..utils.sizes import ImageSize
from ..utils.validation import parse_size
from .results import csv_text, json_text
from .speed import count_operations, measure_speed

Mode = Literal['forward', 'training', 'end-to-end']
FILE = 480 * 640  # pixels, of most files of COCO


def benchmark(
    config: str,
    *,
    sizes: Sequence[str] = (),
    modes: Sequence[Mode] = ('forward', 'training'),
    batch: int = 1,
    rounds: int = 5,
    device: str | None = 'cpu',
    threads: int | None = None,
    cfg_options: Options = (),
    work_dir: str | None = None,
) -> dict:
    """Measure the model of a config with random weights, on images of noise.

    Prints a line for each size and mode, and writes benchmark.json and benchmark.csv to the folder
    benchmark/ of the work folder.

    Args:
        config, cfg_options, work_dir: see ``load_config``.
        sizes: '640' for squares, or '480x640', height and width in pixels; by default
            ``measured_size``.
        modes, rounds: see ``measure_speed``.
        batch: images at a time.
        device: 'cpu', 'cuda' ...; None for a GPU if there is one.
        threads: of the CPU; by default PyTorch's choice.

    Returns:
        The content of benchmark.json.

    Raises:
        UsageError, CheckpointError, ValueError: the model cannot be built or take such images.
    """
    measured = checked_device(device)
    cfg = load_config(config, cfg_options, work_dir)
    pixels = [to_2tuple(parse_size(size)) for size in sizes] or [measured_size(cfg)]
    results = Results(Path(cfg.work_dir, 'benchmark'), 'benchmark')
    results.check(results.folder / name for name in ('benchmark.csv', 'benchmark.json'))
    if threads:
        torch.set_num_threads(threads)
    model = random_model(cfg).to(measured)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f'{config}: {parameters / 1e6:.1f} M parameters, on {measured}', flush=True)
    rows = []
    for size in pixels:
        rows += measure_and_print(model, cfg, size, modes, batch, rounds)
    name = measured.type
    if name == 'cuda':
        name = torch.cuda.get_device_name(measured)
    report = dict(
        config=config,
        cfg_options=cfg_options if isinstance(cfg_options, Mapping) else [*cfg_options],
        parameters=parameters,
        device=name,
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        rows=rows,
    )
    write_measurements(results, report)
    print(f'Written to {results.folder}')
    return report


def measure_and_print(
    model: nn.Module,
    cfg: Config,
    size: ImageSize,
    modes: Sequence[Mode],
    batch: int,
    rounds: int,
) -> list[dict]:
    """The rows of a size, printed as they come; UsageError if the model cannot take such images."""
    height, width = size
    rows = []
    load = None
    try:
        products = count_products(model, height=height, width=width)
        for mode in modes:
            with tempfile.TemporaryDirectory() as folder:
                if mode == 'end-to-end':
                    file = write_picture(Path(folder), height, width)
                    load = loader(cfg, size, batch, file)
                speed = measure_speed(
                    model,
                    cfg.default_scope,
                    mode,
                    height=height,
                    width=width,
                    batch=batch,
                    rounds=rounds,
                    load=load,
                )
            rows.append(speed | asdict(products))
            print(row_text(rows[-1]), flush=True)
    except (ValueError, RuntimeError) as error:
        pixels = f'{height} x {width} images'
        raise UsageError(f'{pixels}, batch {batch}: {error}') from error
    return rows


def write_picture(folder: Path, height: int, width: int) -> str:
    """A JPEG file of ``FILE`` pixels at the ratio of height and width, blurred noise."""
    factor = (FILE / (height * width)) ** 0.5
    columns = round(width * factor)
    rows = round(height * factor)
    shape = (rows // 8 + 1, columns // 8 + 1, 3)
    coarse = np.random.randint(0, 256, shape, np.uint8)
    picture = mmcv.imresize(coarse, (columns, rows), interpolation='bicubic')
    path = str(folder / 'a.jpg')
    mmcv.imwrite(picture, path)
    return path


def loader(cfg: Config, size: ImageSize, batch: int, file: str) -> Callable[[], dict]:
    """Load a batch of one picture by the test pipeline; UsageError for a config without one."""
    used_loaders(cfg, 'test')
    key = 'test_dataloader.dataset.pipeline'
    steps = without_labels(next(pipelines(at_size(cfg, size).test_dataloader.dataset)))
    pipeline = Compose([build_part(cfg, key, TRANSFORMS, step) for step in steps])
    picture = dict(img_path=file, img_id=0)
    return lambda: pseudo_collate([pipeline(dict(picture)) for _ in range(batch)])


def row_text(row: dict) -> str:
    """A row of the report in words."""
    share = row['share']
    return (
        f'{row["height"]:>5} x {row["width"]:<5} {row["mode"]:<10} {row["median_ms"]:9.1f} ms '
        f'(90 % {row["p90_ms"]:.1f}, 99 % {row["p99_ms"]:.1f})  '
        f'peak {row["memory_mb"]:6.0f} MB  '
        f'{row["multiply_adds"] / 1e9:8.1f} G multiply-adds an image  '
        f'rotation {100 * share["rotation"]:.1f} %  attention {100 * share["attention"]:.1f} %'
    )


def write_measurements(results: Results, report: dict) -> None:
    """Write both files; each is complete or absent."""
    lines = []
    for row in report['rows']:
        line = dict(row)
        for kind, share in line.pop('share').items():
            line[f'share_{kind}'] = share
        lines.append(line)
    with results:
        results.write_text(results.folder / 'benchmark.csv', csv_text(lines))
        results.write_text(results.folder / 'benchmark.json', json_text(report))


@dataclass(frozen=True)
class Products:
    """The products of a prediction for one image.

    Attributes:
        multiply_adds: what OpenMMLab's tables call FLOPs.
        rotations: complex products that rotate queries and keys, one for each pair of channels.
    """

    multiply_adds: int
    rotations: int


def count_products(model: nn.Module, *, height: int, width: int) -> Products:
    """The products of a prediction for one image of a size.

    The model runs once, on its device, under torch's counter, which sees convolutions, linear
    layers and attention, but no norms, activations, resizing, nor the bilinear sampling of
    deformable attention. (``mmengine.analysis`` counts norms and sampling too, but cannot trace
    mmdet's DINO.) Rotations are counted separately, for tokens of the grid without padding. Checked
    against products counted by hand in test_complexity.py, rotations against the 1.8 M of ViT-B in
    Heo et al. (section 3.3).
    """
    size = (height, width)
    rotations = []
    meta = dict(scale_factor=(1.0, 1.0))
    for name in ('ori_shape', 'img_shape', 'pad_shape', 'batch_input_shape'):
        meta[name] = size
    sample = BaseDataElement(metainfo=meta)
    device = next(model.parameters()).device
    image = torch.rand(1, image_channels(model), *size, device=device)

    def count(rope: nn.Module, args: tuple, rotary: Rotary) -> None:
        x, (rows, columns), *_ = args
        pairs = len(x) * rows * columns * rope.num_heads * rotary.angles.shape[-1]
        rotations.append(2 * pairs)  # of queries and of keys

    with ExitStack() as hooks, torch.no_grad():
        for module in model.modules():
            if isinstance(module, RotaryEmbedding):
                hooks.enter_context(module.register_forward_hook(count))
        operations = count_operations(
            lambda: model.eval()(image, [sample], mode='predict')
        )
    return Products(operations // 2, sum(rotations))


def measured_size(cfg: Config) -> ImageSize:
    """Height and width of the image that a config's model is counted at.

    The window of a sliding test, the size that a segmentor's batches are padded to, or else the
    size of the test images (the largest, where it varies). ValueError for a test pipeline without a
    size.
    """
    if (cfg.model.get('test_cfg') or {}).get('mode') == 'slide':
        return tuple(cfg.model.test_cfg.crop_size)
    padded = (cfg.model.get('data_preprocessor') or {}).get('size')
    return tuple(padded) if padded else configured_size(cfg)
