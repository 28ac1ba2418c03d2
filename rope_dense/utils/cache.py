"""Tensors that are the same in every call, and when they must not be cached."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

Value = TypeVar('Value')


def is_tracing() -> bool:
    """Whether operations are recorded or transformed: by torch.compile, torch.export,
    torch.jit.trace, torch.func or forward-mode differentiation. A kernel, a cache or a
    branch on a size must not be used then."""
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


class Cache(Generic[Value]):
    """The last ``capacity`` results of a function that depends on a hashable key alone.

    Safe to use from several threads. While tracing, and where tensors are fake, nothing is cached;
    a CUDA graph that is being captured takes what is in the cache and adds nothing.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.values: dict[Hashable, Value] = {}
        self.lock = Lock()

    def get(self, key: Hashable, device: torch.device, make: Callable[[], Value]) -> Value:
        """The value of ``(key, device)``, made by ``make`` if it is not in the cache."""
        if is_tracing() or type(torch.empty(0, device=device)) is not Tensor:
            return make()
        key = key, device
        value = self.values.get(key)
        if value is None:
            with torch.inference_mode(False), torch.no_grad():  # so that training can use it later
                value = make()
            if not (device.type == 'cuda' and torch.cuda.is_current_stream_capturing()):
                self.add(key, value)
        return value

    def add(self, key: Hashable, value: Value) -> None:
        with self.lock:
            self.values[key] = value
            while len(self.values) > self.capacity:
                self.values.pop(next(iter(self.values)))  # the oldest
