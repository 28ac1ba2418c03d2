"""Scenes with small objects of two classes, and their labels, for training on tiles."""

import json
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

CLASSES = ('disc', 'square')
COLOURS = np.array([[40, 200, 60], [220, 60, 40]], np.uint8)


def draw_scene(
    height: int, width: int, number: int, seed: int, sizes: tuple[int, int] = (10, 24)
) -> tuple[np.ndarray, list[tuple[int, list[int]]]]:
    """A scene [height, width, 3] (RGB) of objects apart from each other: (class, x, y, w, h)."""
    random = np.random.default_rng(seed)
    image = random.integers(90, 150, (height, width, 3), dtype=np.uint8)
    objects, taken = list[tuple[int, list[int]]](), np.zeros((height, width), bool)
    while len(objects) < number:
        label, side = int(random.integers(2)), int(random.integers(*sizes))
        left, top = (
            int(random.integers(width - side)),
            int(random.integers(height - side)),
        )
        place = slice(top, top + side + 1), slice(left, left + side + 1)
        if taken[place].any():
            continue
        taken[place] = True
        colour = COLOURS[label].tolist()
        if label:
            image[top : top + side, left : left + side] = colour
        else:
            radius = side // 2
            side = 2 * radius + 1
            left, top = min(left, width - side), min(top, height - side)
            cv2.circle(image, (left + radius, top + radius), radius, colour, -1)
        objects.append((label, [left, top, side, side]))
    return image, objects


def write_scenes(
    root: Path,
    numbers: dict[str, int],
    height: int = 200,
    width: int = 300,
    objects: int = 30,
    suffix: str = '.png',
    outlines: bool = False,
) -> Path:
    """Scenes of splits as COCO: root/train/*.png, root/annotations/train.json ..."""
    (root / 'annotations').mkdir(parents=True)
    for split, number in numbers.items():
        (root / split).mkdir()
        images, annotations = list[dict](), list[dict]()
        for index in range(number):
            pixels, found = draw_scene(
                height, width, objects, index + 1000 * (split == 'val')
            )
            name = f'{index}{suffix}'
            Image.fromarray(pixels).save(root / split / name)
            images.append(dict(id=index, file_name=name, height=height, width=width))
            for label, (x, y, w, h) in found:
                item: dict = dict(
                    id=len(annotations) + 1,
                    image_id=index,
                    category_id=label,
                    iscrowd=0,
                )
                item |= dict(bbox=[x, y, w, h], area=w * h)
                if outlines:
                    item['segmentation'] = [[x, y, x + w, y, x + w, y + h, x, y + h]]
                annotations.append(item)
        content = dict(images=images, annotations=annotations)
        content['categories'] = [
            dict(id=index, name=name) for index, name in enumerate(CLASSES)
        ]
        (root / 'annotations' / f'{split}.json').write_text(json.dumps(content))
    return root
