"""A cache of tensors that are the same in every call."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from threading import Lock
from typing import Generic, TypeVar

import torch
from torch import Tensor

from .tracing import is_tracing

Value = TypeVar('Value')
MAX_BYTES = 48 * 2**20  # of all caches: NAT's plans and angles at 800 x 1333 take 27 MB


def count_bytes(value: object) -> int:
    """Bytes of the tensors in a value: a tensor, or a dataclass or tuple with tensors in it."""
    if isinstance(value, Tensor):
        return value.untyped_storage().nbytes()
    if isinstance(value, tuple):
        return sum(map(count_bytes, value))
    if is_dataclass(value):
        return sum(count_bytes(getattr(value, field.name)) for field in fields(value))
    return 0


class Budget:
    """Bytes that caches share: the oldest results of all of them are dropped.

    Args:
        max_bytes: of the tensors in the caches. A result that is larger is not cached.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.num_bytes = max_bytes, 0
        self.sizes: dict[tuple[Cache, Hashable], int] = {}
        self.lock = Lock()

    def add(self, cache: Cache, key: Hashable, value: object) -> None:
        """Put a value in a cache, unless the key is there."""
        size = cache.measure(value)
        with self.lock:
            if size > self.max_bytes or key in cache.values:
                return
            cache.values[key] = value
            self.sizes[cache, key] = size
            self.num_bytes += size
            while self.num_bytes > self.max_bytes:
                oldest, old_key = next(iter(self.sizes))
                self.num_bytes -= self.sizes.pop((oldest, old_key))
                del oldest.values[old_key]


SHARED = Budget(MAX_BYTES)


class Cache(Generic[Value]):
    """The last results of a function that depends on a hashable key alone.

    Safe to use from several threads. While tracing, and where tensors are fake, nothing is cached;
    a CUDA graph that is being captured reads the cache and adds nothing.

    Args:
        measure: the bytes of a result.
        budget: what the cache may hold, together with others.
    """

    def __init__(
        self, measure: Callable[[Value], int] = count_bytes, budget: Budget = SHARED
    ) -> None:
        self.measure, self.budget = measure, budget
        self.values: dict[Hashable, Value] = {}

    def get(self, key: Hashable, device: torch.device, make: Callable[[], Value]) -> Value:
        """Return the value of ``(key, device)``, made by ``make`` if it is not in the cache."""
        if is_tracing() or type(torch.empty(0, device=device)) is not Tensor:
            return make()
        key = key, device
        value = self.values.get(key)
        if value is None:
            with torch.inference_mode(False), torch.no_grad():  # so that training can use it later
                value = make()
            if not (device.type == 'cuda' and torch.cuda.is_current_stream_capturing()):
                self.budget.add(self, key, value)
        return value
