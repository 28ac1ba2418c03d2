"""mmcv's compiled operators for the tests that compare with them, and whole detectors with either.

Skips where there are none.
"""

from __future__ import annotations

import copy
import random
import sys
from importlib import import_module
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rope_dense.operators.extension import Extension


def compiled_operators() -> ModuleType:
    """The compiled ``mmcv._ext``."""
    pytest.importorskip('mmcv', reason='no mmcv')
    try:
        module = import_module('mmcv._ext')
    except ImportError as error:
        pytest.skip(f'no compiled operators: {error}', allow_module_level=True)
    if getattr(module, '__file__', None) is None:
        pytest.skip(
            'operators in PyTorch stand in for the compiled ones',
            allow_module_level=True,
        )
    return module


def untied(scores: Tensor) -> Tensor:
    """The numbers N to 1 in the order of scores [N], of equal ones the first first.

    Compiled operators have no order of equal scores on a CPU.
    """
    order = scores.sort(stable=True, descending=True).indices
    return torch.empty_like(scores).scatter(
        0, order, torch.arange(len(scores), 0, -1).to(scores)
    )


def use_pytorch(patch: pytest.MonkeyPatch) -> None:
    """Exchange the operators that modules of ``mmcv.ops`` have."""
    for name, module in list(sys.modules.items()):
        if name.startswith('mmcv.ops.') and hasattr(module, 'ext_module'):
            patch.setattr(module, 'ext_module', Extension())


def results(model: nn.Module, data: dict) -> dict[str, Tensor]:
    """Loss, gradients and predictions, by name."""
    model.zero_grad()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    inputs = model.train().data_preprocessor(copy.deepcopy(data), training=True)
    loss, logged = model.parse_losses(model(**inputs, mode='loss'))
    loss.backward()
    found = {name: torch.as_tensor(value) for name, value in logged.items()}
    found |= {
        name: p.grad for name, p in model.named_parameters() if p.grad is not None
    }
    with torch.no_grad():
        inputs = model.eval().data_preprocessor(copy.deepcopy(data))
        for index, sample in enumerate(model(**inputs, mode='predict')):
            for key, value in sample.pred_instances.items():
                found[f'{key} of {index}'] = value.float()
    return found


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Both results have the same names and values."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        tolerance = 1e-5 * float(value.detach().abs().max()) if value.numel() else 0
        torch.testing.assert_close(
            actual[name], value, rtol=1e-3, atol=tolerance, msg=name
        )
