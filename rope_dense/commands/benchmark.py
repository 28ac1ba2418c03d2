"""Measure a model: parameters, multiply-adds, memory, and time by kind of operation.

Examples:
    rope-dense benchmark configs/upernet_vit_rope_mixed.py --sizes 512x512 1024x1024
    rope-dense benchmark configs/dino_swin_rope_mixed.py --device cuda
    rope-dense benchmark CONFIG --sizes 640 --modes forward end-to-end --rounds 100
    rope-dense benchmark CONFIG --sizes 800x1344 1024 --modes training --batch 2 --device cuda

The model is built from the config with random weights and runs on noise images. The end-to-end mode
measures from a JPEG file (as many pixels as 480 x 640, in the aspect ratio of each size) through
the config's test pipeline to results in the original image. Output files, in benchmark/ of the work
folder: benchmark.json has all results, benchmark.csv one line per size and mode.
"""

import argparse
from collections.abc import Sequence

from .arguments import (
    ToolParser,
    add_cfg_options,
    config_path,
    image_size_text,
    values,
)

MODES = ('forward', 'training', 'end-to-end')


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = ToolParser(__doc__)
    parser.add_argument(
        'config', type=config_path, help='config file, or the folder of a run'
    )
    parser.add_list(
        '--sizes',
        'HEIGHTxWIDTH',
        'in pixels; 512 is 512x512 (the size of the test images or crops of the config)',
        type=image_size_text,
    )
    parser.add_argument(
        '--modes',
        nargs='+',
        choices=MODES,
        default=MODES[:2],
        help='(forward training)',
    )
    parser.add_number('--batch', 'images per batch (%(default)s)', least=1, default=1)
    parser.add_number('--rounds', 'measured calls (%(default)s)', least=1, default=5)
    parser.add_argument(
        '--device', default='cpu', help='cpu, cuda, cuda:1 ... (%(default)s)'
    )
    parser.add_number('--threads', "CPU threads (PyTorch's own choice)", least=1)
    parser.add_argument('--work-dir', help='(work_dirs/<name of the config>)')
    add_cfg_options(parser)
    return parser.parse(argv)


def main(args: argparse.Namespace) -> None:
    from ..measure.benchmark import benchmark

    benchmark(**values(args))
