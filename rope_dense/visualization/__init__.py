"""Pictures of results."""

from .detections import draw_detections
from .training_curve import draw_training_curve, read_scalars

__all__ = ['draw_detections', 'draw_training_curve', 'read_scalars']
