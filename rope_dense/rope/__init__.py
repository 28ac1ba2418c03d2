"""The mathematics of rotary position embedding in two dimensions. Needs torch alone."""

from .coordinates import Coordinates
from .frequencies import AxialRoPE, GridRoPE, LogAxialRoPE, MixedRoPE, RotaryEmbedding
from .rotary import Rotary, rotate, rotate_definition
from .scaling import RopeScaling

__all__ = [
    'AxialRoPE',
    'Coordinates',
    'GridRoPE',
    'LogAxialRoPE',
    'MixedRoPE',
    'RopeScaling',
    'Rotary',
    'RotaryEmbedding',
    'rotate',
    'rotate_definition',
]
