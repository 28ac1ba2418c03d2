"""Pixels of files of any number of bands."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from rope_dense.data.images.band_files import BandFile


def read_bands(path: Path) -> np.ndarray:
    """Pixels [H, W, n] of a whole file."""
    with closing(BandFile(path)) as file:
        return file.read()[0]
