"""Results of pure functions that are the same in every call, and when they must not be used."""

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar
from weakref import ref

import torch
from cachetools import LRUCache
from torch import Tensor
from torch.autograd import forward_ad

Args = ParamSpec('Args')
Value = TypeVar('Value')
Function = TypeVar('Function', bound=Callable)
# Of all results: NAT's plans and angles at 800 x 1333 take 27 MB.
MAX_BYTES = 48 * 2**20


def count_bytes(value: object) -> int:
    """Bytes of the tensors in a value: a tensor, or a dataclass or tuple with tensors in it.

    Memory that tensors share counts once. A dataclass may tell by ``nbytes``.
    """
    if is_dataclass(value) and hasattr(value, 'nbytes'):
        return value.nbytes
    sizes, rest = {}, [value]  # bytes by storage, and parts to count
    while rest:
        part = rest.pop()
        if isinstance(part, Tensor):
            storage = part.untyped_storage()
            sizes[storage._cdata] = storage.nbytes()
        elif is_dataclass(part):
            rest += [getattr(part, field.name) for field in fields(part)]
        elif isinstance(part, tuple):
            rest += part
    return sum(sizes.values())


RESULTS: LRUCache[Hashable, object] = LRUCache(MAX_BYTES, getsizeof=count_bytes)
LOCK = Lock()
# As Triton and torch.compile ask for it: one call, where torch.cuda.current_stream makes a dozen.
raw_stream: Any = getattr(torch._C, '_cuda_getCurrentRawStream', None)  # None: no CUDA
ON_HOST: set[Callable] = set()  # see ``on_host``


def memo(function: Callable[Args, Value]) -> Callable[Args, Value]:
    """Remember the last results of a pure function; all functions share ``MAX_BYTES``.

    All its arguments are hashable; ``device``, by keyword, is where its tensors are. Safe to use
    from several threads, and from several CUDA streams, each of which has results of its own: what
    another stream computes may not be there yet. While tracing and on devices without values (fake
    tensors) nothing is remembered, and while a CUDA graph is captured nothing is added.
    """

    @wraps(function)
    def remembered(*args: Args.args, **kwargs: Args.kwargs) -> Value:
        device: torch.device = kwargs['device']  # type: ignore[assignment]
        if is_tracing() or type(torch.empty(0, device=device)) is not Tensor:
            return function(*args, **kwargs)
        stream = None if device.type == 'cpu' else stream_of(device)
        capturing = stream is not None and torch.cuda.is_current_stream_capturing()
        key = function, args, *kwargs.items(), stream
        with LOCK:
            value = RESULTS.get(key)
        if value is None:
            # So that training can use it later.
            with torch.inference_mode(False), torch.no_grad():
                if function in ON_HOST and device.type != 'cpu' and not capturing:
                    host: Any = {**kwargs, 'device': torch.device('cpu')}
                    value = send_to_device(function(*args, **host), device)
                else:
                    value = function(*args, **kwargs)
            if not capturing and count_bytes(value) <= MAX_BYTES:
                with LOCK:
                    value = RESULTS.setdefault(key, value)
        return value  # type: ignore[return-value]

    return remembered


def stream_of(device: torch.device) -> int | None:
    """The stream of a GPU that work is added to; None elsewhere."""
    if device.type != 'cuda' or not torch.cuda.is_initialized():
        return None
    index = device.index
    return raw_stream(torch.cuda.current_device() if index is None else index)


class LastResult:
    """What ``memo`` remembered for the last call of one caller, for callers that repeat a call.

    The arguments are compared, and not hashed: little Python runs for those that are the same
    objects. A result is found as long as ``memo``, or anybody, has it. A copy has no last result.
    """

    def __init__(self) -> None:
        self.entry: tuple[Any, Any] = (None, None)  # arguments, weak reference

    def __call__(
        self, function: Callable[..., Value], *args: Any, **kwargs: Any
    ) -> Value:
        """``function(*args, **kwargs)``, a function that ``memo`` decorates."""
        if is_tracing() or torch._C._len_torch_dispatch_stack():  # as of fake tensors
            return function(*args, **kwargs)
        device = kwargs['device']
        stream = None if device.type == 'cpu' else stream_of(device)
        key = function, args, kwargs, stream
        last_key, last = self.entry
        value = last() if last_key == key else None
        if value is None:
            value = function(*args, **kwargs)
            if stream is None or not torch.cuda.is_current_stream_capturing():
                self.entry = key, ref(value)
        return value

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return LastResult, ()


def on_host(function: Function) -> Function:
    """Let ``memo``, the decorator above, run a function on the host and send its result.

    For many small operations, each of which would be a launch. While a CUDA graph is captured, the
    function runs on the device: replays would read the memory of the host again.
    """
    ON_HOST.add(function)
    return function


def send_to_device(value: Any, device: torch.device) -> Any:
    """Copy the tensors of a dataclass to a device, in one copy that the host does not wait for."""
    tensors = {}
    for field in fields(value):
        part = getattr(value, field.name)
        if isinstance(part, Tensor):
            tensors[field.name] = part
    # Large elements first, so that each tensor is aligned.
    names = sorted(tensors, key=lambda name: -tensors[name].itemsize)
    sizes = [tensors[name].nbytes for name in names]
    host = torch.empty(sum(sizes), dtype=torch.uint8, pin_memory=device.type == 'cuda')
    for name, piece in zip(names, host.split(sizes), strict=True):
        tensor = tensors[name]
        piece.view(tensor.dtype).view(tensor.shape).copy_(tensor)
    pieces = host.to(device, non_blocking=True).split(sizes)
    for name, piece in zip(names, pieces, strict=True):
        tensor = tensors[name]
        tensors[name] = piece.view(tensor.dtype).view(tensor.shape)
    return replace(value, **tensors)


def is_tracing() -> bool:
    """Return whether operations are recorded or transformed, rather than run as they are written.

    By torch.compile, torch.export, torch.jit.trace, torch.func (vmap, grad) or forward-mode
    differentiation. A kernel, a remembered result or a branch on a size must not be used then.
    """
    return (
        torch.compiler.is_dynamo_compiling()
        or torch.compiler._is_compiling_flag  # torch.export
        or torch._C._is_tracing()  # torch.jit.trace
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )
