"""Operators that torchvision has compiled, where it works for a device."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)


def deform_conv2d_arguments(x: Tensor) -> tuple:
    """Arguments of ``deform_conv2d``, made from an empty tensor."""
    shapes = (1, 1, 1, 1), (1, 1, 1, 1), (1, 2, 1, 1), (1, 1, 1, 1), (1,)
    return *map(x.new_zeros, shapes), *(1, 1, 0, 0, 1, 1), 1, 1, True


# By name in ``torch.ops.torchvision``: from an empty tensor to small arguments.
PROBES: dict[str, Callable[[Tensor], tuple]] = {
    'nms': lambda x: (x.new_zeros(1, 4), x.new_zeros(1), 0.5),
    'roi_align': lambda x: (x.new_zeros(1, 1, 1, 1), x.new_zeros(1, 5), 1.0, 1, 1, 1, True),
    '_roi_align_backward': lambda x: (
        *(x.new_zeros(1, 1, 1, 1), x.new_zeros(1, 5), 1.0),
        *(1, 1, 1, 1, 1, 1, 1, True),
    ),
    'deform_conv2d': deform_conv2d_arguments,
    '_deform_conv2d_backward': lambda x: (x.new_zeros(1, 1, 1, 1), *deform_conv2d_arguments(x)),
}


@cache
def torchvision_operator(
    name: str, device: torch.device, dtype: torch.dtype
) -> Callable[..., Any] | None:
    """The operator in ``torch.ops.torchvision``, or None where it does not run.

    torchvision is absent, is of another torch (its import fails in any way), or has no kernel for
    tensors of this device and type; the log says which.
    """
    try:
        import_module('torchvision.ops')
        operator = getattr(torch.ops.torchvision, name)
        operator(*PROBES[name](torch.empty(0, device=device, dtype=dtype)))
    except Exception as error:
        first_line = str(error).partition('\n')[0]
        logger.info(f'{name} of {dtype} on {device} without torchvision: {first_line}')
        return None
    return operator
