"""Pictures with predictions drawn on them."""

import copy
import sys
import warnings
from typing import Any

import cv2
import numpy as np
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer

from ..classes import distinct_colour
from ..panoptic import OFFSET
from .captions import segment_captions, without_captions, write_captions

LEGEND = 72  # pixels: width of a legend
GAP = 4  # before its bar
BAR = 12  # width of the bar
TEXT = 12  # height of text


def draw(
    visualizer: Visualizer,
    name: str,
    image: np.ndarray,
    sample: BaseDataElement,
    **settings: Any,
) -> np.ndarray:
    """A copy of an image (BGR) with a prediction drawn on it, by ``add_datasample``.

    ``captions`` writes the names. ``settings`` such as ``draw_gt=True, draw_pred=False``
    draw the truth.
    """
    if 'pred_panoptic_seg' in sample:
        num_classes = len(visualizer.dataset_meta['classes'])
        if not (sample.pred_panoptic_seg.sem_seg % OFFSET < num_classes).any():
            sample = copy.copy(sample)
            del sample.pred_panoptic_seg  # mmdet cannot draw no segment
    rgb = np.ascontiguousarray(image[..., ::-1])
    meta = visualizer.dataset_meta
    classes = meta['classes']
    palette = meta.get('palette') or [*map(distinct_colour, range(len(classes)))]
    painter, captions = without_captions(visualizer, rgb, palette)
    shown = {'draw_gt': False} | settings
    mmseg = sys.modules.get('mmseg.visualization')  # of its visualizers
    if mmseg and isinstance(visualizer, mmseg.SegLocalVisualizer):
        shown['with_labels'] = False  # as they are small
        labels = sample.get('gt_sem_seg' if shown['draw_gt'] else 'pred_sem_seg')
        captions += segment_captions(labels.data[0].numpy(), classes, palette)
    with warnings.catch_warnings():
        # Rotated boxes reach beyond the image.
        warnings.filterwarnings('ignore', '.*out of bounds')
        painter.add_datasample(name, rgb, sample, **shown)
    names = {tuple(palette[number]): name for number, name in enumerate(classes)}
    drawn = write_captions(painter.get_image(), captions, names)
    return np.ascontiguousarray(drawn[..., ::-1])


def draw_depth(image: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """An image [H, W, 3] (BGR) with its ``depth_picture`` beside it."""
    return np.hstack([image, depth_picture(depth)])


def depth_picture(depth: np.ndarray) -> np.ndarray:
    """Depth [H, W] in colours, with a scale bar in metres at its right: BGR [H, W + LEGEND, 3].

    Near is red and far is blue, evenly between the least and the largest depth; unknown depths (0)
    are black.
    """
    known = depth[depth > 0]
    if not known.size:
        known = np.zeros(1)
    low = float(known.min())
    high = float(known.max())
    height = len(depth)
    scale = np.linspace(low, high, height, dtype=np.float32)
    bar = scale[:, None].repeat(BAR, 1)
    legend = np.full((height, LEGEND, 3), 255, np.uint8)
    legend[:, GAP : GAP + BAR] = colour_depth(bar, low, high)
    labels = max(2, min(6, height // (2 * TEXT)))
    for share in np.linspace(0, 1, labels):
        cv2.putText(
            legend,
            f'{low + share * (high - low):.3g} m',
            (GAP + BAR + 3, round(TEXT + share * (height - TEXT - 3))),
            cv2.FONT_HERSHEY_SIMPLEX,
            0.4,
            (0, 0, 0),
            1,
            cv2.LINE_AA,
        )
    return np.hstack([colour_depth(depth, low, high), legend])


def colour_depth(depth: np.ndarray, low: float, high: float) -> np.ndarray:
    """Depth [H, W] as colours, BGR [H, W, 3], from red at ``low`` to blue at ``high``."""
    share = (high - depth) / max(high - low, 1e-9)
    grey = (share.clip(0, 1) * 255).astype(np.uint8)
    colours = cv2.applyColorMap(grey, cv2.COLORMAP_TURBO)
    colours[depth <= 0] = 0
    return colours


def draw_features(image: np.ndarray, features: np.ndarray) -> np.ndarray:
    """The three principal components of features [C, H, W] in the size of their image, BGR.

    They are blue, green and red, each from its least to its largest value.
    """
    x = features.reshape(len(features), -1).T.astype(np.float64)  # [H W, C]
    x -= x.mean(0)
    directions = np.linalg.eigh(x.T @ x)[1]
    x = x @ directions[:, -3:]  # [H W, 3]
    x = (x - x.min(0)) / np.maximum(np.ptp(x, axis=0), 1e-9)
    places = (255 * x).astype(np.uint8)
    places = places.reshape(*features.shape[1:], 3)
    return cv2.resize(places, image.shape[1::-1], interpolation=cv2.INTER_NEAREST)


def encoded(picture: np.ndarray, suffix: str = '.jpg') -> bytes:
    """The content of an image file of a picture (BGR)."""
    return cv2.imencode(suffix, picture)[1].tobytes()
