"""The mathematics of rotary position embedding in two dimensions. Needs torch alone."""

from .axial import AxialRoPE, LogAxialRoPE, OffsetAxialRoPE
from .directions import DirectionRoPE
from .embeddings import GridRoPE, MixedRoPE, RasterRoPE, RotaryEmbedding
from .grid import Coordinates, RopeScaling
from .rotation import Rotary, apply_rotary, rotate, rotate_definition
from .video import VideoRoPE

__all__ = [
    'AxialRoPE',
    'Coordinates',
    'DirectionRoPE',
    'GridRoPE',
    'LogAxialRoPE',
    'MixedRoPE',
    'OffsetAxialRoPE',
    'RasterRoPE',
    'RopeScaling',
    'Rotary',
    'RotaryEmbedding',
    'VideoRoPE',
    'apply_rotary',
    'rotate',
    'rotate_definition',
]
