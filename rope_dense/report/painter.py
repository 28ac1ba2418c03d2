"""Pictures of objects: truth beside predictions, and objects cut out."""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import mmcv
import numpy as np
import torch
from mmdet.structures import DetDataSample
from mmdet.visualization import DetLocalVisualizer
from mmengine.structures import InstanceData
from pycocotools import mask as coco_mask

from .predictions import ReadPicture
from .ranked import beside

Colour = tuple[int, int, int]
LEGIBLE = 480  # pixels of the shorter side, below which the names of objects could not be read
MOST = 1600  # pixels of a side; of a larger image a part with many errors is shown


class Painter:
    """Pictures of the images, with truth beside predictions.

    Args:
        images, truth, predictions: in COCO's form.
        read: see ``picture_reader``.
        errors: truth and predictions that do not match.
    """

    def __init__(
        self,
        images: Sequence[dict],
        truth: Sequence[dict],
        predictions: Sequence[dict],
        classes: Sequence[str],
        colours: Sequence[Colour],
        read: ReadPicture,
        errors: Sequence[dict] = (),
    ) -> None:
        self.images, self.truth, self.predictions = images, truth, predictions
        self.errors = errors
        self.classes, self.read = classes, read
        self.visualizer = DetLocalVisualizer(name='report')
        self.visualizer.dataset_meta = dict(classes=classes, palette=list(colours))

    def draw(self, image: int) -> np.ndarray:
        """An image, or a part of a large one, with its truth, beside its predictions (BGR)."""
        rgb = self.read(self.images[image]['path'])
        left, top, right, bottom = self.part(image)
        rgb = rgb[top:bottom, left:right]
        zoom = max(1.0, LEGIBLE / min(rgb.shape[:2]))
        rgb = cv2.resize(rgb, None, fx=zoom, fy=zoom, interpolation=cv2.INTER_CUBIC)
        shown = []
        for items in (self.truth, self.predictions):
            some = [item for item in items if item['image_id'] == image]
            inside = [moved(item, (left, top, right, bottom)) for item in some]
            shown.append(self.drawn(rgb, [item for item in inside if item], zoom))
        return beside(*shown)

    def part(self, image: int) -> tuple[int, int, int, int]:
        """The part of an image to draw: left, top, right, bottom, in pixels."""
        size = np.array([self.images[image]['width'], self.images[image]['height']])
        boxes = np.array([x['bbox'] for x in self.errors if x['image_id'] == image])
        if size.max() <= MOST or not len(boxes):
            return 0, 0, *size.tolist()
        centres = boxes[:, :2] + boxes[:, 2:] / 2
        near = [(np.abs(centres - one).max(1) < LEGIBLE / 2).sum() for one in centres]
        start = (centres[int(np.argmax(near))] - LEGIBLE / 2).clip(0, np.maximum(size - LEGIBLE, 0))
        left, top = start.astype(int).tolist()
        return left, top, *np.minimum(start.astype(int) + LEGIBLE, size).tolist()

    def drawn(self, rgb: np.ndarray, items: Sequence[dict], zoom: float) -> np.ndarray:
        """A picture (BGR) with objects, with coordinates at a `zoom` of 1."""
        height, width = rgb.shape[:2]
        boxes = torch.tensor([item['bbox'] for item in items], dtype=torch.float32).reshape(-1, 4)
        boxes = zoom * torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
        last = torch.tensor([width - 1, height - 1] * 2)  # the visualizer warns beyond it
        labels = torch.tensor([item['category_id'] - 1 for item in items]).long()
        objects = InstanceData(labels=labels)
        objects.bboxes = boxes.minimum(last)
        objects.label_names = [self.label(item) for item in items]
        if items and 'segmentation' in items[0]:
            masks = [coco_mask.decode(item['segmentation']) for item in items]
            masks = [cv2.resize(m, (width, height), interpolation=cv2.INTER_NEAREST) for m in masks]
            objects.masks = torch.from_numpy(np.stack(masks)).bool()
        sample = DetDataSample(gt_instances=objects)
        self.visualizer.add_datasample('report', rgb, sample, draw_pred=False)
        return np.ascontiguousarray(self.visualizer.get_image()[..., ::-1])

    def crop(self, item: dict, other: dict | None = None) -> np.ndarray:
        """The square around an object (RGB), twice its size, grey outside of the image.

        Its box is yellow, and the one of another object blue.
        """
        rgb = self.read(self.images[item['image_id']]['path'])
        left, top, width, height = item['bbox']
        side = max(width, height, 8)
        centre = np.array([left + width / 2, top + height / 2])
        corners = np.concatenate([centre - side, centre + side - 1])
        boxes = [np.array([x['bbox']]) * 1.0 for x in (other, item) if x]
        for box in boxes:
            box[:, 2:] += box[:, :2]
        colours = [(0, 110, 255), (255, 210, 0)][-len(boxes) :]
        marked = mmcv.imshow_bboxes(rgb, boxes, colors=colours, show=False)
        return mmcv.imcrop(marked, corners, pad_fill=128)

    def label(self, item: dict) -> str:
        """The class of an object, with its score if it is a prediction."""
        score = f' {item["score"]:.2f}' if 'score' in item else ''
        return f'{self.classes[item["category_id"] - 1]}{score}'


def moved(item: dict, part: tuple[int, int, int, int]) -> dict | None:
    """An object in the pixels of a part of its image (left, top, right, bottom), or None."""
    left, top, right, bottom = part
    x, y, width, height = item['bbox']
    x0, y0, x1, y1 = max(x, left), max(y, top), min(x + width, right), min(y + height, bottom)
    if x0 >= x1 or y0 >= y1:
        return None
    found = dict(item, bbox=[x0 - left, y0 - top, x1 - x0, y1 - y0])
    if 'segmentation' in item:
        mask = coco_mask.decode(item['segmentation'])[top:bottom, left:right]
        found['segmentation'] = coco_mask.encode(np.asfortranarray(mask))
    return found
