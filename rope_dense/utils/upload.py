"""Arrays that are made on the host and sent to a device at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from .memo import is_tracing

DTYPES = {
    np.dtype(bool): torch.bool,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
}


def can_upload() -> bool:
    """Return whether tensors may be made of arrays now.

    Not while tracing or with fake tensors, where sizes have no values, and not while a CUDA graph
    is captured, whose replays would read the memory of the host again.
    """
    if is_tracing() or type(torch.empty(0)) is not Tensor:
        return False
    return not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def upload(arrays: Mapping[str, np.ndarray], device: torch.device) -> dict[str, Tensor]:
    """Copy arrays to a device, in one copy that the host does not wait for.

    Args:
        arrays: of any shapes, and a type of ``DTYPES``.
        device: of the results, which share their memory.
    """
    names = sorted(arrays, key=lambda name: -arrays[name].itemsize)  # so that each is aligned
    sizes = [arrays[name].nbytes for name in names]
    pinned = device.type == 'cuda' and torch.cuda.is_available()
    host = torch.empty(sum(sizes), dtype=torch.uint8, device='cpu', pin_memory=pinned)
    for name, piece in zip(names, host.split(sizes), strict=True):
        piece.numpy()[:] = np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8)
    pieces = zip(names, host.to(device, non_blocking=True).split(sizes), strict=True)
    return {
        name: piece.view(DTYPES[arrays[name].dtype]).view(arrays[name].shape)
        for name, piece in pieces
    }
