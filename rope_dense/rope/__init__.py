"""The mathematics of rotary position embedding in two dimensions. Needs torch alone.

Configs name the embeddings that are listed here.
"""

from .axial import AxialRoPE, LogAxialRoPE, OffsetAxialRoPE
from .embeddings import GridRoPE, MixedRoPE, RotaryEmbedding
from .grid import Coordinates, RopeScaling
from .rotation import Rotary, apply_rotary, rotate, rotate_definition
from .video import VideoRoPE

__all__ = [
    'AxialRoPE',
    'Coordinates',
    'GridRoPE',
    'LogAxialRoPE',
    'MixedRoPE',
    'OffsetAxialRoPE',
    'RopeScaling',
    'Rotary',
    'RotaryEmbedding',
    'VideoRoPE',
    'apply_rotary',
    'rotate',
    'rotate_definition',
]
