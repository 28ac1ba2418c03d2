"""Tiles of a COCO data set as files, for tools that do not read windows of images."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from ..datasets.images.band_files import BandFile, write_bands
from ..datasets.images.headers import read_header
from ..datasets.images.pictures import is_picture
from ..datasets.labels.files import read_json
from ..utils.atomic_write import atomic_folder, atomic_write_text
from ..utils.progress import progress
from .band_image import open_image, window_file
from .objects import objects_in
from .tiles import TilePlan


def write_tiles(
    source: Path,
    out: Path,
    images: Path | None = None,
    *,
    tile: int,
    overlap: int | None = None,
    scales: Sequence[float] = (1.0,),
    least_share: float = 0.7,
) -> None:
    """Write images/NAME__SCALE__LEFT___TOP.png, as DOTA's devkit names tiles, and tiles.json.

    Pictures of 8 bits become PNG, other images TIFF. Objects are those of ``TiledDataset``: an
    object of which less than a share is left is `iscrowd`.

    Args:
        source: COCO file.
        out: new folder.
        images: their folder; by default the folder of the file.
        tile, overlap, scales: see ``TilePlan``; by default a quarter of a tile overlaps.

    Raises:
        ValueError: out is there, or an image or the file cannot be read; nothing is written.
    """
    plan = TilePlan(tile, tile // 4 if overlap is None else overlap, scales)
    content, home = read_json(source), images or source.parent
    if out.exists():
        raise ValueError(f'{out} exists, and nothing is written over: give another folder')
    with atomic_folder(out) as fresh:
        (fresh / 'images').mkdir()
        found = dict(images=[], annotations=[], categories=content['categories'])
        for image in progress(content['images'], 'tiles of images'):
            items = [x for x in content['annotations'] if x['image_id'] == image['id']]
            add_tiles(found, home / image['file_name'], items, plan, fresh, least_share)
        shutil.rmtree(fresh / 'copies', ignore_errors=True)
        atomic_write_text(fresh / 'tiles.json', json.dumps(found))
    print(f'{out}: {len(found["images"])} tiles, {len(found["annotations"])} objects')


def add_tiles(
    found: dict, path: Path, items: Sequence[dict], plan: TilePlan, out: Path, least_share: float
) -> None:
    """Write the tiles of an image, and add them and their annotations to a COCO data set."""
    header = read_header(path)
    size, is_plain = (header.height, header.width), header.dtype in ('uint8', 'bool')
    is_plain &= is_picture(header, by_opencv=False)
    copies = str(out / 'copies')
    image = open_image(path, None, 1, copies) if is_plain else None
    bands = None if image else BandFile(window_file(path, copies, None, writes=True))
    instances = [instance_of(item) for item in items]
    boxes = np.array([x['bbox'] for x in instances], float).reshape(-1, 4)
    for window in plan.windows(*size):
        scale = plan.tile / max(plan.tile, window.right - window.left, window.bottom - window.top)
        name = f'{path.stem}__{scale:g}__{window.left}___{window.top}'
        name += '.png' if image else '.tif'
        if image:
            cv2.imwrite(str(out / 'images' / name), image.window(*window))
        elif bands:
            rows, columns = (window.top, window.bottom), (window.left, window.right)
            write_bands(out / 'images' / name, bands.read(None, rows, columns)[0])
        height, width = window.bottom - window.top, window.right - window.left
        number = len(found['images']) + 1
        about = dict(id=number, file_name=f'images/{name}', height=height, width=width)
        found['images'].append(about)
        for item in objects_in(instances, boxes, window, size, least_share)[0]:
            x0, y0, x1, y1 = item['bbox']
            box = dict(bbox=[x0, y0, x1 - x0, y1 - y0], area=(x1 - x0) * (y1 - y0))
            more = dict(segmentation=item['mask']) if 'mask' in item else {}
            about = dict(id=len(found['annotations']) + 1, image_id=number, **box, **more)
            about |= dict(category_id=item['category_id'], iscrowd=item['ignore_flag'])
            found['annotations'].append(about)


def instance_of(item: dict) -> dict:
    """An annotation of COCO as an object of ``objects_in``."""
    left, top, width, height = item['bbox']
    found = dict(bbox=[left, top, left + width, top + height], category_id=item['category_id'])
    found['ignore_flag'] = int(item.get('iscrowd', 0))
    return found | (dict(mask=item['segmentation']) if item.get('segmentation') else {})
