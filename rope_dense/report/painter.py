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


class Painter:
    """Pictures of the images, with truth beside predictions.

    Args:
        images, truth, predictions: in COCO's form.
        read: see ``picture_reader``.
    """

    def __init__(
        self,
        images: Sequence[dict],
        truth: Sequence[dict],
        predictions: Sequence[dict],
        classes: Sequence[str],
        colours: Sequence[Colour],
        read: ReadPicture,
    ) -> None:
        self.images, self.truth, self.predictions = images, truth, predictions
        self.classes, self.read = classes, read
        self.visualizer = DetLocalVisualizer(name='report')
        self.visualizer.dataset_meta = dict(classes=classes, palette=list(colours))

    def draw(self, image: int) -> np.ndarray:
        """An image with its truth, beside itself with its predictions (BGR)."""
        rgb = self.read(self.images[image]['path'])
        zoom = max(1.0, LEGIBLE / min(rgb.shape[:2]))
        rgb = cv2.resize(rgb, None, fx=zoom, fy=zoom, interpolation=cv2.INTER_CUBIC)
        both = (self.truth, self.predictions)
        parts = [[item for item in items if item['image_id'] == image] for items in both]
        return beside(*(self.drawn(rgb, items, zoom) for items in parts))

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
