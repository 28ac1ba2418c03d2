"""The mathematics of rotary position embedding in two dimensions. Needs torch alone."""

from .frequencies import AxialRoPE, MixedRoPE, RotaryEmbedding
from .rotate import rotate, rotate_qkv, rotate_windows
from .rotation import Rotation, Windows, split_windows
from .scaling import RopeScaling

__all__ = [
    'AxialRoPE',
    'MixedRoPE',
    'RopeScaling',
    'RotaryEmbedding',
    'Rotation',
    'Windows',
    'rotate',
    'rotate_qkv',
    'rotate_windows',
    'split_windows',
]
