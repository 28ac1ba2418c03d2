"""The mathematics of rotary position embedding in two dimensions. Needs torch alone."""

from .frequencies import AxialRoPE, MixedRoPE, RotaryEmbedding
from .rotate import rotate, rotate_qkv, rotate_windows
from .rotation import Rotation
from .scaling import RopeScaling
from .windows import Partition, cut_windows, window_padding

__all__ = [
    'AxialRoPE',
    'MixedRoPE',
    'Partition',
    'RopeScaling',
    'RotaryEmbedding',
    'Rotation',
    'cut_windows',
    'rotate',
    'rotate_qkv',
    'rotate_windows',
    'window_padding',
]
