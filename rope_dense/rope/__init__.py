"""The mathematics of rotary position embedding in two dimensions. Needs torch alone."""

from .apply_rotary import apply_rotary, apply_rotary_
from .coordinates import Coordinates
from .embeddings import AxialRoPE, GridRoPE, LogAxialRoPE, MixedRoPE, RotaryEmbedding
from .raster import RasterRoPE
from .rotate import Rotary, rotate, rotate_definition
from .scaling import RopeScaling

__all__ = [
    'AxialRoPE',
    'Coordinates',
    'GridRoPE',
    'LogAxialRoPE',
    'MixedRoPE',
    'RasterRoPE',
    'RopeScaling',
    'Rotary',
    'RotaryEmbedding',
    'apply_rotary',
    'apply_rotary_',
    'rotate',
    'rotate_definition',
]
