"""The source of DINOv3, executed from a checkout, as a reference.

``ROPE_DENSE_DINOV3`` names a checkout of facebookresearch/dinov3 (checked at 6876159).
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

VARIABLE = 'ROPE_DENSE_DINOV3'


def dinov3(name: str) -> ModuleType:
    """A module of its dinov3/eval/depth, such as 'loss'; skips without a checkout."""
    if not os.environ.get(VARIABLE):
        pytest.skip(f'{VARIABLE} names no checkout of DINOv3')
    folder = Path(os.environ[VARIABLE])
    assert (folder / 'dinov3' / 'eval' / 'depth').is_dir(), folder
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return importlib.import_module(f'dinov3.eval.depth.{name}')
