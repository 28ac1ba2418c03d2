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

from ..datasets.images.drawing import draw
from . import figures
from .matching import Matches
from .objects import item_of
from .page import Page
from .predictions import Part, ReadPicture
from .ranked import side_by_side

Colour = tuple[int, int, int]
LEGIBLE = 480  # pixels of the shorter side, below which the names of objects could not be read
MOST = 1600  # pixels of a side; of a larger image a part with many errors is shown


class Painter:
    """Pictures of the images, with truth beside predictions.

    Args:
        images: with path, height and width.
        matches: of the predictions that are shown.
        read: see ``picture_reader``.
    """

    def __init__(
        self,
        images: Sequence[dict],
        matches: Matches,
        classes: Sequence[str],
        colours: Sequence[Colour],
        read: ReadPicture,
    ) -> None:
        self.images, self.matches, self.classes, self.read = images, matches, classes, read
        self.visualizer = DetLocalVisualizer(name='report')
        self.visualizer.dataset_meta = dict(classes=classes, palette=list(colours))

    def draw(self, image: int) -> np.ndarray:
        """An image, or a part of a large one, with its truth, beside its predictions (BGR)."""
        part = self.part(image)
        picture = self.read(self.images[image]['path'], part)[..., ::-1]
        zoom = max(1.0, LEGIBLE / min(picture.shape[:2]))
        picture = cv2.resize(picture, None, fx=zoom, fy=zoom, interpolation=cv2.INTER_CUBIC)
        drawn = []
        for objects in (self.matches.truth, self.matches.predictions):
            items = [item_of(objects, place) for place in np.flatnonzero(objects['image'] == image)]
            inside = [item for item in items if touches(item, part)]
            drawn.append(self.drawn(picture, inside, zoom, part))
        return side_by_side(*drawn)

    def part(self, image: int) -> Part:
        """The part of an image to draw: of a large one with many errors, or else objects."""
        size = np.array([self.images[image]['width'], self.images[image]['height']])
        matches, truth = self.matches, self.matches.truth
        wrong = matches.predictions[~matches.are('right', 'ignored')]
        errors = np.concatenate([wrong, truth[matches.missed]])
        shown = [objects['box'][objects['image'] == image] for objects in (errors, truth)]
        boxes = shown[0] if len(shown[0]) else shown[1]
        if size.max() <= MOST or not len(boxes):
            return 0, 0, *size.tolist()
        centres = boxes[:, :2] + boxes[:, 2:] / 2
        near = [(np.abs(centres - one).max(1) < LEGIBLE / 2).sum() for one in centres]
        start = (centres[int(np.argmax(near))] - LEGIBLE / 2).clip(0, np.maximum(size - LEGIBLE, 0))
        left, top = start.astype(int).tolist()
        return left, top, *np.minimum(start.astype(int) + LEGIBLE, size).tolist()

    def drawn(
        self, picture: np.ndarray, items: Sequence[dict], zoom: float, part: Part
    ) -> np.ndarray:
        """A picture (BGR) of a part with objects, with coordinates at a `zoom` of 1."""
        height, width = picture.shape[:2]
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
        return draw(self.visualizer, 'report', picture, sample, draw_gt=True, draw_pred=False)

    def add_crops(
        self, page: Page, name: str, objects: Sequence[tuple[str, dict, dict | None]], caption: str
    ) -> None:
        """Add ``crop`` of objects to a page, each as (title, the object, another one)."""
        crops = []
        for title, item, other in objects:
            with page.drawing(self.images[item['image_id']]['path']):
                crops.append((self.crop(item, other), title))
        if crops:
            page.add_figure(name, figures.draw_grid(crops), caption)

    def crop(self, item: dict, other: dict | None = None) -> np.ndarray:
        """The square around an object (RGB), twice its size, grey outside of the image.

        Its box is yellow, and the one of another object blue.
        """
        image = self.images[item['image_id']]
        left, top, width, height = item['bbox']
        side = max(width, height, 8)
        centre = np.array([left + width / 2, top + height / 2])
        corners = np.concatenate([centre - side, centre + side - 1]).astype(int)
        size = np.array([image['width'], image['height']])
        start = corners[:2].clip(0, size - 1)
        stop = np.maximum(corners[2:] + 1, start + 1).clip(max=size)
        rgb = self.read(image['path'], (*start.tolist(), *stop.tolist()))
        boxes = [np.array([x['bbox']]) for x in (other, item) if x]
        shift = np.tile(start, 2)
        boxes = [np.hstack([x[:, :2], x[:, :2] + x[:, 2:]]).astype(int) - shift for x in boxes]
        colours = [(0, 110, 255), (255, 210, 0)][-len(boxes) :]
        marked = mmcv.imshow_bboxes(rgb, boxes, colors=colours, show=False)
        return mmcv.imcrop(marked, corners - shift, pad_fill=128)

    def label(self, item: dict) -> str:
        """The class of an object, with its score if it is a prediction."""
        score = f' {item["score"]:.2f}' if 'score' in item else ''
        return f'{self.classes[item["category_id"] - 1]}{score}'


def touches(item: dict, part: Part) -> bool:
    """Return whether the box of an object is partly in a part of its image."""
    x, y, width, height = item['bbox']
    return x < part[2] and y < part[3] and x + width > part[0] and y + height > part[1]
