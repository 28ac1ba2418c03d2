"""Tiles of a COCO data set as files, for tools that do not read windows of images."""

import contextlib
import io
import json
import os
import re
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.registry import DATASETS, DefaultScope
from PIL import Image
from PIL.Image import Resampling

from ..datasets.images.drawing import encoded
from ..datasets.images.sources import named_sources
from ..datasets.labels.files import read_json
from ..datasets.labels.geometry import mask_lengths, run_lengths
from ..utils.progress import progress
from ..utils.results import Results
from .band_image import open_image
from .image_file import LargeImage
from .objects import objects_in
from .tiles import TileGrid, Window

if find_spec('mmdet'):  # which needs shapely
    import shapely
    from pycocotools import mask as coco_mask

LEAST_SHARE = 0.7  # of an object in a tile; less is ignored there


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
        raise ValueError(f'{out} exists, and nothing is written over: give another folder')
    categories = read_json(source)['categories']
    files: dict[str, Any] = dict(ann_file=str(source.absolute()), pipeline=[])
    files |= dict(data_prefix=dict(img=str(images or source.parent)))
    files |= dict(metainfo=dict(classes=[x['name'] for x in categories]))
    quiet = contextlib.redirect_stdout(io.StringIO())  # what pycocotools prints
    with DefaultScope.overwrite_default_scope('mmdet'), quiet:
        dataset = DATASETS.build(dict(type='CocoDataset', **files))
    infos = [dataset.get_data_info(index) for index in range(len(dataset))]
    names = image_names([info['img_path'] for info in infos])
    rates = dict.fromkeys(f'{scale:g}' for scale in scales)  # as the names have them
    pictures, objects = list[dict[str, Any]](), list[dict[str, Any]]()
    overlap = tile // 4 if overlap is None else overlap
    with Results(out.parent, out.name) as results, results.fresh(out) as fresh:
        (fresh / 'images').mkdir()
        for info, name in progress([*zip(infos, names, strict=True)], 'images'):
            boxes = np.array([x['bbox'] for x in info['instances']], float).reshape(-1, 4)
            for rate in rates:
                image = open_image(info['img_path'], None)
                size = image.height, image.width
                for cut, pixels in tiles_of(image, float(rate), tile, overlap):
                    left, top = cut.window[:2]
                    file = f'images/{name}__{rate}__{left}___{top}.png'
                    (fresh / file).write_bytes(encoded(pixels, '.png'))
                    height, width = pixels.shape[:2]
                    about = dict(id=len(pictures) + 1, file_name=file, height=height, width=width)
                    pictures.append(about)
                    found, _ = objects_in(info['instances'], boxes, cut.part, size, LEAST_SHARE)
                    for item in found:
                        about = dict(id=len(objects) + 1, image_id=len(pictures))
                        about |= dict(category_id=dataset.cat_ids[item['bbox_label']])
                        objects.append(about | cut.annotation(item))
        content = dict(images=pictures, annotations=objects, categories=categories)
        (fresh / 'tiles.json').write_text(json.dumps(content))
    print(f'{out}: {len(pictures)} tiles, {len(objects)} objects')


def image_names(paths: Sequence[str]) -> list[str]:
    """A name for the tiles of each image: its path below the folder of all, joined by '_'.

    A name that two would have keeps the suffix, or has a number. There are no '__' and no spaces,
    at which DOTA's devkit takes a name apart.
    """
    files = [Path(os.path.abspath(path)) for path in paths]
    root = Path(os.path.commonpath([file.parent for file in files])) if files else Path()
    names: dict[str, str] = {}  # by their lower case, as some systems ignore case
    for source in named_sources(files, root):
        joined = re.sub(r'[/\s_]+', '_', source.picture.removesuffix('.jpg')).strip('_')
        name, number = joined, 1
        while name.lower() in names:
            number += 1
            name = f'{joined}_{number}'
        names[name.lower()] = name
    return [*names.values()]


class Tile:
    """A window of an image that is resized by a scale.

    Attributes:
        window: in pixels of the resized image.
        box: in pixels of the image, exactly.
        part: whole pixels of the image, around the box.
    """

    def __init__(self, window: Window, scale: float) -> None:
        self.window, self.scale = window, scale
        self.size = window.right - window.left, window.bottom - window.top
        self.box = np.round(np.divide(window, scale), 6)  # as 1.1 is not exact
        start, end = np.floor(self.box[:2]).astype(int), np.ceil(self.box[2:]).astype(int)
        self.part = Window(*start.tolist(), *end.tolist())

    def resized(self, pixels: np.ndarray) -> np.ndarray:
        """The pixels of the tile, from those of the part."""
        left, top, right, bottom = (self.box - self.part[:2] * 2).tolist()
        box = left, top, right, bottom
        return np.asarray(Image.fromarray(pixels).resize(self.size, Resampling.BILINEAR, box))

    def placed(self, points: Sequence[float]) -> list[float]:
        """Points [x, y, x, y, ...] of the part, in the tile."""
        corners = np.reshape(points, (-1, 2)) + self.part[:2]
        return (corners * self.scale - self.window[:2]).clip(0, self.size).ravel().tolist()

    def annotation(self, item: dict) -> dict[str, Any]:
        """Keys of a COCO annotation of the tile, for an object of the part."""
        x, y, right, bottom = self.placed(item['bbox'])
        about = dict(iscrowd=item['ignore_flag'], bbox=[x, y, right - x, bottom - y])
        about['area'] = (right - x) * (bottom - y)
        if isinstance(outline := item.get('mask'), dict):
            mask = self.resized(coco_mask.decode(run_lengths(outline)) * 255) > 127
            about |= dict(
                segmentation=mask_lengths(mask, 0, 0, self.size[::-1]), area=int(mask.sum())
            )
        elif outline:
            polygons = [self.placed(points) for points in outline]
            area = sum(shapely.Polygon(np.reshape(x, (-1, 2))).area for x in polygons)
            about |= dict(segmentation=polygons, area=area)
        return about


def tiles_of(
    image: LargeImage, scale: float, tile: int, overlap: int
) -> Iterator[tuple[Tile, np.ndarray]]:
    """The tiles of an image that is resized by a scale, with their pixels (BGR)."""
    height, width = (max(1, int(side * scale + 1e-9)) for side in (image.height, image.width))
    grid = TileGrid(height, width, tile, overlap)
    for top in grid.tops:
        for left in grid.lefts:
            found = Tile(Window(left, top, left + grid.tile_width, top + grid.tile_height), scale)
            if not left:
                rows = image.read(found.part.top, found.part.bottom)
            yield found, found.resized(rows[:, found.part.left : found.part.right])
