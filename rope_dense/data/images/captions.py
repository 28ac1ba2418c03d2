"""Names of objects and segments on pictures, readable at any size of the picture."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import matplotlib
import numpy as np
from mmengine.visualization import Visualizer
from PIL import Image, ImageDraw, ImageFont

SIDE = 640  # pixels: lines have their width at this size of a picture, and grow with it
LINES = 28  # as many lines of text are as high as a square picture
LEAST = 11  # pixels: the lowest line
FEW = 8  # names that are left out without others in the corner
FONT = Path(matplotlib.get_data_path(), 'fonts', 'ttf', 'DejaVuSans.ttf')
Colour = Sequence[int]  # red, green, blue
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Caption:
    """A text, and the point that it stands on, or that is its middle."""

    text: str
    x: float
    y: float
    colour: Colour
    is_middle: bool = False

    def place(self, font: ImageFont.FreeTypeFont, width: int) -> Rectangle:
        """Its rectangle in a picture of a width."""
        box = font.getbbox(self.text)
        margin = font.size / 4
        across = box[2] + margin
        down = box[3] + margin
        left = self.x - across / 2 if self.is_middle else self.x
        top = self.y - down / 2 if self.is_middle else self.y - down
        left = max(0, min(left, width - across))
        top = max(0, top)
        return left, top, left + across, top + down


def scale(image: np.ndarray) -> float:
    """The side of a square of the area of an image, in pixels."""
    return math.sqrt(image.shape[0] * image.shape[1])


def without_captions(
    visualizer: Visualizer, image: np.ndarray, palette: Sequence[Colour]
) -> tuple[Visualizer, list[Caption]]:
    """A visualizer for an image, in colours of classes, and the list where it puts its texts."""
    captions = list[Caption]()
    outlines = list[
        np.ndarray
    ]()  # of rotated boxes, which are drawn before their texts
    painter = copy.copy(visualizer)

    def draw_polygons(polygons: Any, **settings: Any) -> Visualizer:
        outlines.extend(map(np.asarray, polygons))
        return visualizer.__class__.draw_polygons(painter, polygons, **settings)

    def keep(
        text: str, position: Any, *, colors: Colour, **settings: Any
    ) -> Visualizer:
        is_middle = settings.get('horizontal_alignments') == 'center'
        if outlines and not is_middle:
            position = outlines[len(captions)].min(0)
        x, y = map(float, position)
        captions.append(Caption(text, x, y, colors, is_middle))
        return painter

    painter.draw_polygons = draw_polygons
    painter.draw_texts = keep
    painter.dataset_meta = visualizer.dataset_meta | dict(palette=palette)
    painter.text_color = palette
    painter.dpi = 100 * scale(image) / SIDE  # widths of lines are in points
    painter.fig_save.set_dpi(painter.dpi)
    return painter, captions


def segment_captions(
    labels: np.ndarray, classes: Sequence[str], palette: Sequence[Colour]
) -> Iterator[Caption]:
    """The name of each class of a label image [H, W], within its widest part."""
    for number, name in enumerate(classes):
        mask = np.pad(labels == number, 1).astype(np.uint8)
        if mask.any():
            inside = cv2.distanceTransform(mask, cv2.DIST_L2, 3)
            y, x = np.unravel_index(inside.argmax(), inside.shape)
            yield Caption(name, float(x), float(y), palette[number], True)


def write_captions(
    image: np.ndarray,
    captions: Sequence[Caption],
    names: Mapping[tuple[int, ...], str],
) -> np.ndarray:
    """A copy of an image (RGB) with captions, but for those that would cover another.

    Where a third of them would cover other objects, the names of the colours are in the corner
    instead.
    """
    font = font_of(max(LEAST, round(scale(image) / LINES)))
    points = np.array([(one.x, one.y) for one in captions]).reshape(-1, 2)
    placed = list[tuple[Caption, Rectangle]]()
    crowded = 0
    for caption in captions:
        place = caption.place(font, image.shape[1])
        left, top, right, bottom = place
        is_other = np.abs(points - (caption.x, caption.y)).max(1) > font.size
        near = (left - font.size, top - font.size)  # an object is below its point
        covers = is_other & ((points > near) & (points < (right, bottom))).all(1)
        taken = np.array([other for _, other in placed]).reshape(-1, 4)
        meets = (taken[:, :2] < (right, bottom)) & (taken[:, 2:] > (left, top))
        if covers.any():
            crowded += 1
        elif not meets.all(1).any():
            placed.append((caption, place))
    if crowded > max(FEW, len(captions) / 3):
        colours = {tuple(one.colour) for one in captions}
        placed = []
        for colour, name in names.items():
            if colour in colours:
                entry = Caption(name, 0, 2 * font.size * (1 + len(placed)), colour)
                placed.append((entry, entry.place(font, image.shape[1])))
    return with_texts(image, placed, font)


def with_texts(
    image: np.ndarray,
    placed: Sequence[tuple[Caption, Rectangle]],
    font: ImageFont.FreeTypeFont,
) -> np.ndarray:
    """A copy of an image with captions in their rectangles."""
    picture = Image.fromarray(image)
    pen = ImageDraw.Draw(picture)
    margin = font.size / 8
    for caption, place in placed:
        colour = tuple(caption.colour)
        pen.rectangle(place, colour)
        is_light = np.dot(colour, (0.299, 0.587, 0.114)) > 128
        ink = 'black' if is_light else 'white'
        pen.text((place[0] + margin, place[1] + margin), caption.text, ink, font)
    return np.array(picture)


@cache
def font_of(size: int) -> ImageFont.FreeTypeFont:
    """The font of captions, in pixels."""
    return ImageFont.truetype(FONT, size)
