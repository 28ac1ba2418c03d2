from .nat import RoPENAT
from .swin import RoPESwin
from .vit import RoPEViT

__all__ = ['RoPENAT', 'RoPESwin', 'RoPEViT']
