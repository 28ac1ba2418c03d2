from .swin import RoPESwin
from .vit import RoPEViT

__all__ = ['RoPESwin', 'RoPEViT']
