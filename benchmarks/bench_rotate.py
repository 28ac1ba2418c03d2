"""The rotation of queries and keys alone, against a copy of as many bytes; the making of tables."""

from __future__ import annotations

import torch
from measure import Case, Row, Run, compare, name_of
from rotations import Rotate, forms, make_rotation, others
from torch import Tensor

from rope_dense.rope.rotation import Rotation, axis_angles, unit_complex

MODES = ('forward', 'backward', 'both')
PARTS = {'forward': 2, 'backward': 3, 'both': 5}  # of q, k, v that must be read and written


def bench_rotate(
    device: torch.device,
    *,
    side: int,
    batch: int = 1,
    num_heads: int = 12,
    head_dim: int = 64,
    dtype: torch.dtype = torch.float32,
    kinds: tuple[str, ...] = ('mixed', 'axial'),
    rounds: int = 50,
) -> list[Row]:
    """Time of each form for ``side`` x ``side`` tokens, as ratio to a copy of what must move.

    Forward that is queries and keys; backward, whose result is one packed gradient, values too. The
    gradient of the frequencies is part of backward for 'mixed' in place and by the definition; the
    forms of other projects have their tables made beforehand.
    """
    qkv = torch.randn(batch, side * side, 3, num_heads, head_dim, device=device).to(dtype)
    rows = []
    for kind in kinds:
        found = forms(qkv, kind, side)
        check(found, qkv, kind, side)
        for mode in MODES:
            here = found if kind == 'mixed' or mode != 'forward' else found | others(qkv, side)
            cases = [copy_case(qkv, PARTS[mode])]
            cases += [Case(name, preparation(form, qkv, mode)) for name, form in here.items()]
            for row in compare(cases, device, rounds=rounds, warmup=3):
                moved = 2 * PARTS[mode] * qkv[:, :, 0].numel() * qkv.element_size()
                rows.append(
                    dict(bench='rotate', work=f'{kind}, {num_heads} x {head_dim}', mode=mode)
                    | dict(height=side, width=side, batch=batch, dtype=name_of(dtype))
                    | row
                    | dict(gb_per_s=moved / row['median_ms'] / 1e6)
                )
    return rows


def copy_case(qkv: Tensor, parts: int) -> Case:
    source = qkv.new_ones(parts * qkv[:, :, 0].numel())
    target = torch.empty_like(source)
    return Case('copy', lambda: lambda: target.copy_(source))


def preparation(form: Rotate, qkv: Tensor, mode: str) -> Run:
    """What ``compare`` calls before each measurement of a form."""
    grads = tuple(torch.ones_like(qkv).permute(2, 0, 3, 1, 4))

    def forward() -> Run:
        return lambda: no_grad(form, qkv)

    def backward() -> Run:
        outs = form(qkv.detach().requires_grad_())
        return lambda: torch.autograd.backward(outs, grads)

    def both() -> Run:
        leaf = qkv.detach().requires_grad_()
        return lambda: torch.autograd.backward(form(leaf), grads)

    return dict(forward=forward, backward=backward, both=both)[mode]


@torch.no_grad()
def no_grad(form: Rotate, qkv: Tensor) -> tuple[Tensor, ...]:
    return form(qkv)


@torch.no_grad()
def check(found: dict[str, Rotate], qkv: Tensor, kind: str, side: int) -> None:
    """Stop the benchmark if a form does not give the values of the definition."""
    expected = found['definition'](qkv)
    bound = 4 * torch.finfo(qkv.dtype).eps if qkv.dtype != torch.float32 else 1e-4
    for name, form in found.items():
        for a, b in zip(form(qkv.clone()), expected, strict=True):
            error = ((a - b).norm() / b.norm()).item()
            if not error <= bound:
                raise AssertionError(f'{kind}, {side} x {side}: {name} differs by {error:.2g}')


def bench_table(
    device: torch.device,
    *,
    side: int = 32,
    num_heads: int = 12,
    head_dim: int = 64,
    rounds: int = 50,
) -> list[Row]:
    """Time to make the cosines and sines of a grid: for every token, or for H + W positions."""
    rotation = make_rotation(
        'mixed', num_heads=num_heads, head_dim=head_dim, side=side, device=device
    )
    cases = [
        Case('separable, H + W sines', lambda: lambda: separable(rotation)),
        Case('direct, H x W sines', lambda: lambda: direct(rotation)),
    ]
    torch.testing.assert_close(separable(rotation), direct(rotation), atol=1e-4, rtol=0)
    sizes = dict(mode='forward', height=side, width=side, batch=1, dtype='float32')
    return [
        dict(bench='table', work=f'mixed, {num_heads} x {head_dim}') | sizes | row
        for row in compare(cases, device, rounds=rounds, warmup=3)
    ]


@torch.no_grad()
def separable(rotation: Rotation) -> Tensor:
    columns, rows = map(unit_complex, axis_angles(rotation.freqs, rotation.x, rotation.y))
    return (rows[:, None] * columns[None]).flatten(0, 1)


@torch.no_grad()
def direct(rotation: Rotation) -> Tensor:
    return unit_complex(rotation.angles())
