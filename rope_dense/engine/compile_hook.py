"""Compiled backbones in mmengine's runners."""

from typing import Any

from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from ..backbones.base import Backbone


@HOOKS.register_module()
class CompileBlocksHook(Hook):
    """Compiles the blocks of the backbones of this package before a training or a test (--compile).

    Wrappers are in place by then: DDP, ``fully_shard``, test-time augmentation. Checked in
    tests/backbones/test_compile.py.

    Args:
        options: of ``torch.compile``, such as ``mode``; see ``Backbone.compile_blocks``.

    Raises:
        ValueError: before the run, if the model has no such backbone.
    """

    priority = 'HIGH'

    def __init__(self, **options: Any) -> None:
        self.options = options

    def before_run(self, runner: Runner) -> None:
        modules = runner.model.modules()
        backbones = [module for module in modules if isinstance(module, Backbone)]
        if not backbones:
            raise ValueError(
                'CompileBlocksHook (--compile): no backbone of this package'
            )
        for backbone in backbones:
            backbone.compile_blocks(**self.options)
