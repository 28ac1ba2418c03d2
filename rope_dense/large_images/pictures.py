"""Small pictures of the results of large images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import cv2
import mmcv
import numpy as np
import torch
from mmengine.registry import VISUALIZERS
from mmengine.structures import InstanceData

from ..datasets.images.drawing import draw
from .image_file import LargeImage

if find_spec('mmdet'):
    from mmdet.structures import DetDataSample

SIDE = 2000  # pixels at most of the longer side of a picture

Palette = Mapping[int, tuple[int, int, int]]  # red, green, blue


def shrunken(path: Path) -> tuple[np.ndarray, int]:
    """An image [H, W, 3], not larger than a picture, and how many times it is shrunken."""
    image = LargeImage(path)
    shrink = -(-max(image.height, image.width) // SIDE)
    image = LargeImage(path, shrink)
    return image.read(0, image.height), shrink


def draw_labels(
    path: Path, labels_file: Path, dtype: np.dtype, palette: Palette, out: Path
) -> None:
    """Write an image, every pixel mixed with the colour of its label."""
    full = LargeImage(path)
    picture, shrink = shrunken(path)
    labels = np.memmap(labels_file, dtype, 'r', shape=(full.height, full.width))
    middle = shrink // 2  # of the pixels that one pixel of the picture stands for
    rows, columns = (
        np.minimum(np.arange(small) * shrink + middle, large - 1)
        for small, large in zip(picture.shape, labels.shape, strict=False)
    )
    colours = np.zeros((max(palette) + 1, 3), np.uint8)
    for label, (red, green, blue) in palette.items():
        colours[label] = blue, green, red
    drawn = cv2.addWeighted(picture, 0.5, colours[labels[rows][:, columns]], 0.5, 0)
    mmcv.imwrite(drawn, str(out))


def draw_boxes(
    path: Path,
    lines: Sequence[dict],
    classes: Sequence[str],
    palette: Palette,
    out: Path,
    kind: str = 'mmdet.DetLocalVisualizer',
) -> None:
    """Write an image with its boxes, classes and scores.

    Args:
        kind: of the visualizer, which is mmrotate's for rotated boxes.
        lines: with box, score and label, see ``detection.detect``.
    """
    picture, shrink = shrunken(path)
    height, width = picture.shape[:2]
    last_pixel = torch.tensor([width - 1, height - 1] * 2)  # the visualizer warns beyond it
    boxes = torch.tensor([line['box'] for line in lines]).reshape(-1, 4) / shrink
    labels, scores = ([line[name] for line in lines] for name in ('label', 'score'))
    found = InstanceData(bboxes=boxes.minimum(last_pixel))
    if kind == 'mmrotate.RotLocalVisualizer':
        rotated = torch.tensor([line['rbox'] for line in lines]).reshape(-1, 5)
        rotated[:, :4] /= shrink
        found = InstanceData(bboxes=rotated)
    found.labels, found.scores = torch.tensor(labels, dtype=torch.long), torch.tensor(scores)
    visualizer = VISUALIZERS.build(dict(type=kind, name=str(out), line_width=1))
    colours = [palette[label] for label in range(len(classes))]
    visualizer.dataset_meta = dict(classes=classes, palette=colours)
    draw(visualizer, out, picture, DetDataSample(pred_instances=found), pred_score_thr=-1.0)
