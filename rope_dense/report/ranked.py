"""The worst and the best images of a test."""

from bisect import insort
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .page import Page

WORST, BEST = 6, 3
PICTURES = [f'worst_{n + 1}.png' for n in range(WORST)] + [f'best_{n + 1}.png' for n in range(BEST)]


class Image(NamedTuple):
    """An image that a report may show.

    Attributes:
        score: the worst image has the least.
        row: its path and figures, for report.json.
        content: arrays that its picture is drawn from.
    """

    score: Any
    row: dict[str, Any]
    content: Any


class Ranked:
    """The worst and the best of the images that were added; the others are not kept."""

    def __init__(self) -> None:
        self.images: list[Image] = []

    def add(self, score: Any, row: dict[str, Any], content: Any = None) -> None:
        """Add an image, see ``Image``; of equal scores the first counts as the worse."""
        insort(self.images, Image(score, row, content), key=lambda image: image.score)
        if len(self.images) > WORST + BEST:
            del self.images[WORST]

    def add_to(
        self,
        page: Page,
        text: str,
        draw: Callable[[Image], np.ndarray],
        caption: Callable[[dict[str, Any]], str],
    ) -> None:
        """Add both as sections.

        Args:
            text: how to read a picture.
            draw: the picture of an image, BGR.
            caption: of a row, after the name of the file.
        """
        worst, best = self.images[:WORST], self.images[WORST:][::-1]
        for title, name, images in (('Worst', 'worst', worst), ('Best', 'best', best)):
            page.section(f'{title} pictures', text)
            page.figures[name] = [image.row for image in images]
            for number, image in enumerate(images, start=1):
                words = f'{Path(image.row["path"]).name}: {caption(image.row)}'
                with page.drawing(image.row['path']):
                    page.add_picture(f'{name}_{number}', draw(image), words)


def side_by_side(*pictures: np.ndarray) -> np.ndarray:
    """Pictures [H, W, 3] of one height beside each other, with white between them."""
    height, width = pictures[0].shape[:2]
    gap = np.full((height, max(6, width // 40), 3), 255, np.uint8)
    return np.hstack([part for picture in pictures for part in (gap, picture)][1:])
