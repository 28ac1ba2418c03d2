"""Heads that mmseg lacks."""

from .linear_head import LinearHead

__all__ = ['LinearHead']
