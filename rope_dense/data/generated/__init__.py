"""Pictures of shapes and rooms with their labels, for demos and tests."""

from .shapes import METAINFO, SEGMENTATION_METAINFO, make_scene, render
from .write_shapes import ShapesSettings, write_shapes

__all__ = [
    'METAINFO',
    'SEGMENTATION_METAINFO',
    'ShapesSettings',
    'make_scene',
    'render',
    'write_shapes',
]
