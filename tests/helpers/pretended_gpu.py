"""Tensors that say 'cuda:0' and hold their values on the CPU, to test code for GPUs without one.

Within ``pretended_gpu()`` a tensor made for, or moved to, 'cuda' is a ``Pretended``. Operations run
on the CPU; what a GPU would refuse, tensors of two devices, is refused, and each operation for
which the host would wait for the GPU is noted with its line. ``autocast`` casts as PyTorch does on
CUDA: the operations are read from its registry.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only

CUDA = torch.device('cuda', 0)
aten = torch.ops.aten
# The host needs values, or the number of elements, of what the GPU computes.
READS = {
    *(aten._local_scalar_dense.default, aten.nonzero.default, aten.masked_select.default),
    *(aten.is_nonzero.default, aten.equal.default, aten.unique_dim.default, aten.bincount.default),
    *(aten._unique2.default, aten.unique_consecutive.default, aten.repeat_interleave.Tensor),
}
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default}
WAITS: Counter[str] = Counter()


class Pretended(Tensor):
    """A tensor on a GPU that is not there; ``value`` is on the CPU."""

    value: Tensor

    @staticmethod
    def __new__(cls, value: Tensor, requires_grad: bool = False) -> Pretended:
        return Tensor._make_wrapper_subclass(
            cls,
            value.shape,
            strides=value.stride(),
            storage_offset=value.storage_offset(),
            dtype=value.dtype,
            device=value.device,
            requires_grad=requires_grad,
        )

    def __init__(self, value: Tensor, requires_grad: bool = False) -> None:
        self.value = value

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        note(func, args, kwargs)
        values = tree_map_only(Pretended, lambda x: x.value, (args, kwargs))
        out = func(*values[0], **values[1])
        return return_and_correct_aliasing(func, args, kwargs, tree_map_only(Tensor, cls, out))


def note(func: Any, args: tuple, kwargs: dict) -> None:
    """Count what waits, and refuse tensors of two devices, as CUDA does."""
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
    strangers = [x for x in tensors if not isinstance(x, Pretended) and x.ndim and not inside(x)]
    masks = [x for x in tensors[1:] if x.dtype in (torch.bool, torch.uint8)]
    if func in READS or (func in INDEXED and (strangers or masks)):
        wait(str(func))
    elif strangers and func is aten.copy_.default:
        wait('copy from the CPU')
    elif strangers and func not in INDEXED:
        raise RuntimeError(f'{func}: expected all tensors on one device, found cuda:0 and cpu')


class Insiders(TorchDispatchMode):
    """Marks tensors that PyTorch itself makes within an operation: a GPU would have them."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        out = func(*args, **(kwargs or {}))
        if type(out) is Tensor and all(map(inside, given)):
            vars(out)['made_inside'] = True
        return out


def inside(x: Tensor) -> bool:
    """Return whether a plain tensor never came out of PyTorch."""
    return 'made_inside' in vars(x)


def wait(what: str) -> None:
    """Note a wait with the line of the caller: the last one outside PyTorch and this file."""
    frames = [
        frame
        for frame in traceback.extract_stack()
        if '/torch/' not in frame.filename and frame.filename != __file__
    ]
    WAITS[f'{what} at {frames[-1].filename.rpartition("/packages/")[2]}:{frames[-1].lineno}'] += 1


def show(x: Tensor) -> Tensor:
    """Note that a tensor came out of PyTorch."""
    vars(x).pop('made_inside', None)
    return x


def names_cuda(given: object) -> bool:
    """Return whether an argument is a CUDA device."""
    if isinstance(given, str):
        return given.startswith('cuda')
    return isinstance(given, torch.device) and given.type == 'cuda'


