"""The backbones, as modules of mmengine's registry: RoPEViT, RoPESwin, RoPENAT."""

from . import position_bias
from . import position_bias as relative_prefix
from .nat import RoPENAT
from .swin import RoPESwin
from .vit import RoPEViT

__all__ = ['RoPENAT', 'RoPESwin', 'RoPEViT', 'position_bias', 'relative_prefix']
