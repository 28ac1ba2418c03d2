"""Tensors that say 'cuda:0' and hold their values on the CPU, to test code for GPUs without one.

Within ``pretended_gpu()`` a tensor made for, or moved to, 'cuda' is a ``Pretended``. Operations run
on the CPU; what a GPU would refuse, tensors of two devices, is refused, and each operation for
which the host would wait for the GPU is noted with its line. ``autocast`` casts as PyTorch does on
CUDA: the operations are read from its registry.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import MagicMock, patch

import torch
from mmcv.ops import box_iou_rotated
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.overrides import TorchFunctionMode
from torch.profiler import profile
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only

from rope_dense.rope.rotation import implementation

CUDA = torch.device('cuda', 0)
aten = torch.ops.aten
# The host needs values, or the number of elements, of what the GPU computes.
READS = {
    *(
        aten._local_scalar_dense.default,
        aten.nonzero.default,
        aten.masked_select.default,
    ),
    *(
        aten.is_nonzero.default,
        aten.equal.default,
        aten.unique_dim.default,
        aten.bincount.default,
    ),
    *(
        aten._unique2.default,
        aten.unique_consecutive.default,
        aten.repeat_interleave.Tensor,
    ),
}
INDEXED = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default}
WAITS: Counter[str] = Counter()
CAPTURED: list[
    list[tuple]
] = []  # operations of the CUDA graph that is captured, if one is


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

    def __deepcopy__(self, memo: dict) -> Tensor:
        with computing(self.value):
            copied = Pretended(self.value.clone(), self.requires_grad)
        is_parameter = isinstance(self, nn.Parameter)
        return nn.Parameter(copied, self.requires_grad) if is_parameter else copied

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        note(func, args, kwargs)
        values = values_of((args, kwargs))
        with computing(values):
            out = func(*values[0], **values[1])
        out = return_and_correct_aliasing(
            func, args, kwargs, tree_map_only(Tensor, cls, out)
        )
        for calls in CAPTURED:
            calls.append((func, (args, kwargs), out))
        return out


def values_of(given: Any) -> Any:
    return tree_map_only(Pretended, lambda x: x.value, given)


def computing(given: Any) -> contextlib.AbstractContextManager:
    """With ``FakeTensorMode``, only what depends on tensors without values has none itself."""
    fakes = any(isinstance(x, FakeTensor) for x in tree_flatten(given)[0])
    return contextlib.nullcontext() if fakes else unset_fake_temporarily()


def note(func: Any, args: tuple, kwargs: dict) -> None:
    """Count what waits, and refuse tensors of two devices, as CUDA does."""
    tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
    strangers = [
        x for x in tensors if not isinstance(x, Pretended) and x.ndim and not inside(x)
    ]
    masks = [x for x in tensors[1:] if x.dtype in (torch.bool, torch.uint8)]
    if func in READS or (func in INDEXED and (strangers or masks)):
        wait(str(func))
    elif strangers and func is aten.copy_.default:
        wait('copy from the CPU')
    elif strangers and func not in INDEXED:
        raise RuntimeError(
            f'{func}: expected all tensors on one device, found cuda:0 and cpu'
        )


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
    if CAPTURED:
        raise RuntimeError(f'{what}: operation not permitted when stream is capturing')
    frames = [
        frame
        for frame in traceback.extract_stack()
        if '/torch/' not in frame.filename and frame.filename != __file__
    ]
    WAITS[
        f'{what} at {frames[-1].filename.rpartition("/packages/")[2]}:{frames[-1].lineno}'
    ] += 1


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
        if func in (Tensor.tolist, Tensor.numpy, Tensor.__array__, Tensor.item):
            source = args[0]
            if isinstance(source, Pretended):
                if name in ('numpy', '__array__'):
                    raise TypeError("can't convert cuda:0 device type tensor to numpy")
                wait(name)
                source = source.value.detach()
            if isinstance(source, FakeTensor):
                raise DataDependentOutputException(func)
            return func(source, *args[1:], **kwargs)
        if func is Tensor.backward:  # which may run a forward again
            with self:
                engine = torch.autograd.Variable._execution_engine
                gradient = kwargs.get('gradient') or torch.ones_like(args[0])
                engine.run_backward(
                    (args[0],),
                    (gradient,),
                    False,
                    False,
                    (),
                    True,
                    accumulate_grad=True,
                )
            return None
        if func is torch.autograd.grad:
            with self:
                engine = torch.autograd.Variable._execution_engine
                (outs, leaves), grads = args, kwargs['grad_outputs']
                settings = (tuple(grads), False, False, tuple(leaves), False)
                return engine.run_backward(
                    tuple(outs), *settings, accumulate_grad=False
                )
        if func in (Tensor.to, Tensor.cuda, Tensor.cpu):
            return self.move(func, args, kwargs)
        if name == 'new_tensor' and isinstance(args[0], Pretended):
            wait(name)
            with unset_fake_temporarily():
                dtype = kwargs.get('dtype', args[0].dtype)
                return Pretended(torch.tensor(values_of(args[1]), dtype=dtype))
        if name == 'data_ptr' and isinstance(args[0], Pretended):
            return args[0].value.data_ptr()
        if name == 'conj':  # whose lazy form operations below autograd do not see
            return torch.conj_physical(args[0])
        if name == '_shape_as_tensor':  # known without values
            with unset_fake_temporarily():
                return torch.tensor(args[0].shape)
        if func is torch.device or not any(map(names_cuda, [*args, *kwargs.values()])):
            out = func(*args, **kwargs)
            tree_map_only(Tensor, show, out)
            return out
        if name in ('tensor', 'as_tensor', 'from_numpy'):
            wait(name)
        args, kwargs = tree_map(lambda x: 'cpu' if names_cuda(x) else x, (args, kwargs))
        with unset_fake_temporarily() if name == 'tensor' else contextlib.nullcontext():
            out = func(*args, **kwargs)
        return (
            out
            if isinstance(out, Pretended) or not isinstance(out, Tensor)
            else Pretended(out)
        )

    def move(self, func: Any, args: tuple, kwargs: dict) -> Tensor:
        """A copy to another device, or a cast."""
        source, *others = args
        if others and isinstance(others[0], Tensor):
            others[:1] = [others[0].device, others[0].dtype]
        devices = [
            x for x in (*others, *kwargs.values()) if isinstance(x, (str, torch.device))
        ]
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
        with computing(x):
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
            if parameter is not None and not isinstance(parameter, Pretended):
                value = Pretended(parameter.detach().clone())
                part._parameters[name] = nn.Parameter(value, parameter.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None and not isinstance(buffer, Pretended):
                part._buffers[name] = Pretended(buffer.clone())
        for name, value in vars(
            part
        ).items():  # where a data preprocessor notes its device
            if isinstance(value, torch.device):
                setattr(part, name, CUDA)
    return module


def without_values(module: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """Let parameters and buffers have shapes alone, in place."""

    def fake(x: Tensor) -> FakeTensor:
        return FakeTensor(mode, x.detach().to('meta'), torch.device('cpu'))

    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = nn.Parameter(
                    fake(parameter), parameter.requires_grad
                )
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = fake(buffer)
    return module


@contextmanager
def pretended_gpu() -> Iterator[Counter[str]]:
    """Make 'cuda' a device that pretends; gives the waits of the host, which count from here."""
    WAITS.clear()
    overlaps = box_iou_rotated.__globals__['ext_module']  # mmcv's compiled operators
    compiled = overlaps.box_iou_rotated
    with (
        # whose random numbers these are
        patch.object(checkpoint, '_infer_device_type', lambda *_: 'cpu'),
        patch.object(
            overlaps, 'box_iou_rotated', lambda *x, **y: compiled(*values_of(x), **y)
        ),
        PretendedDevice(),
        Insiders(),
    ):
        yield WAITS


class PretendedEvent:
    """Stands in for ``torch.cuda.Event``."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.time = time.perf_counter()

    def elapsed_time(self, end: PretendedEvent) -> float:
        return 1000 * (end.time - self.time)


