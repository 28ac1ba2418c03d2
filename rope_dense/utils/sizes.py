"""Sizes are (height, width)."""

from __future__ import annotations

Size = tuple[int, int]  # in tokens
ImageSize = tuple[int, int]  # in pixels
