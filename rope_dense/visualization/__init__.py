"""Pictures of results. ``detections`` needs mmdet, so it is imported by its own name."""

from .resolution_plot import draw_resolutions
from .training_curve import draw_training_curve, read_scalars

__all__ = ['draw_resolutions', 'draw_training_curve', 'read_scalars']
