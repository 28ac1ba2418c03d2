"""Tiles of a COCO data set as files, for tools that do not read windows of images."""

import contextlib
import io
import json
import math
import os
import re
from collections import Counter
from collections.abc import Sequence
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
    info = dict(classes=[x['name'] for x in categories])
    files: dict[str, Any] = dict(ann_file=str(source.absolute()), metainfo=info)
    files |= dict(data_prefix=dict(img=str(images or source.parent)), empty=math.inf)
    plan = TilePlan(tile, tile // 4 if overlap is None else overlap)
    pictures, objects = list[dict[str, Any]](), list[dict[str, Any]]()
    quiet = contextlib.redirect_stdout(io.StringIO())  # what pycocotools prints
    with (
        Results(out.parent, out.name) as results,
        results.fresh(out) as fresh,
        TemporaryDirectory(dir=fresh) as copies,
        DefaultScope.overwrite_default_scope('mmdet'),
        quiet,
    ):
        (fresh / 'images').mkdir()
        for rate in dict.fromkeys(
            f'{scale:g}' for scale in scales
        ):  # as the names have it
            scale = float(rate)
            side, least = plan.at(scale)
            dataset = TiledDataset('CocoDataset', side, least, copies, **files)
            paths = [
                x['img_path']
                for x in map(dataset.whole.get_data_info, range(len(dataset.whole)))
            ]
            names = image_names(paths)
            for index in progress(range(len(dataset)), f'tiles at {rate}'):
                info = dataset.get_data_info(index)
                pixels, corner = (
                    LoadWindow().transform(info)['img'],
                    np.array(info['window'][:2]),
                )
                left, top = np.rint(corner * scale).astype(int).tolist()
                height, width = (
                    tile if x == side else round(x * scale) for x in pixels.shape[:2]
                )
                pixels = cv2.resize(
                    pixels, (width, height), interpolation=cv2.INTER_AREA
                )
                file = f'images/{names[info["image"]]}__{rate}__{left}___{top}.png'
                (fresh / file).write_bytes(encoded(pixels, '.png'))
                about = dict(
                    id=len(pictures) + 1, file_name=file, height=height, width=width
                )
                pictures.append(about)
                shift = corner * scale - (left, top)
                for item in info['instances']:
                    about = dict(id=len(objects) + 1, image_id=len(pictures))
                    about |= dict(category_id=dataset.whole.cat_ids[item['bbox_label']])
                    objects.append(
                        about | annotation_of(item, scale, shift, (height, width))
                    )
        content = dict(images=pictures, annotations=objects, categories=categories)
        (fresh / 'tiles.json').write_text(json.dumps(content))
    print(f'{out}: {len(pictures)} tiles, {len(objects)} objects')


def image_names(paths: Sequence[str]) -> list[str]:
    """A name for the tiles of each image: its path below the folder of all, joined by '_'.

    A name that two would have keeps the suffix, or has a number after a dot, which no other name
    has. There are no '__' and no spaces, at which DOTA's devkit takes a name apart.
    """
    files = [Path(os.path.abspath(path)) for path in paths]
    sources = named_sources(
        files, Path(os.path.commonpath([file.parent for file in files]))
    )
    names = [
        re.sub(r'[/\s_.]+', '_', x.picture.removesuffix('.jpg')).strip('_')
        for x in sources
    ]
    times = Counter(name.lower() for name in names)  # some systems ignore case
    numbered = enumerate(names, 1)
    return [
        name if times[name.lower()] == 1 else f'{name}.{index}'
        for index, name in numbered
    ]


def annotation_of(
    item: dict, scale: float, shift: np.ndarray, size: tuple[int, int]
) -> dict[str, Any]:
    """The keys of a COCO annotation for an object of a window, which is resized and shifted."""

    def placed(points: Sequence[float]) -> list[float]:
        corners = np.reshape(points, (-1, 2)) * scale + shift
        return corners.clip(0, size[::-1]).ravel().tolist()

    x, y, right, bottom = placed(item['bbox'])
    about = dict(iscrowd=item['ignore_flag'], bbox=[x, y, right - x, bottom - y])
    if not (outline := item.get('mask')):
        return about | dict(area=(right - x) * (bottom - y))
    if isinstance(outline, dict):
        mask = coco_mask.decode(run_lengths(outline)) * 255
        mask = cv2.resize(mask, size[::-1], interpolation=cv2.INTER_AREA)
        outline = mask_lengths(mask > 127, 0, 0, size)
    else:
        outline = [*map(placed, outline)]
    area = coco_mask.area(outline_lengths(outline, size))
    return about | dict(segmentation=outline, area=float(area))
