"""mmcv's compiled operators for the tests that compare with them; skips where there are none."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

import pytest

from rope_dense.operators.extension import Extension


def compiled_operators() -> ModuleType:
    """The compiled ``mmcv._ext``."""
    pytest.importorskip('mmcv', reason='no mmcv')
    try:
        module = import_module('mmcv._ext')
    except ImportError as error:
        pytest.skip(f'no compiled operators: {error}', allow_module_level=True)
    if getattr(module, '__file__', None) is None:
        pytest.skip('operators in PyTorch stand in for the compiled ones', allow_module_level=True)
    return module


def use_pytorch(patch: pytest.MonkeyPatch) -> None:
    """Exchange the operators that modules of ``mmcv.ops`` have."""
    for name, module in list(sys.modules.items()):
        if name.startswith('mmcv.ops.') and hasattr(module, 'ext_module'):
            patch.setattr(module, 'ext_module', Extension())
