"""Small pictures of the results of large images."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import cv2
import numpy as np
import torch
from mmengine.registry import VISUALIZERS
from mmengine.structures import InstanceData

from ..images.bands import LoadBands, picture
from ..images.drawing import draw, draw_depth
from .band_image import open_image

if find_spec('mmdet'):
    from mmdet.structures import DetDataSample

SIDE = 2000  # pixels at most of the longer side of a picture

Palette = Mapping[int, tuple[int, int, int]]  # red, green, blue


def read_shrunken(path: Path, bands: LoadBands | None) -> tuple[np.ndarray, int]:
    """An image [H, W, 3], not larger than a picture, and how many times it is shrunken."""
    image = open_image(path, bands)
    shrink = -(-max(image.height, image.width) // SIDE)
    image = open_image(path, bands, shrink)
    pixels = image.read(0, image.height)
    return (pixels if bands is None else picture(pixels, bands.show)), shrink


def draw_labels(
    path: Path,
    labels_file: Path,
    dtype: np.dtype,
    palette: Palette,
    bands: LoadBands | None = None,
) -> np.ndarray:
    """An image (BGR) mixed with the colours of its labels, or beside its depth."""
    full = open_image(path, bands)
    small, shrink = read_shrunken(path, bands)
    labels = np.memmap(labels_file, dtype, 'r', shape=(full.height, full.width))
    middle = shrink // 2  # of the pixels that one pixel of the picture stands for
    rows, columns = (
        np.minimum(np.arange(short) * shrink + middle, long - 1)
        for short, long in zip(small.shape, labels.shape, strict=False)
    )
    if dtype.kind == 'f':
        return draw_depth(small, labels[rows][:, columns])
    colours = np.zeros((np.iinfo(dtype).max + 1, 3), np.uint8)  # no data is black
    for label, (red, green, blue) in palette.items():
        colours[label] = blue, green, red
    return cv2.addWeighted(small, 0.5, colours[labels[rows][:, columns]], 0.5, 0)


def draw_boxes(
    path: Path,
    lines: Sequence[dict],
    classes: Sequence[str],
    palette: Palette,
    kind: str = 'mmdet.DetLocalVisualizer',
    bands: LoadBands | None = None,
) -> np.ndarray:
    """An image (BGR) with its boxes, classes and scores.

    Args:
        kind: of the visualizer, which is mmrotate's for rotated boxes.
        lines: with box, score and label, see ``detection.detect``.
        bands: see ``open_image``.
    """
    small, shrink = read_shrunken(path, bands)
    height, width = small.shape[:2]
    last_pixel = torch.tensor(
        [width - 1, height - 1] * 2
    )  # the visualizer warns beyond it
    boxes = torch.tensor([line['box'] for line in lines]).reshape(-1, 4) / shrink
    labels, scores = ([line[name] for line in lines] for name in ('label', 'score'))
    found = InstanceData(bboxes=boxes.minimum(last_pixel))
    if kind == 'mmrotate.RotLocalVisualizer':
        rotated = torch.tensor([line['rbox'] for line in lines]).reshape(-1, 5)
        rotated[:, :4] /= shrink
        found = InstanceData(bboxes=rotated)
    found.labels, found.scores = (
        torch.tensor(labels, dtype=torch.long),
        torch.tensor(scores),
    )
    visualizer = VISUALIZERS.build(dict(type=kind, name=str(path), line_width=1))
    colours = [palette[label] for label in range(len(classes))]
    visualizer.dataset_meta = dict(classes=classes, palette=colours)
    sample = DetDataSample(pred_instances=found)
    return draw(visualizer, path.name, small, sample, pred_score_thr=-1.0)
