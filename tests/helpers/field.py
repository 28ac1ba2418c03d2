"""Tiny data sets as label tools write them, and what is read from them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import mmengine
import numpy as np
import pytest
from PIL import Image

SIZE = (30, 40)  # height, width of images


def image(
    path: Path, size: tuple[int, int] = SIZE, mode: str = 'RGB', **save: Any
) -> Path:
    """Write an image of (height, width) pixels in one colour; `save` goes to Pillow.

    The colour of RGB images depends on the path, so that no two files are copies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = (
        tuple(zlib.crc32(bytes(path)).to_bytes(4, 'big')[:3]) if mode == 'RGB' else None
    )
    Image.new(mode, size[::-1], 128 if mode in 'LPI' else colour).save(path, **save)
    return path


def write(path: Path, text: str | bytes) -> Path:
    """Write a text (UTF-8) or bytes, with the folders above."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def files(root: Path, given: Mapping[str, str | bytes | None]) -> Path:
    """Write files by their paths: an image for None, else a text."""
    for path, text in given.items():
        if text is None:
            image(root / path)
        else:
            write(root / path, text)
    return root


def mask(path: Path, labels: Any, mode: str | None = None) -> Path:
    """Write an array of labels [H, W] as an image."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(labels), mode).save(path)
    return path


def coco(
    images: list[dict], annotations: list[dict], categories: Mapping[int, str] | list
) -> str:
    """A COCO file as text; images get sizes and annotations ids unless given."""
    height, width = SIZE
    if isinstance(categories, Mapping):
        categories = [dict(id=number, name=name) for number, name in categories.items()]
    content = dict(
        images=[dict(dict(height=height, width=width), **item) for item in images],
        annotations=[
            dict(dict(id=n, iscrowd=0, category_id=1, image_id=1), **item)
            for n, item in enumerate(annotations, start=1)
        ],
        categories=categories,
    )
    return mmengine.dump(content, file_format='json')


@dataclass
class Reading:
    """The canonical files of a data set.

    Attributes:
        classes: names in their order.
        objects: by split, for each image [(class, rounded box, iscrowd)].
        content: by split, the whole file.
        text: the report.
    """

    classes: tuple[str, ...]
    objects: dict[str, dict[str, list[tuple[str, tuple[int, ...], int]]]]
    content: dict[str, dict]
    text: str


def reading(
    root: Path,
    format: str | None = None,
    classes: Sequence[str] | None = None,
    **rules: Any,
) -> Reading:
    """Find, read and write the canonical files of a folder by ``Rules``."""
    from rope_dense.data.labels.annotations import Rules
    from rope_dense.data.labels.canonical import write_canonical
    from rope_dense.data.labels.folders import find_labels
    from rope_dense.data.labels.inventory import Inventory

    out = root.parent / f'{root.name}_canonical'
    find = partial(find_labels, format=format)
    found = write_canonical(
        Inventory(root), find, out, classes, Rules(**rules), settings=format
    )
    splits, text = found.splits, found.text
    content = {
        split: mmengine.load(str(part.ann_file)) for split, part in splits.items()
    }
    objects = {split: objects_in(item) for split, item in content.items()}
    return Reading(splits['train'].classes, objects, content, text)


def refusal(root: Path) -> str:
    """The line that is said of a data set that cannot be used."""
    with pytest.raises(ValueError) as said:
        reading(root)
    assert '\n' not in str(said.value)
    return str(said.value)


def check_folder(
    build: Callable[[Path], None],
    root: Path,
    expected: tuple[str, str, str],
    objects: list,
) -> Reading:
    """Check the images of both splits, each with the objects, and a part of the report."""
    build(root)
    found = reading(root)
    *names, line = expected
    for split, images in zip(('train', 'val'), names, strict=True):
        assert found.objects[split] == {name: objects for name in images.split(', ')}
    assert line in found.text
    return found


def objects_in(content: dict) -> dict[str, list[tuple[str, tuple[int, ...], int]]]:
    """The objects of each image of a COCO file, by its file name."""
    names = {category['id']: category['name'] for category in content['categories']}
    files = {item['id']: item['file_name'] for item in content['images']}
    found: dict[str, list[tuple[str, tuple[int, ...], int]]] = {
        name: [] for name in files.values()
    }
    for item in content['annotations']:
        box = tuple(round(value) for value in item['bbox'])
        entry = names[item['category_id']], box, item['iscrowd']
        found[files[item['image_id']]].append(entry)
    return found
