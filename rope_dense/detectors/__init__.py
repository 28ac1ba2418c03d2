"""Detectors where mmdet's differ from the published ones."""

from .dino import PublishedDINO
from .dino_head import PublishedDINOHead

__all__ = ['PublishedDINO', 'PublishedDINOHead']
