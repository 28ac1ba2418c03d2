"""Detectors where mmdet's differ from the published ones."""

from .dino import PublishedDINO

__all__ = ['PublishedDINO']
