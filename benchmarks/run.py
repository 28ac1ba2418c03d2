"""Run benchmarks: print tables with ratios and write them as CSV.

    python benchmarks/run.py --quick            # everything at small sizes: does it work
    python benchmarks/run.py rotate vit-512     # these suites at full size
    python benchmarks/run.py --list             # the suites and how long they take

Ratios are to the first row of each table. A suite that is run again replaces its file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import torch

from bench_apply_rotary import Size, bench_apply_rotary
from bench_backbone import OURS, bench_backbone, bench_share
from bench_rotate import bench_rotate
from bench_throughput import bench_throughput, paper_tables
from measure import Row, environment, name_of, table, write_csv
from rotations import SHAPES, RotationShape

RESULTS = Path(__file__).parent / 'results'
SHOWN = (
    'implementation',
    'size',
    'height',
    'width',
    'median_ms',
    'p20_ms',
    'p80_ms',
    'median_ratio',
    'p20_ratio',
    'p80_ratio',
    'gb_per_s',
    'kind',
    'median_percent',
    'p20_percent',
    'p80_percent',
    'mean_percent',
    'least_percent',
    'largest_percent',
    'images_per_s',
    'peak_rss_mb',
    'peak_tensors_mb',
    'left_out',
)
TABLE = ('bench', 'work', 'mode', 'batch', 'dtype')  # the same for all rows of a table


@dataclass(frozen=True)
class Suite:
    """A benchmark with its settings.

    Attributes:
        run: makes rows, from a device and, by name, dtype and other settings.
        quick: settings for a trial at a small size.
        minutes: an estimate, on two CPU cores in float32.
        about: what it measures.
        tables: of its rows, as text; by default one for each job, mode and size.
    """

    run: Callable[..., list[Row]]
    quick: dict
    minutes: float
    about: str
    tables: Callable[[Sequence[Row]], Iterable[str]] | None = None


def rotate_suite(
    device: torch.device, shapes: dict[str, RotationShape] = SHAPES, **settings: object
) -> list[Row]:
    return [
        row
        for work, shape in shapes.items()
        for attention in (False, True)
        for row in bench_rotate(
            device, work=work, shape=shape, attention=attention, **settings
        )
    ]


TINY = {'tiny': RotationShape(2, (2, 3), 2, 8)}
FEW = dict(sizes=[(64, 96)], rounds=1, processes=0, memory=False)
vit, vitdet = (
    partial(bench_backbone, 'vit', 'base'),
    partial(bench_backbone, 'vitdet', 'base'),
)
swin, dinov3 = (
    partial(bench_backbone, 'swin', 'tiny'),
    partial(bench_backbone, 'dinov3', 'base'),
)
SUITES = {
    'rotate': Suite(
        partial(rotate_suite, rounds=20),
        dict(shapes=TINY, rounds=1, modes=('forward',)),
        10,
        'the rotation of one image, alone and with attention',
    ),
    'vit-224': Suite(
        partial(vit, sizes=[(224, 224)], rounds=3, processes=3),
        FEW,
        4,
        'ViT-B/16, 224 px',
    ),
    'vit-512': Suite(
        partial(vit, sizes=[(512, 512)], rounds=3, processes=2),
        FEW,
        10,
        'ViT-B/16, 512 px',
    ),
    'vit-1024': Suite(
        partial(vit, sizes=[(1024, 1024)], rounds=2, processes=2, names=OURS),
        FEW,
        17,
        'ViT-B/16, 1024 px, all blocks global, against no position',
    ),
    'dinov3-512': Suite(
        partial(dinov3, sizes=[(512, 512)], rounds=3, processes=2),
        FEW,
        6,
        'DINOv3-B, 512 px',
    ),
    'vitdet-forward': Suite(
        partial(vitdet, sizes=[(1024, 1024)], modes=['forward'], rounds=5),
        FEW,
        8,
        'ViTDet-B, 1024 px, forward',
    ),
    'vitdet-both': Suite(
        partial(vitdet, sizes=[(1024, 1024)], modes=['both'], rounds=3),
        FEW,
        14,
        'ViTDet-B, 1024 px, forward and backward',
    ),
    'swin': Suite(
        partial(swin, sizes=[(800, 1344)], rounds=2, processes=3),
        FEW,
        8,
        'Swin-T, 800 x 1344',
    ),
    'swin-512': Suite(
        partial(swin, sizes=[(512, 512)], rounds=8, processes=5),
        FEW,
        9,
        'Swin-T, 512 px',
    ),
    'fast-rope': Suite(
        bench_apply_rotary,
        dict(sizes=[Size(2, 2, 3, 16)], rounds=1, with_compiled=False),
        3,
        'apply_rotary against plain operations, eager and compiled; on a CPU at few sizes',
    ),
    'share': Suite(
        partial(
            bench_share,
            sizes={('vit', 'base'): (512, 1024), ('swin', 'tiny'): (512, 1024)},
        ),
        dict(sizes={('vit', 'small'): (64,), ('swin', 'tiny'): (64,)}, rounds=1),
        12,
        'what the time of ViT-B and Swin-T goes into',
    ),
    'throughput': Suite(
        bench_throughput,
        dict(models=('nat_mini', 'swin_tiny', 'vit_small'), side=64, batch=1, rounds=1),
        40,
        "the fused-attention paper's table: 19 models, kinds of position and of attention",
        paper_tables,
    ),
}


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        'suites', nargs='*', metavar='SUITE', help='all of them if none is named'
    )
    parser.add_argument('--list', action='store_true', help='list the suites and stop')
    parser.add_argument(
        '--quick', action='store_true', help='small sizes: does everything work'
    )
    parser.add_argument(
        '--device', default='cpu', choices=['cpu', 'cuda'], help='(%(default)s)'
    )
    parser.add_argument(
        '--dtype',
        default='float32',
        choices=['float32', 'bfloat16', 'float16'],
        help='of activations, by autocast (%(default)s)',
    )
    parser.add_argument(
        '--threads', type=int, help="CPU threads (PyTorch's own choice)"
    )
    parser.add_argument(
        '--rounds', type=int, help="of each process, instead of the suite's own number"
    )
    parser.add_argument(
        '--out', type=Path, default=RESULTS, help='folder (benchmarks/results)'
    )
    args = parser.parse_args(argv)
    if unknown := [name for name in args.suites if name not in SUITES]:
        parser.error(f'no suite {unknown[0]!r}; there are {", ".join(SUITES)}')
    if args.device == 'cuda' and not torch.cuda.is_available():
        parser.error('--device cuda: PyTorch finds no CUDA device')
    return args


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    if args.list:
        for name, suite in SUITES.items():
            print(f'{name:<16}{suite.minutes:>4} min  {suite.about}')
        return
    if args.threads:
        torch.set_num_threads(args.threads)
    device, dtype = torch.device(args.device), getattr(torch, args.dtype)
    for name in args.suites or SUITES:
        suite = SUITES[name]
        settings = dict(suite.quick) if args.quick else {}
        if args.rounds:
            settings['rounds'] = args.rounds
        started, constants = time.monotonic(), environment(device)
        rows = [row | constants for row in suite.run(device, dtype=dtype, **settings)]
        quick = '-quick' if args.quick else ''
        file = args.out / f'{name}-{args.device}-{name_of(dtype)}{quick}.csv'
        write_csv(file, rows)
        print(f'{name}: {suite.about}, {time.monotonic() - started:.0f} s, {file}\n')
        print('\n'.join((suite.tables or tables)(rows)), flush=True)


def tables(rows: Sequence[Row], shown: Sequence[str] = SHOWN) -> Iterator[str]:
    """One table for the rows of each job, mode and size, with those columns that have values."""
    for common, group in groupby(rows, lambda row: [row.get(name) for name in TABLE]):
        group = list(group)
        columns = [name for name in shown if any(name in row for row in group)]
        yield f'{", ".join(str(value) for value in common)}\n{table(group, columns)}\n'


if __name__ == '__main__':
    sys.exit(main())
