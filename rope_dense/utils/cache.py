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
MAX_BYTES = 64 * 2**20  # of a cache: five plans of the largest maps that detectors have


def count_bytes(value: object) -> int:
    """Bytes of the tensors in a value: a tensor, or a dataclass or tuple with tensors in it."""
    if isinstance(value, Tensor):
        return value.untyped_storage().nbytes()
    if isinstance(value, tuple):
        return sum(map(count_bytes, value))
    if is_dataclass(value):
        return sum(count_bytes(getattr(value, field.name)) for field in fields(value))
    return 0


class Cache(Generic[Value]):
    """The last results of a function that depends on a hashable key alone.

    Safe to use from several threads. While tracing, and where tensors are fake, nothing is cached;
    a CUDA graph that is being captured reads the cache and adds nothing.

    Args:
        max_bytes: of the tensors in the cache. The oldest results are dropped; a result that is
            larger is not cached.
        measure: the bytes of a result.
    """

    def __init__(
        self, max_bytes: int = MAX_BYTES, measure: Callable[[Value], int] = count_bytes
    ) -> None:
        self.max_bytes, self.measure = max_bytes, measure
        self.num_bytes = 0
        self.values: dict[Hashable, Value] = {}
        self.lock = Lock()

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
                self.add(key, value)
        return value

    def add(self, key: Hashable, value: Value) -> None:
        """Add a value unless the key is there, and drop the oldest ones beyond ``max_bytes``."""
        size = self.measure(value)
        with self.lock:
            if size > self.max_bytes or key in self.values:
                return
            self.values[key] = value
            self.num_bytes += size
            while self.num_bytes > self.max_bytes:
                oldest = self.values.pop(next(iter(self.values)))
                self.num_bytes -= self.measure(oldest)
