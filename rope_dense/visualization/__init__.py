"""Pictures of results."""

from importlib.util import find_spec

from .resolution_plot import draw_resolutions
from .training_curve import draw_training_curve, read_scalars

__all__ = ['draw_resolutions', 'draw_training_curve', 'read_scalars']

if find_spec('mmdet'):
    from .detections import draw_detections

    __all__ += ['draw_detections']
