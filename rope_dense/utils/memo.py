"""Results of pure functions that are the same in every call, and when they must not be used."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from functools import wraps
from threading import Lock
from typing import ParamSpec, TypeVar

import torch
from cachetools import LRUCache
from torch import Tensor
from torch.autograd import forward_ad

Args = ParamSpec('Args')
Value = TypeVar('Value')
MAX_BYTES = 48 * 2**20  # of all results: NAT's plans and angles at 800 x 1333 take 27 MB


def count_bytes(value: object) -> int:
    """Bytes of the tensors in a value: a tensor, or a dataclass or tuple with tensors in it.

    Memory that tensors share counts once.
    """
    own = getattr(value, 'nbytes', None) if is_dataclass(value) else None
    return sum(storages(value).values()) if own is None else own


def storages(value: object) -> dict[int, int]:
    """The identities and bytes of the storages of the tensors in a value."""
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        return {storage._cdata: storage.nbytes()}
    parts = value if isinstance(value, tuple) else ()
    if is_dataclass(value):
        parts = tuple(getattr(value, field.name) for field in fields(value))
    return {key: size for part in parts for key, size in storages(part).items()}


RESULTS: LRUCache[Hashable, object] = LRUCache(MAX_BYTES, getsizeof=count_bytes)
LOCK = Lock()


def memo(function: Callable[Args, Value]) -> Callable[Args, Value]:
    """Remember the last results of a pure function; all functions share ``MAX_BYTES``.

    All its arguments are hashable; ``device``, by keyword, is where its tensors are. Safe to use
    from several threads, and from several CUDA streams, each of which has results of its own. While
    tracing and on devices without values (fake tensors) nothing is remembered, and while a CUDA
    graph is captured nothing is added.
    """

    @wraps(function)
    def remembered(*args: Args.args, **kwargs: Args.kwargs) -> Value:
        device = kwargs['device']
        if is_tracing() or type(torch.empty(0, device=device)) is not Tensor:  # type: ignore[call-overload]
            return function(*args, **kwargs)
        key = function, args, *kwargs.items(), stream_of(device)
        with LOCK:
            value = RESULTS.get(key)
        if value is None:
            with torch.inference_mode(False), torch.no_grad():  # so that training can use it later
                value = function(*args, **kwargs)
            capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
            if not capturing and count_bytes(value) <= MAX_BYTES:
                with LOCK:
                    value = RESULTS.setdefault(key, value)
        return value  # type: ignore[return-value]

    return remembered


def stream_of(device: object) -> int | None:
    """The CUDA stream that operations on a device are added to; None where there is none.

    A result that another stream computes may not be there yet.
    """
    place = torch.device(device)  # type: ignore[call-overload]
    if place.type != 'cuda' or not torch.cuda.is_initialized():
        return None
    return torch.cuda.current_stream(place).cuda_stream


def is_tracing() -> bool:
    """Return whether operations are recorded or transformed, rather than run as they are written.

    By torch.compile, torch.export, torch.jit.trace, torch.func (vmap, grad) or forward-mode
    differentiation. A kernel, a remembered result or a branch on a size must not be used then.
    """
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )
