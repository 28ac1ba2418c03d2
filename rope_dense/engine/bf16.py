"""Mixed precision in bfloat16, on a CPU too."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from mmcv.ops import MultiScaleDeformableAttention
from mmengine.optim import OptimWrapper
from mmengine.registry import OPTIM_WRAPPERS
from mmengine.runner import autocast
from torch import Tensor, nn

MARK = 'runs_in_float32'  # attribute of a module with the hooks; a copy has both


@OPTIM_WRAPPERS.register_module()
class BFloat16OptimWrapper(OptimWrapper):
    """Forward and loss under autocast to bfloat16; weights and optimizer stay in float32.

    bfloat16 has the range of float32, so losses are not scaled, and PyTorch has it on CPUs.
    mmengine's AmpOptimWrapper always scales and refuses CPUs. Deformable attention runs in float32,
    because mmcv's CUDA kernel has no bfloat16. Arguments: see OptimWrapper.

    Raises:
        RuntimeError: a GPU without bfloat16.
    """

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        for module in model.modules():
            is_deformable = isinstance(module, MultiScaleDeformableAttention)
            if is_deformable and MARK not in vars(module):
                run_in_float32(module)
                setattr(module, MARK, True)
        with super().optim_context(model), autocast(dtype=torch.bfloat16):
            yield


def run_in_float32(module: nn.Module) -> None:
    """Make the forward of a module run in float32, outside of autocast, by hooks.

    The hooks remain, because gradient checkpointing runs the forward again in backward.
    """
    outside = ExitStack()

    def before(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        device = next(module.parameters()).device.type
        outside.enter_context(torch.autocast(device, enabled=False))
        kwargs = {name: to_float32(value) for name, value in kwargs.items()}
        return tuple(to_float32(value) for value in args), kwargs

    def after(module: nn.Module, args: tuple, output: Tensor) -> None:
        outside.close()

    module.register_forward_pre_hook(before, with_kwargs=True)
    module.register_forward_hook(after, always_call=True)


def to_float32(value: object) -> object:
    """A tensor of lower precision in float32; anything else as it is."""
    if isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16):
        return value.float()
    return value
