"""Measure a model: parameters, multiply-adds, time, memory, and what the time goes into.

Examples:
    python tools/benchmark.py configs/upernet_vit_rope_mixed.py --sizes 512x512 1024x1024
    python tools/benchmark.py configs/dino_swin_rope_mixed.py --sizes 800x1344 --device cuda

The model is built as the config says, with random weights, and runs on images of noise. Written to
the work folder, under benchmark/:

    benchmark.json    everything
    benchmark.csv     one line for each size and mode
    benchmark.png     the times as bars, divided by kind of operation
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.logging import MMLogger
from mmengine.model import revert_sync_batchnorm
from torch import nn

from rope_dense.cli.arguments import OptionsAction, check_at_least, checked_device
from rope_dense.cli.complexity import multiply_adds
from rope_dense.cli.config import load_config
from rope_dense.cli.errors import UsageError, command
from rope_dense.cli.model_checks import build_model, typed_nodes
from rope_dense.cli.sweeps import usage_errors
from rope_dense.evaluation.settings import parse_size
from rope_dense.evaluation.speed import measure_speed
from rope_dense.visualization.benchmark_plot import draw_time_bars

MODES = ('forward', 'training')


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('config', help='config file')
    parser.add_argument(
        '--sizes',
        nargs='+',
        default=['512x512'],
        metavar='HEIGHTxWIDTH',
        help='image sizes in pixels; 512 is 512x512 (%(default)s)',
    )
    parser.add_argument(
        '--modes', nargs='+', choices=MODES, default=MODES, help='(forward training)'
    )
    parser.add_argument('--batch', type=int, default=1, help='images at a time (%(default)s)')
    parser.add_argument('--rounds', type=int, default=5, help='measured calls (%(default)s)')
    parser.add_argument('--device', default='cpu', help='cpu, cuda, cuda:1 ... (%(default)s)')
    parser.add_argument('--threads', type=int, help="CPU threads (PyTorch's own choice)")
    parser.add_argument('--work-dir', help='(work_dirs/<name of the config>)')
    parser.add_argument(
        '--cfg-options',
        nargs='+',
        action=OptionsAction,
        default={},
        metavar='KEY=VALUE',
        help='change settings of the config, as for training',
    )
    return parser.parse_args(argv)


@command
def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    with usage_errors():
        sizes = [parse_size(size) for size in args.sizes]
    check_at_least(args, 1, 'batch', 'rounds', 'threads')
    device = checked_device(args.device)
    cfg = load_config(args.config, args.cfg_options, args.work_dir)
    model = random_model(cfg).to(device)
    if args.threads:
        torch.set_num_threads(args.threads)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f'{args.config}: {parameters / 1e6:.1f} M parameters, on {device}', flush=True)
    rows = []
    for size in sizes:
        height, width = (size, size) if isinstance(size, int) else size
        rows += measure(model, cfg.default_scope, height, width, args)
    report = dict(config=args.config, cfg_options=args.cfg_options, parameters=parameters)
    report |= dict(device=name_of(device), threads=torch.get_num_threads())
    report |= dict(torch=torch.__version__, rows=rows)
    folder = Path(cfg.work_dir) / 'benchmark'
    write(folder, report)
    print(f'Written to {folder}')


def random_model(cfg: Config) -> nn.Module:
    """The model of a config with its random initial weights; none are fetched or read."""
    for _, node in typed_nodes(cfg.model, 'model'):
        init_cfg = node.get('init_cfg')
        if isinstance(init_cfg, dict) and init_cfg.get('type') == 'Pretrained':
            node.init_cfg = None
    model = build_model(cfg)
    MMLogger.get_current_instance().setLevel('WARNING')  # or every initialised weight is listed
    model.init_weights()
    return revert_sync_batchnorm(model)


def measure(
    model: nn.Module, scope: str, height: int, width: int, args: argparse.Namespace
) -> list[dict]:
    """The rows of one image size, printed as they come.

    Raises:
        UsageError: the model cannot take such images.
    """
    numbers = dict(height=height, width=width, batch=args.batch, rounds=args.rounds)
    rows = []
    try:
        products = multiply_adds(model, height=height, width=width)
        for mode in args.modes:
            speed = measure_speed(model, scope, mode, **numbers)
            rows.append(asdict(speed) | dict(multiply_adds=products))
            print(line(rows[-1]), flush=True)
    except (ValueError, RuntimeError) as error:
        advice = '. Give --batch 2' if 'more than 1 value per channel' in str(error) else ''
        raise UsageError(
            f'{height} x {width} images, batch {args.batch}: {error}{advice}'
        ) from error
    return rows


def line(row: dict) -> str:
    share = row['share']
    return (
        f'{row["height"]:>5} x {row["width"]:<5} {row["mode"]:<8} {row["median_ms"]:9.1f} ms  '
        f'{row["memory_mb"]:8.0f} MB  {row["multiply_adds"] / 1e9:8.1f} G multiply-adds an image  '
        f'rotation {100 * share["rotation"]:.1f} %  attention {100 * share["attention"]:.1f} %'
    )


def name_of(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == 'cuda' else device.type


def write(folder: Path, report: dict) -> None:
    """Write the three files; each is complete or absent."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = report['rows']
    flat = [
        {name: value for name, value in row.items() if name != 'share'}
        | {f'share_{kind}': share for kind, share in row['share'].items()}
        for row in rows
    ]
    title = f'{report["config"]}, {report["parameters"] / 1e6:.1f} M parameters, {report["device"]}'
    partial = folder / 'partial'
    draw_time_bars(rows, partial, title=title)
    os.replace(partial, folder / 'benchmark.png')
    with partial.open('w', newline='') as stream:
        writer = csv.DictWriter(stream, flat[0])
        writer.writeheader()
        writer.writerows(flat)
    os.replace(partial, folder / 'benchmark.csv')
    partial.write_text(json.dumps(report, indent=2) + '\n')
    os.replace(partial, folder / 'benchmark.json')


if __name__ == '__main__':
    sys.exit(main())
