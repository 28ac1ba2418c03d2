"""Evaluation beyond one pass at one size."""

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
