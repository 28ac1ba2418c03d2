"""Kinds of positions that the study compares, as plug-ins: importing this package registers them.

    custom_imports = dict(imports=['rope_dense', 'kinds'])  # in a config

with docs/research/scaling_study on the path of Python (PYTHONPATH).
"""

from .directions import DirectionRoPE
from .distance_bias import ALiBi2DAttention, FIREAttention, LookHereAttention
from .linear_attention import LinearAttention
from .parabola import IsotropicPaPEAttention, PaPEAttention
from .raster import RasterRoPE

__all__ = [
    'ALiBi2DAttention',
    'DirectionRoPE',
    'FIREAttention',
    'IsotropicPaPEAttention',
    'LinearAttention',
    'LookHereAttention',
    'PaPEAttention',
    'RasterRoPE',
]
