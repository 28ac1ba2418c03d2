"""The mathematics of rotary position embedding in two dimensions. Needs torch alone.

Configs name the embeddings that are listed here.

Others import::

    embeddings: linear_angles
    frequencies: axis_frequencies
    grid: ScalingType, TemperatureType, build_scaling
    rotation: Implementation, PairLayout, Rotate, complex_backward, implementation,
        rotate_complex, rotate_packed
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
