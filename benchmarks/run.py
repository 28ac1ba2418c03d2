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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import torch
from bench_backbone import bench_backbone, bench_growth, bench_share, bench_throughput
from bench_rotate import bench_rotate, bench_table
from measure import Row, environment, name_of, table, write_csv

RESULTS = Path(__file__).parent / 'results'
SHOWN = (
    'implementation',
    'height',
    'width',
    'median_ms',
    'p20_ms',
    'p80_ms',
    'median_ratio',
    'p20_ratio',
    'p80_ratio',
    'gb_per_s',
    'median_percent',
    'p20_percent',
    'p80_percent',
    'images_per_s',
    'exponent',
    'peak_rss_mb',
    'peak_tensors_mb',
)
TABLE = ('bench', 'work', 'mode', 'batch', 'dtype')  # alike within a table


@dataclass(frozen=True)
class Suite:
    """A benchmark with its settings.

    Attributes:
        run: from device and, by name, dtype and other settings to rows.
        quick: settings for a try at a small size.
        minutes: it takes on two CPU cores in float32.
        about: what it measures.
    """

    run: Callable[..., list[Row]]
    quick: dict
    minutes: float
    about: str


def table_suite(device: torch.device, dtype: torch.dtype, **settings: object) -> list[Row]:
    return bench_table(device, **settings)  # in float32, whatever the model


OURS = ('rope_dense, no position', 'rope_dense, mixed', 'rope_dense, axial')
SWINS = (*OURS, 'mmdet')
FEW = dict(sizes=[(64, 96)], rounds=1, processes=1, memory=False)
vit, vitdet = partial(bench_backbone, 'vit', 'base'), partial(bench_backbone, 'vitdet', 'base')
swin = partial(bench_backbone, 'swin', 'tiny')
SUITES = {
    'rotate': Suite(
        partial(bench_rotate, side=32),
        dict(side=4, rounds=1),
        2,
        'the rotation alone, 1024 tokens x 12 heads x 64, against a copy',
    ),
    'table': Suite(table_suite, dict(side=4, rounds=1), 0.2, 'cosines and sines of 32 x 32'),
    'vit-224': Suite(
        partial(vit, sizes=[(224, 224)], rounds=3, processes=3), FEW, 4, 'ViT-B/16, 224 px'
    ),
    'vit-512': Suite(
        partial(vit, sizes=[(512, 512)], rounds=3, processes=2), FEW, 10, 'ViT-B/16, 512 px'
    ),
    'vit-1024': Suite(
        partial(vit, sizes=[(1024, 1024)], rounds=2, processes=2, names=OURS),
        FEW,
        17,
        'ViT-B/16, 1024 px, all blocks global, against no position',
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
        'Swin-T against mmdet, 800 x 1344',
    ),
    'swin-512': Suite(
        partial(swin, sizes=[(512, 512)], rounds=8, processes=5, names=SWINS),
        FEW,
        7,
        'Swin-T, 512 px',
    ),
    'swin-1024': Suite(
        partial(swin, sizes=[(1024, 1024)], rounds=4, processes=3, names=SWINS),
        FEW,
        9,
        'Swin-T, 1024 px',
    ),
    'swin-2048': Suite(
        partial(swin, sizes=[(2048, 2048)], rounds=3, names=SWINS), FEW, 10, 'Swin-T, 2048 px'
    ),
    'share': Suite(
        partial(
            bench_share,
            sizes={('vit', 'base'): (512, 1024), ('swin', 'tiny'): (512, 1024)},
            names=OURS,
        ),
        dict(sizes={('vit', 'base'): (64,), ('swin', 'tiny'): (64,)}, rounds=1),
        12,
        'what the rotation takes of the time of ViT-B and Swin-T',
    ),
    'growth': Suite(
        bench_growth, dict(sides=(64, 96), rounds=1), 14, 'windowed models, 512 to 2048 px'
    ),
    'throughput': Suite(
        bench_throughput,
        dict(arch='tiny', side=64, batch=1, rounds=1),
        8,
        'images per second by position and attention, ViT-B, 224 px',
    ),
}


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('suites', nargs='*', metavar='SUITE', help='all of them if none is named')
    parser.add_argument('--list', action='store_true', help='list the suites and stop')
    parser.add_argument('--quick', action='store_true', help='small sizes: does everything work')
    parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'], help='(%(default)s)')
    parser.add_argument(
        '--dtype',
        default='float32',
        choices=['float32', 'bfloat16', 'float16'],
        help='of activations, by autocast (%(default)s)',
    )
    parser.add_argument('--threads', type=int, help="CPU threads (PyTorch's own choice)")
    parser.add_argument(
        '--rounds', type=int, help="of each process, instead of the suite's own number"
    )
    parser.add_argument('--out', type=Path, default=RESULTS, help='folder (benchmarks/results)')
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
            print(f'{name:<16}{suite.minutes:>5} min  {suite.about}')
        return
    if args.threads:
        torch.set_num_threads(args.threads)
    device, dtype = torch.device(args.device), getattr(torch, args.dtype)
    for name in args.suites or SUITES:
        suite = SUITES[name]
        settings = dict(suite.quick) if args.quick else {}
        if args.rounds:
            settings['rounds'] = args.rounds
        started = time.monotonic()
        rows = suite.run(device, dtype=dtype, **settings)
        rows = [row | environment(device) for row in rows]
        quick = '-quick' if args.quick else ''
        file = args.out / f'{name}-{args.device}-{name_of(dtype)}{quick}.csv'
        write_csv(file, rows)
        print(f'{name}: {suite.about}, {time.monotonic() - started:.0f} s, {file}\n')
        print('\n'.join(tables(rows)), flush=True)


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """One table for the rows of each job, mode and size."""
    for common, group in groupby(rows, lambda row: [row.get(name) for name in TABLE]):
        group = list(group)
        columns = [name for name in SHOWN if any(name in row for row in group)]
        yield f'{", ".join(str(value) for value in common)}\n{table(group, columns)}\n'


if __name__ == '__main__':
    sys.exit(main())
