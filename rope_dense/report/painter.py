"""Pictures of objects: truth beside predictions, and objects cut out."""

from collections.abc import Sequence
from typing import Any

import cv2
import mmcv
import numpy as np
import torch
from mmdet.structures import DetDataSample
from mmdet.visualization import DetLocalVisualizer
from mmengine.structures import InstanceData
from pycocotools import mask as coco_mask

from ..data.images.drawing import draw
from . import figures
from .objects import Matches, Objects, corners
from .page import Page
from .predictions import Part, ReadPicture, side_by_side

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
        self.images, self.matches, self.classes, self.read = (
            images,
            matches,
            classes,
            read,
        )
        self.visualizer = DetLocalVisualizer(name='report')
        self.visualizer.dataset_meta = dict(classes=classes, palette=list(colours))

    def draw(self, image: int) -> np.ndarray:
        """An image, or a part of a large one, with its truth, beside its predictions (BGR)."""
        part = self.part(image)
        picture = self.read(self.images[image]['path'], part)[..., ::-1]
        zoom = max(1.0, LEGIBLE / min(picture.shape[:2]))
        picture = cv2.resize(
            picture, None, fx=zoom, fy=zoom, interpolation=cv2.INTER_CUBIC
        )
        drawn = []
        for objects in (self.matches.truth, self.matches.predictions):
            inside = objects[
                (objects['image'] == image) & touches(objects['box'], part)
            ]
            drawn.append(self.drawn(picture, inside, zoom, part))
        return side_by_side(*drawn)

    def part(self, image: int) -> Part:
        """The part of an image to draw: of a large one with many errors, or else objects."""
        size = np.array([self.images[image]['width'], self.images[image]['height']])
        matches, truth = self.matches, self.matches.truth
        wrong = matches.predictions[~matches.are('right', 'ignored')]
        errors = np.concatenate([wrong, truth[matches.missed]])
        shown = [
            objects['box'][objects['image'] == image] for objects in (errors, truth)
        ]
        boxes = shown[0] if len(shown[0]) else shown[1]
        if size.max() <= MOST or not len(boxes):
            return 0, 0, *size.tolist()
        centres = boxes[:, :2] + boxes[:, 2:] / 2
        near = [(np.abs(centres - one).max(1) < LEGIBLE / 2).sum() for one in centres]
        start = (centres[int(np.argmax(near))] - LEGIBLE / 2).clip(
            0, np.maximum(size - LEGIBLE, 0)
        )
        left, top = start.astype(int).tolist()
        return left, top, *np.minimum(start.astype(int) + LEGIBLE, size).tolist()

    def drawn(
        self, picture: np.ndarray, objects: Objects, zoom: float, part: Part
    ) -> np.ndarray:
        """A picture (BGR) of a part with objects, with coordinates at a `zoom` of 1."""
        height, width = picture.shape[:2]
        last = [width - 1, height - 1] * 2  # the visualizer warns beyond it
        boxes = (zoom * (corners(objects['box']) - part[:2] * 2)).clip(0, last)
        shown = InstanceData(labels=torch.from_numpy(objects['label'] - 1).long())
        shown.bboxes = torch.from_numpy(boxes).float()
        shown.label_names = [self.label(item) for item in objects]
        if len(objects) and objects['mask'][0] is not None:
            inside = slice(part[1], part[3]), slice(part[0], part[2])
            masks = [coco_mask.decode(mask)[inside] for mask in objects['mask']]
            masks = [
                cv2.resize(m, (width, height), interpolation=cv2.INTER_NEAREST)
                for m in masks
            ]
            shown.masks = torch.from_numpy(np.stack(masks)).bool()
        sample = DetDataSample(gt_instances=shown)
        return draw(
            self.visualizer, 'report', picture, sample, draw_gt=True, draw_pred=False
        )

    def add_crops(
        self,
        page: Page,
        name: str,
        objects: Sequence[tuple[str, Any, Any]],
        caption: str,
    ) -> None:
        """Add ``crop`` of objects to a page, each as (title, the object, another one or None)."""
        crops = []
        for title, item, other in objects:
            with page.drawing(self.images[item['image']]['path']):
                crops.append((self.crop(item, other), title))
        if crops:
            page.add_figure(name, figures.draw_grid(crops), caption)

    def crop(self, item: Any, other: Any = None) -> np.ndarray:
        """The square around an object (RGB), twice its size, grey outside of the image.

        Its box is yellow, and the one of another object blue.
        """
        image = self.images[item['image']]
        place, sides = item['box'][:2], item['box'][2:]
        centre, side = place + sides / 2, max(*sides, 8)
        square = np.concatenate([centre - side, centre + side - 1]).astype(int)
        size = np.array([image['width'], image['height']])
        start = square[:2].clip(0, size - 1)
        stop = np.maximum(square[2:] + 1, start + 1).clip(max=size)
        rgb = self.read(image['path'], (*start.tolist(), *stop.tolist()))
        shift = np.tile(start, 2)
        marked = [x['box'][None] for x in (other, item) if x is not None]
        boxes = [corners(box).astype(int) - shift for box in marked]
        colours = [(0, 110, 255), (255, 210, 0)][-len(boxes) :]
        rgb = mmcv.imshow_bboxes(rgb, boxes, colors=colours, show=False)
        return mmcv.imcrop(rgb, square - shift, pad_fill=128)

    def label(self, item: Any) -> str:
        """The class of an object, with its score if it is a prediction."""
        score = '' if np.isnan(item['score']) else f' {item["score"]:.2f}'
        return f'{self.classes[item["label"] - 1]}{score}'


def touches(boxes: np.ndarray, part: Part) -> np.ndarray:
    """True for boxes [N, 4] that are partly in a part of their image."""
    left, top, right, bottom = corners(boxes).T
    return (left < part[2]) & (top < part[3]) & (right > part[0]) & (bottom > part[1])
