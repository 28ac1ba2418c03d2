"""The backbones, as modules of mmengine's registry: RoPEViT, RoPESwin, RoPENAT."""

from . import linear_attention
from .nat import RoPENAT
from .swin import RoPESwin
from .vit import RoPEViT

__all__ = ['RoPENAT', 'RoPESwin', 'RoPEViT', 'linear_attention']
