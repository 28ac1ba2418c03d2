"""Tiles of a COCO data set as files, for tools that do not read windows of images."""

import contextlib
import io
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
from mmengine.registry import DefaultScope

from ...utils.progress import progress
from ...utils.results import Results
from ..images.drawing import encoded
from ..images.sources import named_sources
from ..labels.files import read_json
from ..labels.geometry import mask_lengths, outline_lengths, run_lengths
from .dataset import LoadWindow, TiledDataset
from .plan import TilePlan

if find_spec('mmdet'):  # which brings it
    from pycocotools import mask as coco_mask


def write_tiles(
    source: Path,
    out: Path,
    images: Path | None = None,
    *,
    tile: int,
    overlap: int | None = None,
    scales: Sequence[float] = (1.0,),
) -> None:
    """Write images/NAME__SCALE__LEFT___TOP.png, as DOTA's devkit names tiles, and tiles.json.

    As there, a tile is of the image resized by the scale, and left and top are in its pixels: the
    place in the image is (place in the tile + left and top) / scale. NAME is the path of the image
    below the folder of all, joined by '_'. Objects are as in ``TiledDataset``; what a training
    ignores is `iscrowd`.

    Args:
        source: COCO file of pictures.
        out: new folder.
        images: by default the folder of the file.
        tile, overlap, scales: see ``TilePlan``; by default a quarter of a tile overlaps.

    Raises:
        ValueError: out is there, or an image or the file cannot be read; nothing is written.
    """
    if os.path.lexists(out):
        raise ValueError(
            f'{out} exists, and nothing is written over: give another folder'
        )
    categories = read_json(source)['categories']
    files: dict[str, Any] = dict(
        ann_file=str(source.absolute()),
        metainfo=dict(classes=[category['name'] for category in categories]),
        data_prefix=dict(img=str(images or source.parent)),
        empty=math.inf,
    )
    plan = TilePlan(tile, tile // 4 if overlap is None else overlap)
    pictures: list[dict] = []
    objects: list[dict] = []
    quiet = contextlib.redirect_stdout(io.StringIO())  # what pycocotools prints
    with (
        Results(out.parent, out.name) as results,
        results.fresh(out) as fresh,
        TemporaryDirectory(dir=fresh) as copies,
        DefaultScope.overwrite_default_scope('mmdet'),
        quiet,
    ):
        (fresh / 'images').mkdir()
        # As the names have it.
        for rate in dict.fromkeys(f'{scale:g}' for scale in scales):
            side, least = plan.at(float(rate))
            dataset = TiledDataset('CocoDataset', side, least, copies, **files)
            for name, pixels, found in scaled_tiles(dataset, tile, rate):
                file = f'images/{name}.png'
                (fresh / file).write_bytes(encoded(pixels, '.png'))
                height, width = pixels.shape[:2]
                about = dict(
                    id=len(pictures) + 1,
                    file_name=file,
                    height=height,
                    width=width,
                )
                pictures.append(about)
                for item in found:
                    about = dict(id=len(objects) + 1, image_id=len(pictures))
                    objects.append(about | item)
        content = dict(
            images=pictures,
            annotations=objects,
            categories=categories,
        )
        (fresh / 'tiles.json').write_text(json.dumps(content))
    print(f'{out}: {len(pictures)} tiles, {len(objects)} objects')


def scaled_tiles(
    dataset: TiledDataset,
    tile: int,
    rate: str,
) -> Iterator[tuple[str, np.ndarray, list[dict]]]:
    """Name, pixels and annotations without ids of each tile, resized to a scale."""
    scale = float(rate)
    images = map(dataset.whole.get_data_info, range(len(dataset.whole)))
    names = image_names([image['img_path'] for image in images])
    for index in progress(range(len(dataset)), f'tiles at {rate}'):
        info = dataset.get_data_info(index)
        pixels = LoadWindow().transform(info)['img']
        corner = np.array(info['window'][:2]) * scale
        left, top = np.rint(corner).astype(int).tolist()
        height, width = (
            tile if side == dataset.plan.tile else round(side * scale)
            for side in pixels.shape[:2]
        )
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
        shift = corner - (left, top)
        found = []
        for item in info['instances']:
            about = dict(category_id=dataset.whole.cat_ids[item['bbox_label']])
            found.append(about | annotation_of(item, scale, shift, (height, width)))
        yield f'{names[info["image"]]}__{rate}__{left}___{top}', pixels, found


def image_names(paths: Sequence[str]) -> list[str]:
    """A name for the tiles of each image: its path below the folder of all, joined by '_'.

    A name that two would have keeps the suffix, or has a number after a dot, which no other name
    has. There are no '__' and no spaces, at which DOTA's devkit takes a name apart.
    """
    files = [Path(os.path.abspath(path)) for path in paths]
    root = Path(os.path.commonpath([file.parent for file in files]))
    names = []
    for source in named_sources(files, root):
        name = re.sub(r'[/\s_.]+', '_', source.picture.removesuffix('.jpg'))
        names.append(name.strip('_'))
    times = Counter(name.lower() for name in names)  # some systems ignore case
    for index, name in enumerate(names):
        if times[name.lower()] > 1:
            names[index] = f'{name}.{index + 1}'
    return names


def annotation_of(
    item: dict,
    scale: float,
    shift: np.ndarray,
    size: tuple[int, int],
) -> dict[str, Any]:
    """The keys of a COCO annotation for an object of a window, which is resized and shifted."""

    def placed(points: Sequence[float]) -> list[float]:
        corners = np.reshape(points, (-1, 2)) * scale + shift
        return corners.clip(0, size[::-1]).ravel().tolist()

    left, top, right, bottom = placed(item['bbox'])
    sides = (right - left, bottom - top)
    about = dict(iscrowd=item['ignore_flag'], bbox=[left, top, *sides])
    outline = item.get('mask')
    if not outline:
        return about | dict(area=sides[0] * sides[1])
    if isinstance(outline, dict):
        mask = coco_mask.decode(run_lengths(outline)) * 255
        mask = cv2.resize(mask, size[::-1], interpolation=cv2.INTER_AREA)
        outline = mask_lengths(mask > 127, 0, 0, size)
    else:
        outline = [placed(points) for points in outline]
    area = coco_mask.area(outline_lengths(outline, size))
    return about | dict(segmentation=outline, area=float(area))
