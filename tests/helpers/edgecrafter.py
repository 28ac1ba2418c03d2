"""The source of EdgeCrafter (ECDet, ECSeg), executed from a checkout, as a reference.

``ROPE_DENSE_EDGECRAFTER`` names a checkout of Intellindust-AI-Lab/EdgeCrafter (checked at 706d037).
Its model files are imported under the name of a package of their own, with stand-ins for what they
take from its registry and from torchvision.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

PACKAGE = 'edgecrafter_source'
VARIABLE = 'ROPE_DENSE_EDGECRAFTER'


def register(*args: object, **settings: object) -> object:
    """A decorator that changes nothing."""
    return lambda decorated: decorated


def box_area(boxes: torch.Tensor) -> torch.Tensor:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def module(name: str, **attributes: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(attributes)
    sys.modules[name] = made
    return made


def edgecrafter(name: str) -> ModuleType:
    """A module of its ecdetseg/engine/edgecrafter, such as 'ecvit'; skips without a checkout."""
    if not os.environ.get(VARIABLE):
        pytest.skip(f'{VARIABLE} names no checkout of EdgeCrafter')
    folder = Path(os.environ[VARIABLE], 'ecdetseg', 'engine', 'edgecrafter')
    assert folder.is_dir(), folder
    if PACKAGE not in sys.modules:
        if importlib.util.find_spec('torchvision') is None:
            module('torchvision').__path__ = []
            module('torchvision.ops').__path__ = []
            module('torchvision.ops.boxes', box_area=box_area)
        dist = dict(
            get_world_size=lambda: 1, is_dist_available_and_initialized=lambda: False
        )
        module(PACKAGE).__path__ = []
        module(f'{PACKAGE}.core', register=register)
        utils = module(f'{PACKAGE}.misc.dist_utils', **dist)
        module(f'{PACKAGE}.misc', dist_utils=utils).__path__ = []
        module(f'{PACKAGE}.edgecrafter').__path__ = [str(folder)]
    return importlib.import_module(f'{PACKAGE}.edgecrafter.{name}')
