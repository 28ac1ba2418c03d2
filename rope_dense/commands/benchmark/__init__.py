"""Measure a model: parameters, multiply-adds, memory, and time by kind of operation.

Examples:
    python tools/benchmark.py configs/upernet_vit_rope_mixed.py --sizes 512x512 1024x1024
    python tools/benchmark.py configs/dino_swin_rope_mixed.py --sizes 800x1344 --device cuda
    python tools/benchmark.py CONFIG --sizes 640 --modes forward end-to-end --rounds 100
    python tools/benchmark.py CONFIG --fit 24GB --sizes 800x1344 1024 --window config auto --batch 2

The model is built as the config says, with random weights, and runs on images of noise. End-to-end
is from JPEG files of 480 x 640 pixels (of that number, at the ratio of each size) by the config's
test pipeline to results in the original image. Written to the work folder, under benchmark/:

    benchmark.json    everything
    benchmark.csv     one line for each size and mode
    benchmark.png     the times as bars, divided by kind of operation

--fit MEMORY prints the image sizes, batches, windows, gradient checkpointing and precision that a
GPU of this memory can train. No GPU is needed: small training steps are measured and extrapolated,
see docs/memory.md. Written: fit.json and fit.csv.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from command_line import add_cfg_options, tool_parser

MODES = ('forward', 'training', 'end-to-end')
FILE = 480 * 640  # pixels, of most files of COCO


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = tool_parser(__doc__)
    parser.add_argument('config', help='config file')
    parser.add_argument(
        '--sizes',
        nargs='+',
        default=['512x512'],
        metavar='HEIGHTxWIDTH',
        help='image sizes in pixels; 512 is 512x512 (%(default)s)',
    )
    parser.add_argument(
        '--modes', nargs='+', choices=MODES, default=MODES[:2], help='(forward training)'
    )
    parser.add_argument('--batch', type=int, default=1, help='images at a time (%(default)s)')
    parser.add_argument('--rounds', type=int, default=5, help='measured calls (%(default)s)')
    parser.add_argument('--device', default='cpu', help='cpu, cuda, cuda:1 ... (%(default)s)')
    parser.add_argument('--threads', type=int, help="CPU threads (PyTorch's own choice)")
    parser.add_argument(
        '--fit', metavar='MEMORY', help='memory of a GPU: 24GB, 16384MB; plan instead of measuring'
    )
    parser.add_argument(
        '--window',
        nargs='+',
        default=['config'],
        metavar='WINDOW',
        help='with --fit, windows in tokens: 7, 7x14 (height x width), auto, none or config '
        '(config)',
    )
    parser.add_argument(
        '--tflops', type=float, help='with --fit, what the GPU sustains in training, for the time'
    )
    parser.add_argument('--work-dir', help='(work_dirs/<name of the config>)')
    add_cfg_options(parser)
    return parser.parse_args(argv)


if __name__ == '__main__':
    parse_args(sys.argv[1:])  # answers --help and mistakes before the imports, which take seconds

import mmcv
import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import TRANSFORMS
from mmengine.utils import to_2tuple
from torch import nn

from rope_dense.cli.arguments import check_at_least, checked_device
from rope_dense.cli.building import build_part
from rope_dense.cli.config import load_config, used_loaders
from rope_dense.cli.errors import UsageError, command, usage_errors
from rope_dense.cli.fit import RESERVE, TABLE, fitting_steps, parse_memory, table_row
from rope_dense.cli.model_checks import random_model
from rope_dense.evaluation.resolution import at_size, pipelines
from rope_dense.evaluation.results import csv_text
from rope_dense.evaluation.settings import parse_size
from rope_dense.profiling.benchmark_plot import draw_time_bars
from rope_dense.profiling.complexity import count_products
from rope_dense.profiling.speed import measure_speed
from rope_dense.utils.atomic_write import atomic_write, atomic_write_text


@command
def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    with usage_errors():
        sizes = [to_2tuple(parse_size(size)) for size in args.sizes]
    check_at_least(args, 1, 'batch', 'rounds', 'threads')
    if args.tflops is not None and args.tflops <= 0:
        raise UsageError(f'--tflops must be more than 0, got {args.tflops:g}')
    device = checked_device(args.device)
    cfg = load_config(args.config, args.cfg_options, args.work_dir)
    if args.threads:
        torch.set_num_threads(args.threads)
    folder = Path(cfg.work_dir) / 'benchmark'
    if args.fit:
        print_fitting(cfg, sizes, device, args, folder)
        return
    model = random_model(cfg).to(device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f'{args.config}: {parameters / 1e6:.1f} M parameters, on {device}', flush=True)
    rows = []
    for height, width in sizes:
        rows += measure(model, cfg, height, width, args)
    report = dict(config=args.config, cfg_options=args.cfg_options, parameters=parameters)
    report |= dict(device=name_of(device), threads=torch.get_num_threads())
    report |= dict(torch=torch.__version__, rows=rows)
    write(folder, report)
    print(f'Written to {folder}')


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
        advice = '. Give --batch 2' if 'more than 1 value per channel' in str(error) else ''
        raise UsageError(
            f'{height} x {width} images, batch {args.batch}: {error}{advice}'
        ) from error
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
    steps = next(pipelines(at_size(cfg, size).test_dataloader.dataset))
    steps = [step for step in steps if 'Annotations' not in step.type]
    pipeline = Compose([build_part(cfg, key, TRANSFORMS, step) for step in steps])
    return lambda: pseudo_collate([pipeline(dict(img_path=file, img_id=0)) for _ in range(batch)])


def line(row: dict) -> str:
    share = row['share']
    return (
        f'{row["height"]:>5} x {row["width"]:<5} {row["mode"]:<10} {row["median_ms"]:9.1f} ms '
        f'(90 % {row["p90_ms"]:.1f}, 99 % {row["p99_ms"]:.1f})  '
        f'peak {row["memory_mb"]:6.0f} MB  '
        f'{row["multiply_adds"] / 1e9:8.1f} G multiply-adds an image  '
        f'rotation {100 * share["rotation"]:.1f} %  attention {100 * share["attention"]:.1f} %'
    )


def print_fitting(
    cfg: Config,
    sizes: Sequence[tuple[int, int]],
    device: torch.device,
    args: argparse.Namespace,
    folder: Path,
) -> None:
    """Print and write what fits --fit.

    Raises:
        UsageError: a setting that the model does not have, or it cannot be trained.
    """
    limit = parse_memory(args.fit)
    print(f'{args.config}: training steps that fit {args.fit} less {RESERVE:.0%}', flush=True)
    print(TABLE, flush=True)
    rows = []
    for row in fitting_steps(cfg, limit, sizes, args.window, args.batch, device, args.tflops):
        rows.append(row)
        print(table_row(row), flush=True)
    report = dict(config=args.config, cfg_options=args.cfg_options, fit=args.fit, batch=args.batch)
    report |= dict(device=name_of(device), torch=torch.__version__, rows=rows)
    atomic_write_text(folder / 'fit.csv', csv_text(rows))
    atomic_write_text(folder / 'fit.json', json.dumps(report, indent=2) + '\n')
    print(f'Written to {folder}')


def name_of(device: torch.device) -> str:
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


if __name__ == '__main__':
    sys.exit(main())
