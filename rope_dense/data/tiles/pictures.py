"""Small pictures of the results of large images."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
import torch
from mmengine.registry import VISUALIZERS

from ..images.bands import LoadBands, picture
from ..images.copies import Palette
from ..images.drawing import draw, draw_depth
from .band_image import open_image
from .detection import instances_of

if find_spec('mmdet'):
    from mmdet.structures import DetDataSample

SIDE = 2000  # pixels at most of the longer side of a picture


def read_shrunken(path: Path, bands: LoadBands | None) -> tuple[np.ndarray, int]:
    """An image [H, W, 3], not larger than a picture, and how many times it is shrunken."""
    image = open_image(path, bands)
    shrink = -(-max(image.height, image.width) // SIDE)
    image = open_image(path, bands, shrink)
    pixels = image.read(0, image.height)
    if bands is not None:
        pixels = picture(pixels, bands.show)
    return pixels, shrink


def draw_labels(
    path: Path,
    labels_file: Path,
    dtype: np.dtype,
    palette: Palette,
    bands: LoadBands | None,
) -> np.ndarray:
    """An image (BGR) mixed with the colours of its labels, or beside its depth."""
    full = open_image(path, bands)
    small, shrink = read_shrunken(path, bands)
    labels = np.memmap(labels_file, dtype, 'r', shape=(full.height, full.width))
    middle = shrink // 2  # of the pixels that one pixel of the picture stands for
    rows = np.arange(small.shape[0]) * shrink + middle
    columns = np.arange(small.shape[1]) * shrink + middle
    labels = labels[rows.clip(max=full.height - 1)]
    labels = labels[:, columns.clip(max=full.width - 1)]
    if dtype.kind == 'f':
        return draw_depth(small, labels)
    colours = np.zeros((np.iinfo(dtype).max + 1, 3), np.uint8)  # no data is black
    for label, (red, green, blue) in palette.items():
        colours[label] = blue, green, red
    return cv2.addWeighted(small, 0.5, colours[labels], 0.5, 0)


def draw_boxes(
    path: Path,
    lines: Sequence[dict],
    classes: Sequence[str],
    palette: Palette,
    kind: str,
    bands: LoadBands | None,
) -> np.ndarray:
    """An image (BGR) with its boxes, classes and scores.

    Args:
        kind: of the visualizer, which is mmrotate's for rotated boxes.
        lines: with box, score and label, see ``detection.detect``.
        bands: see ``open_image``.
    """
    small, shrink = read_shrunken(path, bands)
    height, width = small.shape[:2]
    is_rotated = kind == 'mmrotate.RotLocalVisualizer'
    found = instances_of(lines, is_rotated)
    found.bboxes[:, :4] /= shrink
    if not is_rotated:
        # The visualizer warns beyond the last pixel.
        last = torch.tensor([width - 1, height - 1] * 2)
        found.bboxes = found.bboxes.minimum(last)
    visualizer = VISUALIZERS.build(
        dict(
            type=kind,
            name=str(path),
            line_width=1,
        )
    )
    colours = [palette[label] for label in range(len(classes))]
    visualizer.dataset_meta = dict(classes=classes, palette=colours)
    sample = DetDataSample(pred_instances=found)
    return draw(visualizer, path.name, small, sample, pred_score_thr=-1.0)
