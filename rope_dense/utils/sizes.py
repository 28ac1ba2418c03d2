"""Sizes are (height, width), and arithmetic with sides that are numbers, symbols or tensors."""

from typing import TypeVar

import torch
from torch import Tensor

Size = tuple[int, int]  # in tokens
ImageSize = tuple[int, int]  # in pixels
Number = TypeVar('Number', int, float)


def larger(a: Number, b: Number) -> Number:
    """Return the larger of two numbers, without a branch, which would fix sizes in a traced model.

    Sizes are symbols in torch.export, and tensors in torch.jit.trace, which ``torch.sym_max`` does
    not take.
    """
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return torch.maximum(torch.as_tensor(a), torch.as_tensor(b))
    return torch.sym_max(a, b)


def smaller(a: Number, b: Number) -> Number:
    """Return the smaller of two numbers, see ``larger``."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return torch.minimum(torch.as_tensor(a), torch.as_tensor(b))
    return torch.sym_min(a, b)
