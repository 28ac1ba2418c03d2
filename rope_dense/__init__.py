"""Rotary position embedding (RoPE) vision backbones for OpenMMLab.

Importing the package registers what models and their training are made of in mmengine's registries
(`rope_dense.parts`): at once where mmengine is imported, as by a config with `custom_imports =
dict(imports=['rope_dense'])`, else before the first look into a registry. By itself it imports
neither OpenMMLab nor PyTorch. Where mmcv has no compiled operators, `rope_dense.operators` takes
their place. With torch alone, `rope_dense.rope` works and a warning says what to install.
"""

import warnings
from importlib import import_module
from typing import Any

from . import moved  # noqa: F401  # finds modules under their old names
from .registration import register
from .utils.imports import installation_advice, missing_packages
from .version import __version__

__all__ = ['__version__', 'load', 'train']

# Imported as attributes of this package when they are used.
REGISTERED = ('backbones', 'checkpoints', 'engine', 'models')
ROOMS = (
    'commands', 'data', 'export', 'measure', 'operators', 'predict', 'project', 'report',
    'rope',
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """``train`` and ``load`` of ``rope_dense.api``, and packages, imported when they are used."""
    if name in ('train', 'load'):
        return getattr(import_module('.api', __name__), name)
    if name in REGISTERED:  # with all modules in them that register classes
        import_module('.parts', __name__)
    elif name not in ROOMS:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return import_module(f'.{name}', __name__)


_missing = missing_packages()
if _missing:
    warnings.warn(installation_advice(_missing), stacklevel=2)
else:
    register('rope_dense.parts')
