"""Backbones end to end: time and peak memory, forward, backward and both, ours and others'.

As a program it measures the peak memory of one model, in a process of its own:

    python benchmarks/bench_backbone.py vit base 'rope_dense, mixed' both 512 512 1 float32 2
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial

import torch
from measure import Case, Row, Run, compare, name_of, peak_memory
from peers import Builder, all_windows, swin, swin_peers, vit, vit_peers, vitdet_peers
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

MODES = ('forward', 'backward', 'both')
JOBS: dict[str, Callable[[str], dict[str, Builder]]] = {
    'vit': vit_peers,
    'vitdet': vitdet_peers,
    'swin': swin_peers,
}


def bench_backbone(
    job: str,
    arch: str,
    device: torch.device,
    *,
    sizes: Sequence[tuple[int, int]],
    modes: Sequence[str] = ('forward', 'both'),
    batch: int = 1,
    dtype: torch.dtype = torch.float32,
    rounds: int = 5,
    names: Sequence[str] | None = None,
    memory: bool = True,
) -> list[Row]:
    """Time of each model of a job at each size; ratios are to the first one.

    Args:
        job: a key of ``JOBS``.
        sizes: (height, width) in pixels.
        dtype: float32, or another for autocast (weights stay float32, as in training).
        names: of the models to take; all if None.
        memory: measure peak memory, in a process of its own for each model on a CPU.
    """
    builders = JOBS[job](arch)
    builders = {name: builders[name] for name in names or builders}
    models = {name: build().to(device) for name, build in builders.items()}
    rows = []
    for height, width in sizes:
        image = torch.randn(batch, 3, height, width, device=device)
        for mode in modes:
            cases = [Case(name, work(models[name], image, mode, dtype)) for name in models]
            measured = compare(cases, device, rounds=rounds)
            common = dict(bench='backbone', work=f'{job} {arch}', mode=mode, height=height)
            common |= dict(width=width, batch=batch, dtype=name_of(dtype))
            for row in measured:
                row['images_per_s'] = 1000 * batch / row['median_ms']
                if memory and mode != 'backward':
                    name = row['implementation']
                    row |= memory_of(job, arch, name, models[name], image, mode, dtype)
            rows += [common | row for row in measured]
    return rows


def work(model: nn.Module, image: Tensor, mode: str, dtype: torch.dtype) -> Callable[[], Run]:
    """What ``compare`` calls before each measurement of a model."""
    precision = nullcontext()
    if dtype != torch.float32:
        precision = torch.autocast(image.device.type, dtype=dtype)

    def outs() -> list[Tensor]:
        with precision:
            return outputs(model(image))

    def forward() -> Run:
        model.eval()
        return run_forward

    @torch.no_grad()
    def run_forward() -> None:
        with precision:
            model(image)

    def gradients() -> list[Tensor]:
        """Those of the outputs are given: a loss would take a part of the time."""
        model.train()
        model.zero_grad(set_to_none=True)
        if not given:
            with torch.no_grad():
                given.extend(torch.randn_like(out) for out in outs())
        return given

    def backward() -> Run:
        grads = gradients()
        return partial(torch.autograd.backward, outs(), grads)

    def both() -> Run:
        grads = gradients()
        return lambda: torch.autograd.backward(outs(), grads)

    given = []
    return dict(forward=forward, backward=backward, both=both)[mode]


def outputs(out: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [out] if isinstance(out, Tensor) else list(out)


# ---------------------------------------------------------------------- memory


def memory_of(
    job: str,
    arch: str,
    name: str,
    model: nn.Module,
    image: Tensor,
    mode: str,
    dtype: torch.dtype,
) -> Row:
    """Peak memory of one call; on a CPU in a fresh process."""
    if image.is_cuda:
        return peak_memory(work(model, image, mode, dtype), image.device)
    batch, _, height, width = image.shape
    arguments = [job, arch, name, mode, height, width, batch, name_of(dtype)]
    arguments.append(torch.get_num_threads())
    command = [sys.executable, __file__, *map(str, arguments)]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return json.loads(out.splitlines()[-1])


def main(arguments: Sequence[str]) -> None:
    job, arch, name, mode, *sizes, dtype, threads = arguments
    height, width, batch = map(int, sizes)
    torch.set_num_threads(int(threads))
    model = JOBS[job](arch)[name]()
    image = torch.randn(batch, 3, height, width)
    prepare = work(model, image, mode, getattr(torch, dtype))
    print(json.dumps(peak_memory(prepare, image.device)))


# ------------------------------------------------------------- growth with size


def bench_growth(
    device: torch.device,
    *,
    sides: Sequence[int] = (512, 1024, 2048),
    modes: Sequence[str] = ('forward', 'both'),
    dtype: torch.dtype = torch.float32,
    rounds: int = 3,
) -> list[Row]:
    """Windowed models against image size: the exponent of time over pixels, 1 for linear.

    Times are compared within a round of all sizes; the exponent is the slope of the line through
    the medians in logarithms.
    """
    models = {
        'swin tiny, mixed': swin(rope=dict(type='MixedRoPE')),
        'vit base, mixed, all blocks in windows of 16': all_windows(),
    }
    rows = []
    for name, model in models.items():
        model.to(device)
        for mode in modes:
            images = [torch.randn(1, 3, side, side, device=device) for side in sides]
            cases = [Case(name, work(model, image, mode, dtype)) for image in images]
            found = compare(cases, device, rounds=rounds)
            exponent = slope(
                [math.log(side * side) for side in sides],
                [math.log(row['median_ms']) for row in found],
            )
            rows += [
                dict(bench='growth', work=name, mode=mode, height=side, width=side, batch=1)
                | dict(dtype=name_of(dtype), exponent=exponent)
                | row
                for side, row in zip(sides, found, strict=True)
            ]
    return rows


def slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the line of least squares."""
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    products = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return products / sum((a - x_mean) ** 2 for a in x)


