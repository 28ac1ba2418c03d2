"""Segmentors that mmseg lacks."""

from .eomt import EoMTSegmentor

__all__ = ['EoMTSegmentor']
