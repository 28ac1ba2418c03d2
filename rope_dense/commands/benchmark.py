"""Measure a model: parameters, multiply-adds, memory, and time by kind of operation.

Examples:
    python tools/benchmark.py configs/upernet_vit_rope_mixed.py --sizes 512x512 1024x1024
    python tools/benchmark.py configs/dino_swin_rope_mixed.py --sizes 800x1344 --device cuda
    python tools/benchmark.py CONFIG --sizes 640 --modes forward end-to-end --rounds 100
    python tools/benchmark.py CONFIG --sizes 800x1344 1024 --modes training --batch 2 --device cuda

The model is built from the config with random weights and runs on noise images. The end-to-end mode
measures from a JPEG file (as many pixels as 480 x 640, in the aspect ratio of each size) through
the config's test pipeline to results in the original image. Output files, in benchmark/ of the work
folder:

    benchmark.json    all results
    benchmark.csv     one line per size and mode
    benchmark.png     times as bars, divided by kind of operation
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from .arguments import add_cfg_options, check_at_least, checked_device, tool_parser

MODES = ('forward', 'training', 'end-to-end')


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
    parser.add_argument('--batch', type=int, default=1, help='images per batch (%(default)s)')
    parser.add_argument('--rounds', type=int, default=5, help='measured calls (%(default)s)')
    parser.add_argument('--device', default='cpu', help='cpu, cuda, cuda:1 ... (%(default)s)')
    parser.add_argument('--threads', type=int, help="CPU threads (PyTorch's own choice)")
    parser.add_argument('--work-dir', help='(work_dirs/<name of the config>)')
    add_cfg_options(parser)
    return parser.parse_args(argv)


def main(args: argparse.Namespace) -> None:
    import torch
    from mmengine.utils import to_2tuple

    from ..checks.model import random_model
    from ..measure.benchmark import device_name, measure, write
    from ..project.load import load_config
    from ..project.sizes import parse_size

    sizes = [to_2tuple(parse_size(size)) for size in args.sizes]
    check_at_least(args, 1, 'batch', 'rounds', 'threads')
    device = checked_device(args.device)
    cfg = load_config(args.config, args.cfg_options, args.work_dir)
    if args.threads:
        torch.set_num_threads(args.threads)
    folder = Path(cfg.work_dir) / 'benchmark'
    model = random_model(cfg).to(device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f'{args.config}: {parameters / 1e6:.1f} M parameters, on {device}', flush=True)
    rows = []
    for height, width in sizes:
        rows += measure(model, cfg, height, width, args)
    report = dict(config=args.config, cfg_options=args.cfg_options, parameters=parameters)
    report |= dict(device=device_name(device), threads=torch.get_num_threads())
    report |= dict(torch=torch.__version__, rows=rows)
    write(folder, report)
    print(f'Written to {folder}')
