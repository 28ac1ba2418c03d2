"""The canonical COCO file of one split, written image by image."""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np

from .geometry import box_corners
from .objects import Report

CATEGORY = re.compile(r'(?<="category_id": )(\d+)')
# What a ``SplitFile`` counts, as ``CanonicalSplit`` names it.
COUNTS = ('num_with_objects', 'num_objects', 'num_ignored', 'most_objects')


class Region(NamedTuple):
    """An image that is labelled for some classes alone."""

    image_id: int
    width: int
    height: int
    labelled: frozenset[str]


class SplitFile:
    """A COCO file that is written image by image: memory does not depend on their number."""

    def __init__(self, path: Path) -> None:
        self.file = open(path, 'w', encoding='utf-8')  # noqa: SIM115
        # On the disk that has to have the space.
        self.objects = TemporaryFile('w+', encoding='utf-8', dir=path.parent)  # noqa: SIM115
        self.encode = json.JSONEncoder(allow_nan=False).encode
        self.names = list[str]()  # of its images
        self.report = Report()  # of their labels
        self.counts = dict.fromkeys(COUNTS, 0)
        self.seen = Counter[tuple[int, int]]()  # objects by category_id and iscrowd
        self.shares = array('f')  # area of each box, of its image
        self.regions = list[Region]()

    def add(
        self,
        image: dict[str, Any],
        objects: Sequence[dict[str, Any]],
        labelled: frozenset[str] | None,
    ) -> None:
        """Add an image and its annotations, both without ids; ``labelled``: see ``Labelled``."""
        self.names.append(image['file_name'])
        image_id = len(self.names)
        if labelled is not None:
            region = Region(image_id, image['width'], image['height'], labelled)
            self.regions.append(region)
        counts = self.counts
        self.file.write(',\n' if image_id > 1 else '{"images": [\n')
        self.file.write(self.encode(dict(id=image_id, **image)))
        pixels = image['height'] * image['width']
        for item in objects:
            _, _, width, height = item['bbox']
            self.shares.append(width * height / pixels)
            counts['num_objects'] += 1
            counts['num_ignored'] += item['iscrowd']
            self.seen[item['category_id'], item['iscrowd']] += 1
            about = dict(id=counts['num_objects'], image_id=image_id, **item)
            self.objects.write(f'{self.encode(about)}\n')
        counts['num_with_objects'] += bool(objects)
        counts['most_objects'] = max(counts['most_objects'], len(objects))

    def finish(
        self,
        classes: Sequence[str],
        number_of: Mapping[int, int],
    ) -> dict[str, Any]:
        """Write annotations and categories, and return values of the ``CanonicalSplit``.

        ``number_of`` has the number of each class by the number that its annotations have.
        """
        self.objects.seek(0)
        self.file.write('\n],\n"annotations": [')
        gap = '\n'
        for line in self.objects:
            start, given, rest = CATEGORY.split(line, maxsplit=1)
            number = number_of[int(given)]
            self.file.write(f'{gap}{start}{number}{rest[:-1]}')
            gap = ',\n'
        for number, item in enumerate(
            self.unlabelled(classes), self.counts['num_objects'] + 1
        ):
            self.file.write(f'{gap}{self.encode(dict(id=number, **item))}')
            gap = ',\n'
        categories = [
            dict(id=number, name=name) for number, name in enumerate(classes, start=1)
        ]
        self.file.write(f'\n],\n"categories": {json.dumps(categories)}}}\n')
        self.objects.close()
        self.file.close()
        lost = self.report.num_left_out
        sides = np.percentile(self.shares or [1.0], np.arange(101)) ** 0.5
        return dict(
            self.counts,
            classes=classes,
            num_images=len(self.names),
            num_partial=sum(
                not region.labelled.issuperset(classes) for region in self.regions
            ),
            num_cut=self.report.num_cut,
            sides=[float(f'{side:.4g}') for side in sides],
            labelled=self.report.kept + lost,
            left_out=lost,
        )

    def unlabelled(self, classes: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Annotations that ignore a class in all of an image that is not labelled for it."""
        for image_id, width, height, labelled in self.regions:
            box = (0.0, 0.0, float(width), float(height))
            for number, name in enumerate(classes, start=1):
                if name not in labelled:
                    yield dict(
                        image_id=image_id,
                        category_id=number,
                        iscrowd=1,
                        bbox=[*box],
                        area=width * height,
                        segmentation=[box_corners(box)],
                    )