class PretendedGraph:
    """Stands in for ``torch.cuda.CUDAGraph``: the operations of a call, and their results."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    @contextmanager
    def capture(self) -> Iterator[None]:
        CAPTURED.append(self.calls)
        try:
            yield
        finally:
            CAPTURED.pop()

    def replay(self) -> None:
        """Run the operations again, into the memory of their results."""
        for func, args, out in self.calls:
            new = func(*values_of(args[0]), **values_of(args[1]))
            for result, value in zip(
                tree_flatten(out)[0], tree_flatten(new)[0], strict=True
            ):
                if isinstance(result, Pretended):
                    result.value.copy_(value)


@contextmanager
def pretended_cuda() -> Iterator[None]:
    """Stand-ins for torch.cuda and torch.compile, with which a program for a GPU runs on tensors of
    ``pretended_gpu``: events tell the CPU's time, memory is 0, graphs and compilers do nothing, and
    autocast is the CPU's. The rotation's kernel counts as checked, and leaves them to torch.
    """
    import mmengine.device.utils
    from mmdet.models.losses import focal_loss

    from rope_dense.measure import speed
    from rope_dense.rope import rotation_triton

    def sigmoid_focal_loss(
        pred: Tensor, target: Tensor, *others: Any, **settings: Any
    ) -> Tensor:
        target = nn.functional.one_hot(target, pred.shape[1] + 1)[
            :, :-1
        ]  # background is the last
        return focal_loss.py_sigmoid_focal_loss(pred, target, *others, **settings)

    stand_ins: dict[Any, dict[str, Any]] = {
        torch.cuda: dict(
            is_available=lambda: True,
            is_bf16_supported=lambda *_: True,
            is_current_stream_capturing=lambda: bool(CAPTURED),
            get_device_name=lambda *_: 'a GPU that pretends',
            device_count=lambda: 1,
            current_device=lambda: 0,
            Event=PretendedEvent,
            CUDAGraph=PretendedGraph,
            Stream=MagicMock(),
            stream=lambda stream: contextlib.nullcontext(),
            graph=PretendedGraph.capture,
            **{
                name: MagicMock()
                for name in ('current_stream', 'synchronize', 'empty_cache')
            },
            **{name: MagicMock() for name in ('reset_peak_memory_stats',)},
            **{
                name: lambda *_: 0
                for name in (
                    'memory_allocated',
                    'max_memory_allocated',
                    'max_memory_reserved',
                )
            },
        ),
        torch: dict(
            compile=lambda *model, **_: model[0] if model else lambda function: function
        ),
        nn.Module: dict(compile=lambda self, *_, **__: None, to=moved(nn.Module.to)),
        rotation_triton: dict(why_not=lambda *_: None),
        speed: dict(
            profile=lambda activities, **settings: profile(
                activities=activities[:1], **settings
            )
        ),
        mmengine.device.utils: dict(DEVICE='cuda'),
        focal_loss: dict(sigmoid_focal_loss=sigmoid_focal_loss),
        torch.autocast: dict(__init__=on_cpu(torch.autocast.__init__)),
    }
    with contextlib.ExitStack() as stack:
        for owner, names in stand_ins.items():
            for name, stand_in in names.items():
                stack.enter_context(patch.object(owner, name, stand_in))
        stack.callback(implementation.cache_clear)
        implementation.cache_clear()
        yield


def moved(to: Any) -> Any:
    """``nn.Module.to`` that calls ``to_gpu`` for a GPU."""

    def move(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        given = [*args, *kwargs.values()]
        for dtype in (x for x in given if isinstance(x, torch.dtype)):
            to(self, dtype)
        return (
            to_gpu(self) if any(map(names_cuda, given)) else to(self, *args, **kwargs)
        )

    return move


def on_cpu(begin: Any) -> Any:
    """``torch.autocast.__init__`` that takes the CPU for any device."""

    def begin_on_cpu(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        begin(self, 'cpu', *args, **kwargs)

    return begin_on_cpu


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
            policy = (
                casting(name, dtype)
                if name in ours
                else torch.library.fallthrough_kernel
            )
            library.impl(name, policy, allow_override=True)
    try:
        with (
            patch.object(torch.autocast, '__init__', on_cpu(torch.autocast.__init__)),
            torch.autocast('cuda', dtype),
        ):
            yield
    finally:
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
            if (
                isinstance(x, Tensor)
                and x.is_floating_point()
                and x.dtype != torch.float64
            ):
                return x.to(target)
            return x

        with torch._C._ExcludeDispatchKeyGuard(keys):
            args, kwargs = tree_map(cast, (args, kwargs))
            return op(*args, **kwargs)

    return run
