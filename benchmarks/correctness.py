"""The implementations of the rotation against its definition."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from measure import Row, name_of
from rope_dense.rope import Rotary
from rotations import (
    COMPLEX,
    Form,
    RotationShape,
    by,
    definition,
    kernel,
    unpack,
    why_no_triton,
)


def correctness(
    device: torch.device,
    shapes: dict[str, RotationShape],
    dtypes: Sequence[torch.dtype],
) -> list[Row]:
    """Each implementation against the definition in float64: relative errors of values and
    gradients, and whether a second run gives the same bits. The kernel's check of itself, which
    ``why_no_triton`` runs, has a row as well.

    A Triton kernel that differs is switched off for all that follows.
    """
    implementations = {'packed': COMPLEX}
    rows: list[Row] = []
    if reason := why_no_triton(device):
        needed = device.type == 'cuda'
        rows.append(
            dict(work='all', implementation='triton', left_out=reason, ok=not needed)
        )
    else:
        implementations['triton'] = kernel()
        rows.append(dict(work='check of itself', implementation='triton', ok=True))
    for (work, shape), dtype in product(shapes.items(), dtypes):
        for name, implementation in implementations.items():
            row = dict(
                work=work, dtype=name_of(dtype), batch=shape.batch, implementation=name
            )
            rows.append(row | errors(by(implementation), shape, device, dtype))
    if any(row['implementation'] == 'triton' and not row['ok'] for row in rows):
        from rope_dense.rope import rotation_triton
        from rope_dense.rope.rotation import implementation as chosen

        print(
            f'The Triton kernel cannot be used: {rotation_triton.SWITCH}=0 from here on'
        )
        rotation_triton.IS_ENABLED = False
        chosen.cache_clear()
        os.environ[rotation_triton.SWITCH] = '0'  # for other processes
    return rows


def errors(
    form: Form, shape: RotationShape, device: torch.device, dtype: torch.dtype
) -> Row:
    """Those of one implementation, for angles that have a gradient."""
    qkv, angles = shape.qkv(device, dtype), shape.rotary(device).angles
    grads = unpack(torch.randn_like(qkv))

    def run(form: Form, dtype: torch.dtype) -> list[Tensor]:
        leaves = [
            qkv.to(dtype, copy=True).requires_grad_(),
            angles.to(
                torch.promote_types(dtype, torch.float32), copy=True
            ).requires_grad_(),
        ]
        outs = form(
            leaves[0], Rotary(leaves[1], shape.pair_layout), shape.num_prefix_tokens
        )
        leaf_grads = torch.autograd.grad(
            outs, leaves, [grad.to(dtype) for grad in grads]
        )
        return [torch.stack(outs).detach(), *leaf_grads]

    first, second, expected = (
        run(form, dtype),
        run(form, dtype),
        run(definition, torch.float64),
    )
    differences = list(map(relative_error, first, expected))
    same = all(map(torch.equal, first, second))
    bound = 1e-5 if dtype == torch.float32 else torch.finfo(dtype).eps
    ok = same and all(difference <= bound for difference in differences)
    columns = 'values', 'grad_qkv', 'grad_angles'
    return dict(zip(columns, differences, strict=True)) | dict(same_bits=same, ok=ok)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Norm of the difference over that of ``expected``."""
    actual, expected = actual.double(), expected.double()
    return ((actual - expected).norm() / expected.norm()).item()
