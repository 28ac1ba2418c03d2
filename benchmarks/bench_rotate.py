"""The rotation of queries and keys: alone, against a copy, and within attention, against none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import torch
import torch.nn.functional as F
from torch import Tensor

from measure import Case, Row, Run, compare, name_of
from rope_dense.rope import Rotary
from rotations import Form, RotationShape, forms, none, unpack

MODES = ('forward', 'backward', 'both')
COPIES = {
    'forward': 1,
    'backward': 1,
    'both': 2,
}  # of the projection that a mode has to write
TOLERANCES = {
    torch.float32: 1e-4,
    torch.bfloat16: 0.02,
    torch.float16: 2e-3,
}  # relative


def bench_rotate(
    device: torch.device,
    *,
    work: str,
    shape: RotationShape,
    attention: bool = False,
    modes: tuple[str, ...] = MODES,
    dtype: torch.dtype = torch.float32,
    rounds: int = 50,
    names: tuple[str, ...] | None = None,
) -> list[Row]:
    """Time of each form, from the angles on.

    Learned angles have a gradient, and their cosines and sines are made in each call; those of
    fixed angles are made before, as in a model. Ratios are to a copy of the projection (backward:
    of its gradient), with ``attention`` to attention without rotation.

    Args:
        work: name of the shape.
        attention: time ``scaled_dot_product_attention`` as well.
        names: of the forms to take; all if None.
    """
    torch.compiler.reset()
    by_name = {
        name: form
        for name, form in forms(device, shape.pair_layout).items()
        if (names is None or name in names)
        and (
            name != 'flash-attention' or shape.kind == 'axial'
        )  # one angle for all heads
    }
    qkv, rotary = shape.qkv(device, dtype), shape.rotary(device)
    check(by_name, qkv, rotary, shape)
    rows = []
    for mode in modes:
        if attention:
            cases = [
                Case('none', preparation(none, qkv, rotary, shape, mode, attention))
            ]
        else:
            cases = [copy_case(qkv, mode)]
        for name, form in by_name.items():
            cases.append(
                Case(name, preparation(form, qkv, rotary, shape, mode, attention))
            )
        for row in compare(cases, device, rounds=rounds, warmup=3, hide_launches=True):
            row |= dict(height=shape.grid[0], width=shape.grid[1], batch=shape.batch)
            row |= dict(
                bench='rotate and attend' if attention else 'rotate',
                work=work,
                mode=mode,
            )
            row |= dict(dtype=name_of(dtype))
            if not attention:
                moved = 2 * COPIES[mode] * qkv.numel() * qkv.element_size()
                row |= dict(gb_per_s=moved / row['median_ms'] / 1e6)
            rows.append(row)
    return rows


def copy_case(qkv: Tensor, mode: str) -> Case:
    """The least that must be read and written."""
    return Case('copy', lambda: lambda: [qkv.clone() for _ in range(COPIES[mode])])


def preparation(
    form: Form,
    qkv: Tensor,
    rotary: Rotary,
    shape: RotationShape,
    mode: str,
    attention: bool,
) -> Callable[[], Run]:
    """Prepare a measurement of a form, for ``compare``."""

    def outs(qkv: Tensor, rotary: Rotary) -> tuple[Tensor, ...]:
        q, k, v = form(qkv, rotary, shape.num_prefix_tokens)
        return (F.scaled_dot_product_attention(q, k, v),) if attention else (q, k, v)

    grads = unpack(torch.randn_like(qkv))
    if (
        attention
    ):  # of the layout that a model gives, see "An illegal memory access" in README.md
        grads = (torch.randn_like(qkv[:, :, 0]).transpose(1, 2),)

    @torch.no_grad()
    def run_forward() -> None:
        outs(qkv, given(rotary, shape))

    def forward() -> Run:
        return run_forward

    def backward() -> Run:
        results = outs(qkv.detach().requires_grad_(), given(rotary, shape))
        return lambda: torch.autograd.backward(results, grads)

    def both() -> Run:
        leaf = qkv.detach().requires_grad_()
        return lambda: torch.autograd.backward(outs(leaf, given(rotary, shape)), grads)

    return dict(forward=forward, backward=backward, both=both)[mode]


def given(rotary: Rotary, shape: RotationShape) -> Rotary:
    """The rotary argument of a call: the same object, or new angles with a gradient."""
    if shape.kind == 'axial':
        return rotary
    return Rotary(rotary.angles.detach().requires_grad_(), rotary.pair_layout)


@torch.no_grad()
def check(
    by_name: dict[str, Form], qkv: Tensor, rotary: Rotary, shape: RotationShape
) -> None:
    """Stop the benchmark if a form does not give the values of the definition."""
    arguments = qkv, rotary, shape.num_prefix_tokens
    expected = forms(qkv.device, shape.pair_layout)['definition'](*arguments)
    for name, form in by_name.items():
        for a, b in zip(form(*arguments), expected, strict=True):
            error = ((a.float() - b.float()).norm() / b.float().norm()).item()
            if not error <= TOLERANCES[qkv.dtype]:
                raise AssertionError(f'{asdict(shape)}: {name} differs by {error:.2g}')
