"""fast-rope: the rotation of one tensor, eager, compiled and fused, at the sizes of Tables 6 and 7
of "Revisiting Positional Information in Transformers in the Era of Fused Attention"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from itertools import product
from statistics import mean

import torch
from torch import Tensor

from measure import Case, Row, compare, name_of
from rope_dense.rope import apply_rotary

K_ROPE = 2
TOLERANCES = {
    torch.float32: 1e-5,
    torch.bfloat16: 0.01,
    torch.float16: 1e-3,
}  # relative
COMPARISONS = (('compiled', 'eager'), ('fused', 'eager'), ('fused', 'compiled'))


@dataclass(frozen=True)
class Size:
    """Queries of an attention: images, heads, the side of their square grid, channels of a head."""

    batch: int
    heads: int
    side: int
    channels: int

    @property
    def values(self) -> int:
        return self.batch * self.heads * self.side**2 * self.channels

    def __str__(self) -> str:
        return f'{self.batch} x {self.heads} x {self.side}^2 x {self.channels}'


PAPER_SIZES = [
    Size(*size)
    for size in product(
        (1, 16, 32, 64, 128), (1, 3, 4, 6, 8), (56, 28, 14, 7), (32, 64, 128)
    )
]
# For a CPU, where the large ones take minutes each: every sixth of those up to 1 Mi values.
SAMPLE = [size for size in PAPER_SIZES if size.values <= 2**20][::6]


def eager(x: Tensor, theta: Tensor) -> Tensor:
    """The rotation in plain operations, in float32."""
    pairs = theta.shape[-1]
    a, b, rest = x.split([pairs, pairs, x.shape[-1] - 2 * pairs], -1)
    a, b, theta = a.float(), b.float(), theta.float()
    cos, sin = theta.cos(), theta.sin()
    rotated = torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)
    return torch.cat([rotated, rest], -1)


def bench_apply_rotary(
    device: torch.device,
    *,
    dtype: torch.dtype = torch.float32,
    sizes: Sequence[Size] | None = None,
    rounds: int = 10,
    with_compiled: bool = True,
) -> list[Row]:
    """Time of a call without gradients; rows for each size, and a summary.

    Args:
        dtype: of the features; angles are in the same, and in float32.
        sizes: all of the paper's if None, on a CPU ``SAMPLE``.
        with_compiled: also through torch.compile.
    """
    if sizes is None:
        sizes = SAMPLE if device.type == 'cpu' else PAPER_SIZES
    rows = []
    for theta_dtype in dict.fromkeys((dtype, torch.float32)):
        torch.compiler.reset()
        forms = dict(eager=eager, compiled=torch.compile(eager), fused=apply_rotary)
        if not with_compiled:
            del forms['compiled']
        precision = f'{name_of(dtype)}, angles in {name_of(theta_dtype)}'
        common = dict(
            bench='fast-rope', work=precision, mode='forward', dtype=name_of(dtype)
        )
        of_precision = [
            row | common
            for size in sizes
            for row in bench_size(size, forms, device, dtype, theta_dtype, rounds)
        ]
        number = f'{len(sizes)} of {len(PAPER_SIZES)} sizes'
        common['bench'] = f'fast-rope, gain in percent over {number}'
        rows += of_precision + [row | common for row in summary(of_precision)]
    return rows


@torch.no_grad()
def bench_size(
    size: Size,
    forms: dict[str, Callable[[Tensor, Tensor], Tensor]],
    device: torch.device,
    dtype: torch.dtype,
    theta_dtype: torch.dtype,
    rounds: int,
) -> list[Row]:
    batch, heads, side, channels = astuple(size)
    x = torch.randn(batch, heads, side**2, channels, device=device, dtype=dtype)
    theta = torch.randn(
        heads, side**2, channels // K_ROPE // 2, device=device, dtype=theta_dtype
    )
    expected = eager(x, theta).float()
    for name, form in forms.items():
        error = float(
            (form(x.clone(), theta).float() - expected).norm() / expected.norm()
        )
        if not error <= TOLERANCES[dtype]:
            raise AssertionError(f'{size}: {name} differs by {error:.2g}')
    cases = [
        Case(name, lambda form=form: lambda: form(x, theta), dict(size=str(size)))
        for name, form in forms.items()
    ]
    return compare(cases, device, rounds=rounds, warmup=2, hide_launches=True)


def summary(rows: Sequence[Row]) -> list[Row]:
    """The paper's Table 6: mean, least and largest gain in speed over all sizes, in percent."""
    times: dict[str, dict[str, float]] = {}
    for row in rows:
        times.setdefault(row['implementation'], {})[row['size']] = row['median_ms']
    found = []
    for fast, slow in COMPARISONS:
        if fast in times and slow in times:
            gains = [
                100 * (times[slow][size] / times[fast][size] - 1)
                for size in times[fast]
            ]
            row = dict(implementation=f'{fast} over {slow}', mean_percent=mean(gains))
            found.append(
                row | dict(least_percent=min(gains), largest_percent=max(gains))
            )
    return found
