"""Evaluation beyond one pass at one size."""

from .resolution import evaluate_at
from .tta import MeanScoreTTAModel

__all__ = ['MeanScoreTTAModel', 'evaluate_at']