# ------------------------------------------------------------------ throughput


def bench_throughput(
    device: torch.device,
    *,
    arch: str = 'base',
    side: int = 224,
    batch: int = 8,
    modes: Sequence[str] = ('forward', 'both'),
    dtype: torch.dtype = torch.float32,
    rounds: int = 5,
) -> list[Row]:
    """Images per second by kind of position and of attention, the table of "Revisiting positional
    information in the era of fused attention": unfused is PyTorch's own formula in plain products.

    The bias is the decomposed one, with which fused attention still works; ratios are to fused
    attention without position.
    """
    kinds: dict[str, dict] = {
        'no position': dict(rope=None),
        'relative bias': dict(rope=None, use_rel_pos=True, rel_pos_img_size=side),
        'axial': dict(rope=dict(type='AxialRoPE')),
        'mixed': dict(rope=dict(type='MixedRoPE')),
    }
    image = torch.randn(batch, 3, side, side, device=device)
    models = {
        kind: vit(arch, with_cls_token=False, **arguments).to(device)
        for kind, arguments in kinds.items()
    }
    rows = []
    for mode in modes:
        cases = [
            Case(f'{kind}, {attention}', prepare, dict(work=f'vit {arch}, {attention}'))
            for attention, wrap in (('fused', nullcontext), ('unfused', unfused))
            for kind, prepare in (
                (kind, within(wrap, work(model, image, mode, dtype)))
                for kind, model in models.items()
            )
        ]
        for row in compare(cases, device, rounds=rounds):
            row |= dict(bench='throughput', mode=mode, height=side, width=side, batch=batch)
            row |= dict(dtype=name_of(dtype), images_per_s=1000 * batch / row['median_ms'])
            rows.append(row)
    return rows


def unfused() -> object:
    return sdpa_kernel(SDPBackend.MATH)


def within(context: Callable[[], object], prepare: Callable[[], Run]) -> Callable[[], Run]:
    """Do both the preparation and what is timed within a context."""

    def prepare_within() -> Run:
        with context():
            run = prepare()

        def run_within() -> None:
            with context():
                run()

        return run_within

    return prepare_within


if __name__ == '__main__':
    main(sys.argv[1:])
