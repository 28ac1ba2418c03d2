"""Evaluation beyond one pass at one size."""

from importlib.util import find_spec

from .classifier import RoPEClassifier, load_classifier
from .image_folder import ClassFolderDataset
from .resolution import ResolutionLoop, evaluate_at

__all__ = [
    'ClassFolderDataset',
    'ResolutionLoop',
    'RoPEClassifier',
    'evaluate_at',
    'load_classifier',
]

if find_spec('mmseg'):
    from .tta import MeanScoreTTAModel  # noqa: F401

    __all__ += ['MeanScoreTTAModel']
