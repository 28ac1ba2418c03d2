"""timm on machines that have no torchvision."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType
from unittest.mock import MagicMock

import pytest
from torch import nn

_TORCHVISION_MODULES = (
    'torchvision',
    'torchvision.datasets',
    'torchvision.models',
    'torchvision.models.feature_extraction',
    'torchvision.ops',
    'torchvision.ops.misc',
    'torchvision.transforms',
    'torchvision.transforms.functional',
)


def import_timm() -> ModuleType:
    """timm without torchvision.

    The models compared here need nothing from torchvision but one class to test against; timm
    imports its data pipeline along with them. Stand-ins satisfy those imports and are removed
    again, so that nothing else takes them for an installed torchvision.
    """
    stand_ins = {}
    if find_spec('torchvision') is None:
        stand_ins = {name: MagicMock(name=name) for name in _TORCHVISION_MODULES}
        frozen_norm = type('FrozenBatchNorm2d', (nn.Module,), {})
        stand_ins['torchvision.ops.misc'].FrozenBatchNorm2d = frozen_norm
    sys.modules.update(stand_ins)
    try:
        return pytest.importorskip(
            'timm', reason='no timm; pip install --no-deps timm==1.0.31'
        )
    finally:
        for name in stand_ins:
            del sys.modules[name]
