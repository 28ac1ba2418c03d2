"""Heads that mmseg lacks."""

from .linear_head import LinearHead
from .mask2former_head import SlideMask2FormerHead

__all__ = ['LinearHead', 'SlideMask2FormerHead']
