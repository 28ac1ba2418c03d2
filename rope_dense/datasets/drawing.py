"""Pictures with predictions drawn on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mmcv
import numpy as np
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer


def draw(
    visualizer: Visualizer,
    path: Path,
    image: np.ndarray,
    sample: BaseDataElement,
    **settings: Any,
) -> np.ndarray:
    """Draw a prediction on a copy of an image (BGR), write it to a file and return it.

    Args:
        settings: of the visualizer's ``add_datasample``.
    """
    rgb = np.ascontiguousarray(image[..., ::-1])
    visualizer.add_datasample(path.name, rgb, sample, draw_gt=False, **settings)
    drawn = np.ascontiguousarray(visualizer.get_image()[..., ::-1])
    if not mmcv.imwrite(drawn, str(path)):
        raise OSError(f'{path}: cannot be written')
    return drawn
