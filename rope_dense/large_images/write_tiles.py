"""Tiles of a COCO data set as files, for tools that do not read windows of images."""

import contextlib
import io
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
from mmengine.registry import DefaultScope

from ..datasets.labels.files import read_json
from ..utils.atomic_write import atomic_folder, atomic_write_text
from ..utils.progress import progress
from .dataset import LoadWindow, TiledDataset


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

    Objects are as in ``TiledDataset``; what a training ignores is `iscrowd`.

    Args:
        source: COCO file of pictures.
        out: new folder.
        images: by default the folder of the file.
        tile, overlap, scales: see ``TilePlan``; by default a quarter of a tile overlaps.

    Raises:
        ValueError: out is there, or an image or the file cannot be read; nothing is written.
    """
    if out.exists():
        raise ValueError(f'{out} exists, and nothing is written over: give another folder')
    categories = read_json(source)['categories']
    info = dict(classes=[x['name'] for x in categories])
    folder, overlap = str(images or source.parent), tile // 4 if overlap is None else overlap
    files: dict[str, Any] = dict(ann_file=str(source.absolute()), metainfo=info)
    files |= dict(data_prefix=dict(img=folder))
    pictures, objects = list[dict[str, Any]](), list[dict[str, Any]]()
    quiet = contextlib.redirect_stdout(io.StringIO())  # what pycocotools prints
    with atomic_folder(out) as fresh:
        copies = fresh / 'copies'
        with DefaultScope.overwrite_default_scope('mmdet'), quiet:
            dataset = TiledDataset(
                'CocoDataset', tile, overlap, str(copies), scales, empty=math.inf, **files
            )
        (fresh / 'images').mkdir()
        for index in progress(range(len(dataset)), 'tiles'):
            info = dataset.get_data_info(index)
            left, top, right, bottom = info['window']
            scale = tile / max(tile, right - left, bottom - top)
            name = f'images/{Path(info["img_path"]).stem}__{scale:g}__{left}___{top}.png'
            cv2.imwrite(str(fresh / name), LoadWindow().transform(info)['img'])
            height, width = info['height'], info['width']
            pictures.append(dict(id=index + 1, file_name=name, height=height, width=width))
            for item in info['instances']:
                x, y, x1, y1 = item['bbox']
                about = dict(id=len(objects) + 1, image_id=index + 1, iscrowd=item['ignore_flag'])
                about |= dict(category_id=dataset.whole.cat_ids[item['bbox_label']])
                about |= dict(bbox=[x, y, x1 - x, y1 - y], area=(x1 - x) * (y1 - y))
                objects.append(about | ({'segmentation': item['mask']} if 'mask' in item else {}))
        shutil.rmtree(copies, ignore_errors=True)
        content = dict(images=pictures, annotations=objects, categories=categories)
        atomic_write_text(fresh / 'tiles.json', json.dumps(content))
    print(f'{out}: {len(pictures)} tiles, {len(objects)} objects')
