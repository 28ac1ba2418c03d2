"""Own data and its conversion, generated shapes, and augmentation for real-time detectors."""

from .shapes import METAINFO, SEGMENTATION_METAINFO, make_scene, render
from .shapes_files import ShapesSettings, write_shapes

__all__ = [
    'METAINFO',
    'SEGMENTATION_METAINFO',
    'ShapesSettings',
    'make_scene',
    'render',
    'write_shapes',
]
