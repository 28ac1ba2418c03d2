"""The backbones, as modules of mmengine's registry: RoPEViT, RoPESwin, RoPENAT."""

from . import distance_bias, linear_attention, parabola
from .nat import RoPENAT
from .swin import RoPESwin
from .vit import RoPEViT

__all__ = ['RoPENAT', 'RoPESwin', 'RoPEViT', 'distance_bias', 'linear_attention', 'parabola']
