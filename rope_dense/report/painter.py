"""Pictures of objects: truth beside predictions, and objects cut out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

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
YELLOW, BLUE = (255, 210, 0), (0, 110, 255)  # of a box and of another one, RGB
LEGIBLE = 480  # pixels of the shorter side, below which the names of objects could not be read
MOST = 1600  # pixels of a side; of a larger image a part with many errors is shown


class Picture(NamedTuple):
    """An image of the test data, by its file and its size in pixels."""

    path: str
    height: int
    width: int


class Crop(NamedTuple):
    """An object to be cut out under a title, and another one there, or None; see ``Objects``."""

    title: str
    item: Any
    other: Any = None


class Painter:
    """Pictures of the images, with truth beside predictions.

    Args:
        pictures: the images, by their index.
        matches: of the predictions that are shown.
        read: see ``picture_reader``.
    """

    def __init__(
        self,
        pictures: Sequence[Picture],
        matches: Matches,
        classes: Sequence[str],
        colours: Sequence[Colour],
        read: ReadPicture,
    ) -> None:
        self.pictures = pictures
        self.matches = matches
        self.classes = classes
        self.read = read
        self.visualizer = DetLocalVisualizer(name='report')
        self.visualizer.dataset_meta = dict(classes=classes, palette=list(colours))

    def draw(self, image: int) -> np.ndarray:
        """An image, or a part of a large one, with its truth, beside its predictions (BGR)."""
        part = self.part(image)
        picture = self.read(self.pictures[image].path, part)[..., ::-1]
        zoom = max(1.0, LEGIBLE / min(picture.shape[:2]))
        cubic = cv2.INTER_CUBIC
        picture = cv2.resize(picture, None, fx=zoom, fy=zoom, interpolation=cubic)
        drawn = []
        for objects in (self.matches.truth, self.matches.predictions):
            is_shown = (objects['image'] == image) & touches(objects['box'], part)
            drawn.append(self.drawn(picture, objects[is_shown], zoom, part))
        return side_by_side(*drawn)

    def part(self, image: int) -> Part:
        """The part of an image to draw: of a large one with many errors, or else objects."""
        picture = self.pictures[image]
        matches = self.matches
        size = np.array([picture.width, picture.height])
        wrong = matches.predictions[~matches.are('right', 'ignored')]
        errors = np.concatenate([wrong, matches.truth[matches.missed]])
        for objects in (errors, matches.truth):
            boxes = objects['box'][objects['image'] == image]
            if len(boxes):
                break
        if size.max() <= MOST or not len(boxes):
            return 0, 0, picture.width, picture.height
        centres = boxes[:, :2] + boxes[:, 2:] / 2
        near = [(np.abs(centres - one).max(1) < LEGIBLE / 2).sum() for one in centres]
        busiest = centres[int(np.argmax(near))]
        start = (busiest - LEGIBLE / 2).clip(0, np.maximum(size - LEGIBLE, 0))
        left, top = start.astype(int).tolist()
        right, bottom = np.minimum(start.astype(int) + LEGIBLE, size).tolist()
        return left, top, right, bottom

    def drawn(
        self,
        picture: np.ndarray,
        objects: Objects,
        zoom: float,
        part: Part,
    ) -> np.ndarray:
        """A picture (BGR) of a part with objects, with coordinates at a `zoom` of 1."""
        height, width = picture.shape[:2]
        left, top, right, bottom = part
        last = [width - 1, height - 1] * 2  # the visualizer warns beyond it
        boxes = (zoom * (corners(objects['box']) - [left, top] * 2)).clip(0, last)
        shown = InstanceData(labels=torch.from_numpy(objects['label'] - 1).long())
        shown.bboxes = torch.from_numpy(boxes).float()
        shown.label_names = list(map(self.label, objects))
        if len(objects) and objects['mask'][0] is not None:
            masks = []
            nearest = cv2.INTER_NEAREST
            for run_lengths in objects['mask']:
                mask = coco_mask.decode(run_lengths)[top:bottom, left:right]
                masks.append(cv2.resize(mask, (width, height), interpolation=nearest))
            shown.masks = torch.from_numpy(np.stack(masks)).bool()
        sample = DetDataSample(gt_instances=shown)
        return draw(
            self.visualizer,
            'report',
            picture,
            sample,
            draw_gt=True,
            draw_pred=False,
        )

    def add_crops(
        self,
        page: Page,
        name: str,
        crops: Sequence[Crop],
        caption: str,
    ) -> None:
        """Add crops to a page, see ``crop``."""
        pictures = []
        for title, item, other in crops:
            with page.drawing(self.pictures[item['image']].path):
                pictures.append((self.crop(item, other), title))
        if pictures:
            page.add_figure(name, figures.draw_grid(pictures), caption)

    def crop(self, item: Any, other: Any = None) -> np.ndarray:
        """The square around an object (RGB), twice its size, grey outside of the image.

        Its box is yellow, and the one of another object blue.
        """
        picture = self.pictures[item['image']]
        place = item['box'][:2]
        sides = item['box'][2:]
        centre = place + sides / 2
        side = max(*sides, 8)
        square = np.concatenate([centre - side, centre + side - 1]).astype(int)
        size = np.array([picture.width, picture.height])
        start = square[:2].clip(0, size - 1)
        stop = np.maximum(square[2:] + 1, start + 1).clip(max=size)
        part = (*start.tolist(), *stop.tolist())
        shift = np.tile(start, 2)
        rgb = self.read(picture.path, part)
        for one, colour in ((other, BLUE), (item, YELLOW)):
            if one is not None:
                box = corners(one['box'][None]).astype(int) - shift
                rgb = mmcv.imshow_bboxes(rgb, [box], colors=[colour], show=False)
        return mmcv.imcrop(rgb, square - shift, pad_fill=128)

    def label(self, item: Any) -> str:
        """The class of an object, with its score if it is a prediction."""
        name = self.classes[item['label'] - 1]
        return name if np.isnan(item['score']) else f'{name} {item["score"]:.2f}'


def touches(boxes: np.ndarray, part: Part) -> np.ndarray:
    """True for boxes [N, 4] that are partly in a part of their image."""
    left, top, right, bottom = corners(boxes).T
    return (left < part[2]) & (top < part[3]) & (right > part[0]) & (bottom > part[1])
