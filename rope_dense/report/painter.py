"""Pictures of objects: truth beside predictions, and objects cut out."""

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
from .ranked import side_by_side

Colour = tuple[int, int, int]
Part = tuple[int, int, int, int]  # left, top, right, bottom in pixels of an image
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
        left, top, right, bottom = part = self.part(image)
        rgb = self.read(self.images[image]['path'])[top:bottom, left:right]
        zoom = max(1.0, LEGIBLE / min(rgb.shape[:2]))
        rgb = cv2.resize(rgb, None, fx=zoom, fy=zoom, interpolation=cv2.INTER_CUBIC)
        parts = [
            [item for item in items if item['image_id'] == image and touches(item, part)]
            for items in (self.truth, self.predictions)
        ]
        return side_by_side(*(self.drawn(rgb, items, zoom, part) for items in parts))

    def part(self, image: int) -> Part:
        """The part of an image to draw."""
        size = np.array([self.images[image]['width'], self.images[image]['height']])
        boxes = np.array([x['bbox'] for x in self.errors if x['image_id'] == image])
        if size.max() <= MOST or not len(boxes):
            return 0, 0, *size.tolist()
        centres = boxes[:, :2] + boxes[:, 2:] / 2
        near = [(np.abs(centres - one).max(1) < LEGIBLE / 2).sum() for one in centres]
        start = (centres[int(np.argmax(near))] - LEGIBLE / 2).clip(0, np.maximum(size - LEGIBLE, 0))
        left, top = start.astype(int).tolist()
        return left, top, *np.minimum(start.astype(int) + LEGIBLE, size).tolist()

    def drawn(self, rgb: np.ndarray, items: Sequence[dict], zoom: float, part: Part) -> np.ndarray:
        """A picture (BGR) of a part with objects, with coordinates at a `zoom` of 1."""
        height, width = rgb.shape[:2]
        boxes = torch.tensor([item['bbox'] for item in items], dtype=torch.float32).reshape(-1, 4)
        boxes = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
        boxes = (zoom * (boxes - torch.tensor(part[:2] * 2))).clamp(min=0)
        last = torch.tensor([width - 1, height - 1] * 2)  # the visualizer warns beyond it
        labels = torch.tensor([item['category_id'] - 1 for item in items]).long()
        objects = InstanceData(labels=labels)
        objects.bboxes = boxes.minimum(last)
        objects.label_names = [self.label(item) for item in items]
        if items and 'segmentation' in items[0]:
            inside = slice(part[1], part[3]), slice(part[0], part[2])
            masks = [coco_mask.decode(item['segmentation'])[inside] for item in items]
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


def touches(item: dict, part: Part) -> bool:
    """Return whether the box of an object is partly in a part of its image."""
    x, y, width, height = item['bbox']
    return x < part[2] and y < part[3] and x + width > part[0] and y + height > part[1]
