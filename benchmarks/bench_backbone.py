"""Backbones end to end: time and peak memory, forward, backward and both, ours and others'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from measure import (
    Case,
    Clock,
    Row,
    Run,
    in_new_process,
    name_of,
    peak_memory,
    quantiles,
    summary,
    time_rounds,
)
from peers import Builder, dinov3_peers, swin_peers, vit_peers, vitdet_peers, why_not
from rope_dense.measure.speed import profile_call

JOBS: dict[str, Callable[[str], dict[str, Builder]]] = {
    'vit': vit_peers,
    'dinov3': dinov3_peers,
    'vitdet': vitdet_peers,
    'swin': swin_peers,
}
SHARES = ('rotation', 'windows', 'attention')  # of the kinds that ``profile_call`` has
OURS = ('rope_dense, no position', 'rope_dense, axial', 'rope_dense, mixed')


@dataclass(frozen=True)
class Setting:
    """A task for models: one image size, one mode."""

    job: str
    arch: str
    mode: str
    height: int
    width: int
    batch: int
    dtype: torch.dtype
    device: torch.device
    compiled: bool = False

    def columns(self) -> Row:
        sizes = dict(
            mode=self.mode, height=self.height, width=self.width, batch=self.batch
        )
        work = f'{self.job} {self.arch}' + ', compiled' * self.compiled
        return dict(work=work, **sizes, dtype=name_of(self.dtype))

    def model(self, name: str) -> nn.Module:
        """The model that the job has under ``name``; its random weights are made on the device."""
        with self.device:
            model = JOBS[self.job](self.arch)[name]().to(self.device)
        return torch.compile(model, dynamic=False) if self.compiled else model

    def prepare(self, model: nn.Module) -> Callable[[], Run]:
        """Prepare a measurement, for ``compare``."""
        image = torch.randn(self.batch, 3, self.height, self.width, device=self.device)
        return work(model, image, self.mode, self.dtype)


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
    compiled: bool = False,
) -> list[Row]:
    """Time of each model of a job at each size; ratios are to the first one.

    Args:
        job: a key of ``JOBS``.
        sizes: (height, width) in pixels.
        dtype: float32, or another for autocast (weights stay float32, as in training).
        rounds: of each process.
        processes: new processes to measure in, one after the other; 0 for this process.
        names: of the models to take; all if None. A model whose package is not installed gets a
            row with the reason.
        memory: measure peak memory, in a new process for each model unless ``processes`` is 0.
        compiled: whole models through ``torch.compile``, for one size.
    """
    call = in_new_process if processes else in_this_process
    missing = {name: why_not(name) for name in names or JOBS[job](arch)}
    names = [name for name, reason in missing.items() if reason is None]
    rows = []
    for height, width in sizes:
        for mode in modes:
            setting = Setting(
                job, arch, mode, height, width, batch, dtype, device, compiled
            )
            common = dict(bench='backbone', **setting.columns())
            times: list[list[float]] = [[] for _ in names]
            for _ in range(max(1, processes)):
                new = call(seconds, setting, names, rounds)
                times = [
                    before + after for before, after in zip(times, new, strict=True)
                ]
            for row in summary(names, times):
                row['images_per_s'] = 1000 * batch / row['median_ms']
                if memory and mode != 'backward':
                    row |= call(peak, setting, row['implementation'])
                rows.append(common | row)
            for name, reason in missing.items():
                if reason is not None:
                    rows.append(common | dict(implementation=name, left_out=reason))
    return rows


def in_this_process(function: Callable[..., object], *arguments: object) -> object:
    return function(*arguments)


def seconds(setting: Setting, names: Sequence[str], rounds: int) -> list[list[float]]:
    """Of each model in each round."""
    cases = [Case(name, setting.prepare(setting.model(name))) for name in names]
    return time_rounds(
        cases, Clock(setting.device), rounds=rounds, warmup=2
    )  # one is too few


def peak(setting: Setting, name: str) -> Row:
    """Peak memory of one call."""
    return peak_memory(setting.prepare(setting.model(name)), setting.device)


# ----------------------------------------------------------------------- share


def bench_share(
    device: torch.device,
    *,
    sizes: dict[tuple[str, str], Sequence[int]],
    names: Sequence[str] = OURS,
    modes: Sequence[str] = ('forward', 'both'),
    dtype: torch.dtype = torch.float32,
    rounds: int = 3,
) -> list[Row]:
    """Shares of rotation, windows and attention in the time of a model, in percent, by PyTorch's
    profiler.

    Steadier than a ratio of times: each call is compared with itself. Small operations look longer
    than they are.

    Args:
        sizes: sides of square images, for each job and architecture.
        rounds: calls after one to warm up.
    """
    rows = []
    for (job, arch), sides in sizes.items():
        for side in sides:
            for mode in modes:
                setting = Setting(job, arch, mode, side, side, 1, dtype, device)
                for name in names:
                    common = dict(
                        bench='share', **setting.columns(), implementation=name
                    )
                    for kind, percents in shares(setting, name, rounds).items():
                        rows.append(
                            common | dict(kind=kind) | quantiles('_percent', percents)
                        )
    return rows


def shares(setting: Setting, name: str, rounds: int) -> dict[str, list[float]]:
    """Percent of the time of each call, by kind."""
    model = setting.model(name)
    prepare = setting.prepare(model)
    prepare()()
    calls = [profile_call(model, prepare())[0] for _ in range(rounds)]
    return {kind: [100 * share[kind] for share in calls] for kind in SHARES}


# ------------------------------------------------------------------------ work


def work(
    model: nn.Module, image: Tensor, mode: str, dtype: torch.dtype
) -> Callable[[], Run]:
    """Prepare a measurement of a model, for ``compare``."""
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


# --------------------------------------------------------------------- context


def within(
    context: Callable[[], object], prepare: Callable[[], Run]
) -> Callable[[], Run]:
    """Do both the preparation and what is timed within a context."""

    def prepare_within() -> Run:
        with context():
            run = prepare()

        def run_within() -> None:
            with context():
                run()

        return run_within

    return prepare_within