class PretendedDevice(TorchFunctionMode):
    """Takes 'cuda' in calls of torch: its results are ``Pretended``."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, '__name__', '')
        if func in (Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.item) and isinstance(
            args[0], Pretended
        ):
            if name in ('numpy', '__array__'):
                raise TypeError("can't convert cuda:0 device type tensor to numpy")
            wait(name)
            return func(args[0].value.detach(), *args[1:], **kwargs)
        if func is Tensor.backward:  # which may run a forward again
            with self:
                engine = torch.autograd.Variable._execution_engine
                gradient = kwargs.get('gradient') or torch.ones_like(args[0])
                engine.run_backward(
                    (args[0],), (gradient,), False, False, (), True, accumulate_grad=True
                )
            return None
        if func in (Tensor.to, Tensor.cuda, Tensor.cpu):
            return self.move(func, args, kwargs)
        if name == 'new_tensor' and isinstance(args[0], Pretended):
            wait(name)
            return Pretended(torch.tensor(args[1], dtype=kwargs.get('dtype', args[0].dtype)))
        if not any(map(names_cuda, [*args, *kwargs.values()])):
            out = func(*args, **kwargs)
            tree_map_only(Tensor, show, out)
            return out
        if name in ('tensor', 'as_tensor', 'from_numpy'):
            wait(name)
        args, kwargs = tree_map(lambda x: 'cpu' if names_cuda(x) else x, (args, kwargs))
        out = func(*args, **kwargs)
        return out if isinstance(out, Pretended) or not isinstance(out, Tensor) else Pretended(out)

    def move(self, func: Any, args: tuple, kwargs: dict) -> Tensor:
        """A copy to another device, or a cast."""
        source, *others = args
        if others and isinstance(others[0], Tensor):
            others[:1] = [others[0].device, others[0].dtype]
        devices = [x for x in (*others, *kwargs.values()) if isinstance(x, (str, torch.device))]
        to_cuda = func is Tensor.cuda or any(map(names_cuda, devices))
        to_cpu = func is Tensor.cpu or (devices and not to_cuda)
        dtypes = [x for x in (*others, *kwargs.values()) if isinstance(x, torch.dtype)]
        if to_cpu and isinstance(source, Pretended):
            wait('copy to the CPU')
            source = ToCPU.apply(source)
        elif to_cuda and not isinstance(source, Pretended):
            if not kwargs.get('non_blocking') and not source.is_pinned():
                wait('copy from the CPU')
            source = ToCUDA.apply(source)
        return Tensor.to(source, dtypes[0]) if dtypes else source


class ToCUDA(torch.autograd.Function):
    """A copy to the GPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return Pretended(x.clone())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad.value if isinstance(grad, Pretended) else grad


class ToCPU(torch.autograd.Function):
    """A copy to the CPU."""

    @staticmethod
    def forward(ctx: Any, x: Pretended) -> Tensor:
        return x.value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return Pretended(grad)


def to_gpu(module: nn.Module) -> nn.Module:
    """Move the parameters and buffers of a module, in place."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                value = Pretended(parameter.detach().clone())
                part._parameters[name] = nn.Parameter(value, parameter.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = Pretended(buffer.clone())
        for name, value in vars(part).items():  # where a data preprocessor notes its device
            if isinstance(value, torch.device):
                setattr(part, name, CUDA)
    return module


@contextmanager
def pretended_gpu() -> Iterator[Counter[str]]:
    """Make 'cuda' a device that pretends; gives the waits of the host, which count from here."""
    WAITS.clear()
    of_checkpoint = checkpoint._infer_device_type
    checkpoint._infer_device_type = lambda *_: 'cpu'  # whose random numbers these are
    try:
        with PretendedDevice(), Insiders():
            yield WAITS
    finally:
        checkpoint._infer_device_type = of_checkpoint


def names_of(*groups: str) -> set[str]:
    return {name for group in groups for name in group.split()}


# By PyTorch's page on automatic mixed precision; what is in neither runs in float32.
LOWER = names_of(
    '_convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d',
    'conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul',
    'mm mv linear einsum addbmm baddbmm bmm chain_matmul linalg_multi_dot linalg_vecdot',
    'scaled_dot_product_attention _scaled_dot_product_flash_attention',
)
WIDEST = names_of(
    'addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add'
)


@contextmanager
def cuda_autocast(dtype: torch.dtype) -> Iterator[None]:
    """Autocast to ``dtype`` with the operations of CUDA's list, for tensors on the CPU."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    ours = {name.removeprefix('aten::') for name in registered('AutocastCUDA')}
    theirs = {name.removeprefix('aten::') for name in registered('AutocastCPU')}
    library = torch.library.Library('aten', 'IMPL', 'AutocastCPU')
    for name in ours | theirs:
        if 'cell' not in name and 'cudnn' not in name:
            policy = casting(name, dtype) if name in ours else torch.library.fallthrough_kernel
            library.impl(name, policy, allow_override=True)
    begin = torch.autocast.__init__

    def on_cpu(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        begin(self, 'cpu', *args, **kwargs)

    torch.autocast.__init__ = on_cpu  # type: ignore[method-assign]
    try:
        with torch.autocast('cuda', dtype):
            yield
    finally:
        torch.autocast.__init__ = begin  # type: ignore[method-assign]
        library._destroy()


def casting(name: str, dtype: torch.dtype) -> Any:
    """An operation with its arguments as autocast casts them."""
    packet, _, overload = name.partition('.')
    op = getattr(getattr(aten, packet), overload or 'default')
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def run(*args: Any, **kwargs: Any) -> Any:
        if name == 'binary_cross_entropy':
            raise RuntimeError(f'{name} is unsafe to autocast')
        floats = [
            x.dtype
            for x in tree_flatten((args, kwargs))[0]
            if isinstance(x, Tensor) and x.is_floating_point()
        ]
        if name in LOWER:
            target = dtype
        elif name in WIDEST:
            target = torch.float32 if torch.float32 in floats else dtype
        else:
            target = torch.float32

        def cast(x: Any) -> Any:
            if isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64:
                return x.to(target)
            return x

        with torch._C._ExcludeDispatchKeyGuard(keys):
            args, kwargs = tree_map(cast, (args, kwargs))
            return op(*args, **kwargs)

    return run
