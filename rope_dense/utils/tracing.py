"""Modes in which operations are recorded or transformed."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def is_tracing() -> bool:
    """Return whether operations are recorded or transformed.

    By torch.compile, torch.export, torch.jit.trace, torch.func or forward-mode differentiation. A
    kernel, a cache or a branch on a size must not be used then.
    """
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )
