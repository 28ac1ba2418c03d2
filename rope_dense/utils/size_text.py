"""Sizes as text, read without importing PyTorch."""

import re

SIDES = re.compile(r'0*([1-9]\d*)(?:x0*([1-9]\d*))?')


def parse_size(text: str) -> int | tuple[int, int]:
    """'128', the shorter side, or '96x128', height and width; ValueError for anything else."""
    match = SIDES.fullmatch(text)
    if match is None:
        raise ValueError(f'size {text!r}: give a side (128) or HEIGHTxWIDTH (96x128), 1 or more')
    height, width = match.groups()
    return int(height) if width is None else (int(height), int(width))
