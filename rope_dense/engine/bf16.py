"""Mixed precision in bfloat16, on a CPU too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from mmcv.ops import MultiScaleDeformableAttention
from mmengine.optim import OptimWrapper
from mmengine.registry import OPTIM_WRAPPERS
from mmengine.runner import autocast
from torch import Tensor, nn


@OPTIM_WRAPPERS.register_module()
class BFloat16OptimWrapper(OptimWrapper):
    """Forward and loss under autocast to bfloat16; weights and optimizer stay in float32.

    bfloat16 has the range of float32, so losses are not scaled, and PyTorch has it on CPUs.
    mmengine's AmpOptimWrapper refuses a CPU and scales in any case. Deformable attention runs in
    float32: mmcv's CUDA kernel knows float16 but not bfloat16. Arguments are those of OptimWrapper.

    Raises:
        RuntimeError: a GPU without bfloat16.
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        for module in model.modules():
            if type(module) is MultiScaleDeformableAttention:
                module.__class__ = Float32DeformableAttention
        with super().optim_context(model), autocast(dtype=torch.bfloat16):
            yield


class Float32DeformableAttention(MultiScaleDeformableAttention):
    """mmcv's multi-scale deformable attention, in float32 under any autocast."""

    def forward(self, query: Tensor, *args: Tensor | None, **kwargs: Tensor | None) -> Tensor:
        with torch.autocast(query.device.type, enabled=False):
            args = tuple(in_float32(value) for value in args)
            kwargs = {name: in_float32(value) for name, value in kwargs.items()}
            return super().forward(query.float(), *args, **kwargs)


def in_float32(value: Tensor | None) -> Tensor | None:
    """A tensor of lower precision in float32; anything else as it is."""
    lower = isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.float() if lower else value
