"""Backbones end to end: time and peak memory, forward, backward and both, ours and others'."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from measure import (
    Case,
    Row,
    Run,
    compare,
    in_new_process,
    in_turns,
    name_of,
    peak_memory,
    percent_of,
    quantiles,
    summary,
)
from peers import Builder, all_windows, swin, swin_peers, vit, vit_peers, vitdet_peers
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

MODES = ('forward', 'backward', 'both')
JOBS: dict[str, Callable[[str], dict[str, Builder]]] = {
    'vit': vit_peers,
    'vitdet': vitdet_peers,
    'swin': swin_peers,
}


@dataclass(frozen=True)
class Setting:
    """What the models of a job are to do: one image size, one mode."""

    job: str
    arch: str
    mode: str
    height: int
    width: int
    batch: int
    dtype: torch.dtype
    device: torch.device

    def case(self, name: str) -> Case:
        """That of the model which the job has under ``name``."""
        model = JOBS[self.job](self.arch)[name]().to(self.device)
        image = torch.randn(self.batch, 3, self.height, self.width, device=self.device)
        return Case(name, work(model, image, self.mode, self.dtype))


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
    processes: int = 1,
    names: Sequence[str] | None = None,
    memory: bool = True,
) -> list[Row]:
    """Time of each model of a job at each size; ratios are to the first one.

    Args:
        job: a key of ``JOBS``.
        sizes: (height, width) in pixels.
        dtype: float32, or another for autocast (weights stay float32, as in training).
        rounds: of each process.
        processes: one after the other; on a CPU. On a GPU all is in this process.
        names: of the models to take; all if None.
        memory: measure peak memory, in a process of its own for each model on a CPU.
    """
    on_cpu = device.type == 'cpu'
    names = list(names or JOBS[job](arch))
    rows = []
    for height, width in sizes:
        for mode in modes:
            setting = Setting(job, arch, mode, height, width, batch, dtype, device)
            times: list[list[float]] = [[] for _ in names]
            for _ in range(processes if on_cpu else 1):
                arguments = setting, names, rounds
                found = in_new_process(seconds, *arguments) if on_cpu else seconds(*arguments)
                times = [before + new for before, new in zip(times, found, strict=True)]
            common = dict(bench='backbone', work=f'{job} {arch}', mode=mode, height=height)
            common |= dict(width=width, batch=batch, dtype=name_of(dtype))
            for row in summary(names, times):
                row['images_per_s'] = 1000 * batch / row['median_ms']
                if memory and mode != 'backward':
                    arguments = setting, row['implementation']
                    row |= in_new_process(peak, *arguments) if on_cpu else peak(*arguments)
                rows.append(common | row)
    return rows


def seconds(setting: Setting, names: Sequence[str], rounds: int) -> list[list[float]]:
    """Of each model in each round."""
    cases = [setting.case(name) for name in names]
    return in_turns(cases, setting.device, rounds=rounds, warmup=2)  # once is not enough


def peak(setting: Setting, name: str) -> Row:
    """Peak memory of one call."""
    return peak_memory(setting.case(name).prepare, setting.device)


ROTATION = ('RotateInPlace', 'RotateIntoWindows', 'IntoWindows')  # the last turns nothing


def bench_share(
    device: torch.device,
    *,
    sizes: dict[tuple[str, str], Sequence[int]],
    names: Sequence[str],
    modes: Sequence[str] = ('forward', 'both'),
    dtype: torch.dtype = torch.float32,
    rounds: int = 3,
) -> list[Row]:
    """What rotating and cutting into windows takes of the time of a model, in percent.

    Steadier than a ratio of times: each call is compared with itself. The sines of rows and columns
    are not counted.

    Args:
        sizes: sides of square images, for each job and architecture.
        rounds: calls after one to warm up, in one process for each model.
    """
    rows = []
    for (job, arch), sides in sizes.items():
        for side in sides:
            for mode in modes:
                setting = Setting(job, arch, mode, side, side, 1, dtype, device)
                common = dict(bench='share', work=f'{job} {arch}', mode=mode, height=side)
                common |= dict(width=side, batch=1, dtype=name_of(dtype))
                for name in names:
                    arguments = setting, name, rounds
                    on_cpu = device.type == 'cpu'
                    found = in_new_process(shares, *arguments) if on_cpu else shares(*arguments)
                    rows.append(common | dict(implementation=name) | quantiles('_percent', found))
    return rows


def shares(setting: Setting, name: str, rounds: int) -> list[float]:
    """Percent of the time of each call."""
    prepare = setting.case(name).prepare
    prepare()()
    operations = [*ROTATION, *(f'{operation}Backward' for operation in ROTATION)]
    return [percent_of(prepare, setting.device, operations) for _ in range(rounds)]


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
