"""The backbones, as modules of mmengine's registry: RoPEViT, RoPESwin, RoPENAT.

They are imported when they are used: the commands read ``archs`` without PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .nat import RoPENAT
    from .swin import RoPESwin
    from .vit import RoPEViT

__all__ = ['RoPENAT', 'RoPESwin', 'RoPEViT']

_MODULES = dict(RoPENAT='nat', RoPESwin='swin', RoPEViT='vit')


def __getattr__(name: str) -> Any:
    """A backbone, imported with its module."""
    if name in _MODULES:
        return getattr(import_module(f'.{_MODULES[name]}', __name__), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
