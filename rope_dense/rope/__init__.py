"""The mathematics of rotary position embedding in two dimensions. Needs torch alone."""

from .frequencies import AxialRoPE, MixedRoPE, RotaryEmbedding
from .rotate import rotate, rotate_qkv
from .rotation import Rotation
from .scaling import RopeScaling

__all__ = [
    'AxialRoPE',
    'MixedRoPE',
    'RopeScaling',
    'RotaryEmbedding',
    'Rotation',
    'rotate',
    'rotate_qkv',
]
