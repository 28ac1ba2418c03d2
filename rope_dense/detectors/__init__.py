"""Detectors where mmdet's differ from the published ones, and those that it lacks."""

from .dino import PublishedDINO
from .dino_head import PublishedDINOHead
from .eomt import EoMTDetector

__all__ = ['EoMTDetector', 'PublishedDINO', 'PublishedDINOHead']
