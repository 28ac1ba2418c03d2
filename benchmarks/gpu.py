"""Measure every goal on a GPU, in under 8 minutes, and write results/gpu-*.csv.

    python benchmarks/gpu.py

Correctness comes first: with a kernel that differs from the definition it stops. Sections that
would start after the time is up are named and left out. This script has not been run so far.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from bench_backbone import bench_backbone, work
from bench_rotate import bench_rotate
from measure import Case, Row, compare, environment, table, write_csv
from peers import MIXED, swin, vit, vitdet
from rotations import in_place, plain
from run import RESULTS, tables
from torch import Tensor

from rope_dense.rope import (
    AxialRoPE,
    MixedRoPE,
    Partition,
    Rotation,
    cut_windows,
    window_padding,
)
from rope_dense.rope.kernels import triton_rotary
from rope_dense.rope.kernels.autograd import rotate_into_windows
from rope_dense.rope.rotation import QKV

CUDA = torch.device('cuda')
BF16 = torch.bfloat16
LIMIT = 1.5 * 60  # seconds that the last section may need
OURS = ('rope_dense, no position', 'rope_dense, mixed', 'rope_dense, axial')
VITDETS = (
    'detectron2 / SAM form, window 14',
    'rope_dense, no position, window 14',
    'rope_dense, mixed, window 14',
    'rope_dense, mixed, window 16',
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--minutes', type=float, default=8, help='to stop after (%(default)s)')
    parser.add_argument('--out', type=Path, default=RESULTS, help='folder (benchmarks/results)')
    args = parser.parse_args(argv)
    if not torch.cuda.is_available():
        parser.error('PyTorch finds no CUDA device')
    deadline = time.monotonic() + 60 * args.minutes
    torch.manual_seed(0)
    for name, section in SECTIONS.items():
        started = time.monotonic()
        if started > deadline - LIMIT and name != 'correctness':
            print(f'{name}: left out, the time is up')
            continue
        rows = [row | environment(CUDA) for row in section()]
        file = args.out / f'gpu-{name}.csv'
        write_csv(file, rows)
        print(f'{name}: {time.monotonic() - started:.0f} s, {file}\n')
        if name == 'correctness':
            print(table(rows, tuple(rows[0])[:8]), flush=True)
            if not all(row['ok'] for row in rows):
                print('the kernel differs from the definition: nothing else is measured')
                return 1
        else:
            print('\n'.join(tables(rows)), flush=True)
    return 0


# ----------------------------------------------------------------- correctness


def correctness() -> list[Row]:
    """The compiled kernel against the definition: values, gradients, and the same bits twice."""
    kinds = dict(
        mixed=partial(MixedRoPE), axial=partial(AxialRoPE), learned=partial(AxialRoPE, learned=True)
    )
    rows = []
    for kind, layout, dtype, way, (
        batch,
        height,
        width,
        heads,
        head_dim,
        prefix,
        extra,
    ) in itertools.product(kinds, ('adjacent', 'split'), triton_rotary.DTYPES, WAYS, SHAPES):
        rope = kinds[kind](head_dim, heads, 1, pair_layout=layout).to(CUDA)
        prefix = prefix if way == 'in place' else 0
        make = partial(rope, [0], height=height, width=width, device=CUDA, num_prefix_tokens=prefix)
        shape = (batch, height * width + prefix, 3, heads, head_dim + extra)
        qkv = torch.randn(shape, device=CUDA).to(dtype)
        errors, same = errors_of(WAYS[way], qkv, make, rope)
        bound = 2e-5 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
        rows.append(
            dict(kind=kind, layout=layout, dtype=str(dtype)[6:], way=way)
            | dict(shape='x'.join(map(str, shape)), error=max(errors), same_bits=same)
            | dict(ok=same and max(errors) <= bound)
        )
    return rows


def into_windows(form: Callable[..., list[QKV]], qkv: Tensor, rotation: Rotation) -> list[Tensor]:
    """Queries, keys and values [B, h, N, D], rotated in shifted and padded windows of 7 x 7."""
    grid = len(rotation.y), len(rotation.x)
    height, width = size = tuple(min(side, 7) for side in grid)
    shift = tuple(side // 2 for side in size)
    partition = cut_windows(
        (len(qkv), *grid), size, shift=shift, padding=window_padding(grid, size)
    )
    rotation = rotation.crop(height=height, width=width)
    of_sizes = form(qkv.unflatten(1, grid), partition, rotation, qkv[0, 0].detach())
    return [
        partition.merge([x.transpose(1, 2) for x in parts]).flatten(1, 2).transpose(1, 2)
        for parts in zip(*of_sizes, strict=True)
    ]


def plain_windows(
    qkv: Tensor, partition: Partition, rotation: Rotation, padding: Tensor
) -> list[QKV]:
    """The definition, for each size of windows."""
    parts = zip(partition.cut(qkv, padding), partition.sizes, strict=True)
    return [
        plain(part, rotation.crop(height=height, width=width)) for part, (height, width) in parts
    ]


def kernel_windows(
    qkv: Tensor, partition: Partition, rotation: Rotation, padding: Tensor
) -> list[QKV]:
    return rotate_into_windows(qkv, partition, rotation, padding, triton_rotary)


# The kernel, and the definition of the same.
WAYS = {
    'in place': (in_place(triton_rotary), plain),
    'into windows': (partial(into_windows, kernel_windows), partial(into_windows, plain_windows)),
}
# images, height, width, heads, head_dim, prefix tokens, channels that are not rotated
SHAPES = (
    (2, 32, 32, 12, 64, 1, 0),
    (1, 37, 50, 6, 64, 5, 0),
    (300, 7, 7, 3, 32, 0, 0),
    (2, 5, 3, 3, 24, 0, 8),
    (1, 64, 64, 16, 128, 0, 0),
)


def errors_of(
    way: Sequence[Callable[[Tensor, Rotation], Sequence[Tensor]]],
    qkv: Tensor,
    make: Callable[[], list[Rotation]],
    rope: torch.nn.Module,
) -> tuple[list[float], bool]:
    """Relative errors of outputs and gradients; whether a second run gives the same bits."""
    weights = torch.randn_like(qkv).permute(2, 0, 3, 1, 4)

    def run(path: Callable[[Tensor, Rotation], Sequence[Tensor]]) -> list[Tensor]:
        leaf = qkv.clone().requires_grad_()
        outs = path(leaf * 1, make()[0])
        loss = sum((out.float() * weight).sum() for out, weight in zip(outs, weights, strict=True))
        return [*outs, *torch.autograd.grad(loss, [leaf, *rope.parameters()])]

    kernel, definition = way
    first, second, expected = run(kernel), run(kernel), run(definition)
    errors = [
        ((a.double() - b.double()).norm() / b.double().norm()).item()
        for a, b in zip(first, expected, strict=True)
    ]
    return errors, all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


# ----------------------------------------------------------------------- speed


def rotation() -> list[Row]:
    """Goal: 85 % of the speed of a copy (ratio 1.18), ahead of all others."""
    rows = bench_rotate(CUDA, side=64, batch=8, dtype=BF16, rounds=30)
    rows += bench_rotate(CUDA, side=64, batch=8, kinds=('mixed',), rounds=30)
    windows = dict(side=7, batch=4096, num_heads=6, head_dim=32)
    return rows + bench_rotate(CUDA, **windows, dtype=BF16, kinds=('mixed',), rounds=30)


def vits() -> list[Row]:
    """Goal: 1.02 or less of no position, memory within 1 %."""
    settings = dict(dtype=BF16, rounds=10, names=OURS)
    rows = bench_backbone('vit', 'base', CUDA, sizes=[(512, 512)], batch=16, **settings)
    return rows + bench_backbone('vit', 'base', CUDA, sizes=[(1024, 1024)], batch=4, **settings)


def swins() -> list[Row]:
    """Goals: 1.02 or less of no position; well past 1.3 and 1.4 times as fast as mmdet."""
    settings = dict(dtype=BF16, rounds=10)
    rows = []
    for size, batch in (((512, 512), 16), ((1024, 1024), 4), ((800, 1344), 4)):
        for first in ('rope_dense, no position', 'mmdet'):
            names = list(dict.fromkeys([first, *OURS]))
            rows += bench_backbone(
                'swin', 'tiny', CUDA, sizes=[size], batch=batch, names=names, **settings
            )
    return rows


def vitdets() -> list[Row]:
    """Goal: well past 1.7 times as fast as the detectron2 form, with less than half its memory."""
    return bench_backbone(
        'vitdet',
        'base',
        CUDA,
        sizes=[(1024, 1024)],
        batch=2,
        dtype=BF16,
        rounds=10,
        names=VITDETS,
    )


def compiled() -> list[Row]:
    """Whole backbones through torch.compile(fullgraph=True), against themselves uncompiled."""
    models = {
        'vitdet base, 1024 px': (vitdet(window_size=16, rope=MIXED), 1024),
        'vit base, 512 px': (vit(rope=MIXED), 512),
        'vit base without position, 512 px': (vit(rope=None), 512),
        'swin tiny, 512 px': (swin(rope=MIXED), 512),
    }
    rows = []
    for name, (model, side) in models.items():
        model.to(CUDA)
        image = torch.randn(4, 3, side, side, device=CUDA)
        for mode in ('forward', 'both'):
            fast = torch.compile(model, fullgraph=True)
            cases = [
                Case('eager', work(model, image, mode, BF16)),
                Case('compiled', work(fast, image, mode, BF16)),
            ]
            sizes = dict(height=side, width=side, batch=4, dtype='bfloat16')
            rows += [
                dict(bench='compile', work=name, mode=mode) | sizes | row
                for row in compare(cases, CUDA, rounds=10, warmup=3)
            ]
    return rows


SECTIONS: dict[str, Callable[[], list[Row]]] = {
    'correctness': correctness,
    'rotate': rotation,
    'vit': vits,
    'swin': swins,
    'vitdet': vitdets,
    'compile': compiled,
}

if __name__ == '__main__':
    sys.exit(main())
