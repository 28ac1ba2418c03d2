"""Backbones on the GPU against the same weights on the CPU, maps and gradients."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bench_backbone import outputs
from correctness import relative_error
from measure import Row, name_of
from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT

LARGEST = 1536  # channels: wider ones take long on a CPU and compute nothing else
BOUNDS = {torch.float32: 1e-4, torch.bfloat16: 5e-2}  # relative; bf16 against float32
SIZE = (112, 144)  # no multiple of any window


def architectures() -> list[tuple[type[nn.Module], str]]:
    """All named architectures of up to ``LARGEST`` channels."""
    classes = (RoPEViT, RoPESwin, RoPENAT)
    named = [(cls, name, arch) for cls in classes for name, arch in cls.ARCHS.items()]
    return [(cls, name) for cls, name, arch in named if arch['embed_dims'] <= LARGEST]


def shallow(cls: type[nn.Module], name: str) -> nn.Module:
    """A named architecture with two blocks in each stage."""
    arch = dict(cls.ARCHS[name])
    if cls is RoPEViT:
        arch['depth'] = 2
        if arch.get('window_block_indexes'):
            arch['window_block_indexes'] = (0,)
        return cls(arch, out_indices=(1,), drop_path_rate=0.0)
    arch['depths'] = (2,) * len(arch['depths'])
    return cls(arch, drop_path_rate=0.0)


def parity(
    device: torch.device,
    *,
    names: Sequence[tuple[type[nn.Module], str]],
    size: tuple[int, int],
) -> list[Row]:
    """A row for each architecture and precision: relative errors of maps and gradients.

    In evaluation mode (training draws coordinates of some, differently on a GPU), and without TF32,
    which PyTorch allows in convolutions.
    """
    rows = []
    for cls, name in names:
        torch.manual_seed(0)
        model, image = shallow(cls, name).eval(), torch.randn(1, 3, *size)
        for parameter in model.parameters():  # zeros at the start would hide a branch
            nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.02)
        on_gpu = copy.deepcopy(model).to(device)
        expected = run(model, image, torch.float32)
        for dtype, bound in BOUNDS.items():
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                actual = run(on_gpu, image.to(device), dtype)
            maps, grads = map(largest, actual, expected)
            row = dict(implementation=f'{cls.__name__}, {name}', dtype=name_of(dtype))
            ok = maps <= bound and grads <= (1 if dtype == torch.float32 else 2) * bound
            rows.append(row | dict(values=maps, gradients=grads, ok=ok))
    return rows


def largest(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Relative error of the worst tensor."""
    return max(
        relative_error(a.cpu(), b) for a, b in zip(actual, expected, strict=True)
    )


def run(
    model: nn.Module, image: Tensor, dtype: torch.dtype
) -> tuple[list[Tensor], list[Tensor]]:
    """Maps, and the gradients of all parameters that have one, together."""
    model.zero_grad(set_to_none=True)
    with torch.autocast(image.device.type, dtype, enabled=dtype != torch.float32):
        maps = outputs(model(image))
    sum(x.float().square().mean() for x in maps).backward()
    grads = [p.grad.float().flatten() for p in model.parameters() if p.grad is not None]
    return [x.float().detach() for x in maps], [torch.cat(grads)]
