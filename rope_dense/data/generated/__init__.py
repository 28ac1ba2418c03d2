"""Pictures of shapes and rooms with their labels, for demos and tests."""

from .shape_files import ShapesSettings, write_shapes
from .shapes import METAINFO, SEGMENTATION_METAINFO, make_scene, render

__all__ = [
    'METAINFO',
    'SEGMENTATION_METAINFO',
    'ShapesSettings',
    'make_scene',
    'render',
    'write_shapes',
]
