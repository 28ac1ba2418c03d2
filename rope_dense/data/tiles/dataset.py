"""Training and testing on tiles of large images.

A tile is a window of an image of a data set, not a file: ``TiledDataset`` wraps any data set of
mmdet or mmseg. Its list has a window of an image and the objects in it for each tile; its pipeline
begins with ``LoadWindow`` in place of the step that loads an image. So labels of every format,
augmentation, mosaics and heads do not know of tiles.

- Training and prediction have the same windows (``TilePlan``), at all scales.
- An object that a border cuts keeps what is inside, and is ignored below a share (``objects_in``).
- Tiles without an object are kept in a stated ratio; tiles whose mask is ignored are left out.
- A test has the tiles of ``predict-large``, image after image; ``TiledEvaluator`` joins what the
  model predicts for them, as ``predict-large`` does, and the metrics see whole images.
- Windows are read from disk: of TIFF and .npy files as they are, of others from copies
  (``data/images/copies.py``). ``TileSampler`` opens few files at a time.
"""

import copy
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform
from mmengine.dataset import BaseDataset, Compose, InfiniteSampler
from mmengine.dist import barrier, get_rank, get_world_size
from mmengine.registry import DATA_SAMPLERS, DATASETS, TRANSFORMS

from ...utils.config_parts import kind, nodes
from ...utils.progress import progress
from ..classes import IGNORED
from ..images.bands import find_load_bands
from ..images.headers import read_header
from ..mask_labels import read_mask_labels
from .band_image import open_image, window_file
from .detection import TilePlace, make_levels
from .image_file import LargeImage
from .objects import objects_in
from .plan import TilePlan, Window

OPEN = 8  # files at a time


@DATASETS.register_module()
class TiledDataset(BaseDataset):
    """The tiles of the images of a data set.

    Args:
        kind: type of the data set, such as 'CocoDataset'.
        tile, overlap, scales: see ``TilePlan``.
        copies: folder of copies of files that windows cannot be read of.
        least_share: of an object that is cut; below it the object is ignored in a tile.
        empty: number of tiles without objects for each tile with objects, at most.
        pipeline: as of the data set; the steps that load images read windows.
        metainfo, test_mode, lazy_init, serialize_data, files: of the data set.

    Attributes:
        images: [T], the index of the image of each tile.
        counts: of a training, see ``tile_lines``.
    """

    def __init__(
        self,
        kind: str,
        tile: int,
        overlap: int,
        copies: str,
        scales: Sequence[float] = (1.0,),
        least_share: float = 0.7,
        empty: float = 1.0,
        pipeline: Sequence[dict] = (),
        metainfo: Mapping | None = None,
        test_mode: bool = False,
        lazy_init: bool = False,
        serialize_data: bool = True,
        **files: Any,
    ) -> None:
        self.plan = TilePlan(tile, overlap, scales)
        self.copies = copies
        self.least_share = least_share
        self.empty = empty
        self.counts = Counter[str]()
        self.bands = find_load_bands(pipeline)
        given = dict(
            type=kind,
            pipeline=[],
            metainfo=metainfo,
            test_mode=test_mode,
            **files,
        )
        self.whole = DATASETS.build(given)
        super().__init__(
            metainfo=self.whole.metainfo,
            pipeline=with_windows(pipeline),
            test_mode=test_mode,
            lazy_init=lazy_init,
            serialize_data=serialize_data,
        )

    def full_init(self) -> None:
        """Make the list, and the copies of images that are not there yet."""
        if not self._fully_initialized:
            super().full_init()
            self.copy_images()

    def load_data_list(self) -> list[dict]:
        """The tiles, by images."""
        tiles: list[dict] = []
        empty: list[dict] = []
        tiles_of = self.tested if self.test_mode else self.trained
        for image in range(len(self.whole)):
            info = dict(self.whole.get_data_info(image), image=image)
            if 'height' not in info:
                header = read_header(Path(info['img_path']))
                info.update(height=header.height, width=header.width)
            for tile in tiles_of(info):
                is_empty = tile.pop('empty', False)
                (empty if is_empty else tiles).append(tile)
        number = round(min(len(empty), self.empty * len(tiles)))
        self.counts.update(
            tiles=len(tiles) + number,
            empty=number,
            left_out=len(empty) - number,
        )
        for index in np.linspace(0, len(empty), number, False, dtype=np.int64):
            tiles.append(empty[index])
        tiles.sort(key=lambda tile: tile['image'])
        self.images = np.array([tile['image'] for tile in tiles], int)
        return tiles

    def tile_of(self, info: dict, window: Window, **more: Any) -> dict:
        """The entry of an image in the list of a data set, for a tile."""
        height = window.bottom - window.top
        width = window.right - window.left
        is_part = (height, width) != (info['height'], info['width'])
        about = dict(
            height=height,
            width=width,
            window=window,
            shrink=1,
            copies=self.copies if is_part else None,
        )
        return info | about | more

    def trained(self, info: dict) -> Iterator[dict]:
        """The tiles of an image with the objects in them; none whose mask is ignored."""
        size = (info['height'], info['width'])
        instances = info.get('instances', ())
        boxes = np.array([item['bbox'] for item in instances], float).reshape(-1, 4)
        is_whole = np.array([item['ignore_flag'] for item in instances], bool)
        for window in self.plan.windows(*size):
            tile = self.tile_of(info, window)
            if 'instances' in info:
                found, whole = objects_in(
                    instances,
                    boxes,
                    window,
                    size,
                    self.least_share,
                )
                is_empty = all(item['ignore_flag'] for item in found)
                tile.update(instances=found, empty=is_empty)
                is_whole |= whole
                self.counts['most'] = max(self.counts['most'], len(found))
            elif 'seg_map_path' in info and (read_mask_labels(tile) == IGNORED).all():
                self.counts['ignored'] += 1
                continue
            yield tile
        self.counts.update(never_whole=int((~is_whole).sum()), all=len(instances))

    def tested(self, info: dict) -> Iterator[dict]:
        """The tiles of an image as ``predict-large`` takes them.

        The first has all objects of the image; of masks and depth each tile has its own part.
        """
        size = (info['height'], info['width'])
        has_objects = 'instances' in info
        sides = self.plan.at(max(self.plan.scales))
        levels = make_levels(*size, *sides, self.plan.halvings if has_objects else 0)
        count = sum(len(level.grid) for level in levels)
        number = 0
        for level in levels:
            grid = level.grid
            for row, column in np.ndindex(len(grid.tops), len(grid.lefts)):
                is_last = number == count - 1
                place = TilePlace(level, size, row, column, number, is_last)

                tile = self.tile_of(
                    info,
                    place.window,
                    shrink=level.shrink,
                    place=place,
                )
                if number and has_objects:
                    tile['instances'] = []
                yield tile
                number += 1

    def copy_images(self) -> None:
        """Write the copies of images that are not there, shared among the processes."""
        copies = {}
        for index in np.unique(self.images, return_index=True)[1]:
            info = self.get_data_info(index)
            path = Path(info['img_path'])
            if info['copies']:
                for file in self.bands.files(path) if self.bands else [path]:
                    copies[file] = window_file(file, self.copies, self.bands)
        missing = [file for file, place in copies.items() if not place.exists()]
        is_first = get_rank() == 0
        barrier()  # all processes have the same list
        if missing and is_first:
            print(
                f'{len(missing)} images, such as {missing[0].name}, are read from their beginning: '
                f'copies with windows are written to {self.copies}',
                file=sys.stderr,
            )
        share = missing[get_rank() :: get_world_size()]
        for path in progress(share, 'copies of images'):
            window_file(path, self.copies, self.bands, writes=True)
        barrier()
        if missing and is_first:
            size = sum(copies[file].stat().st_size for file in missing) / 1e9
            print(f'{self.copies}: {size:.2f} GB of copies', file=sys.stderr)

    def prepare_data(self, idx: int) -> Any:
        """A tile after the pipeline, whose transforms may load others: ``results['dataset']``."""
        info = self.get_data_info(idx)
        load, *steps = self.pipeline.transforms
        loaded = load({**info, 'dataset': self})
        packed = Compose(steps)(loaded)
        if packed is not None and self.test_mode:
            about = dict(place=info['place'], no_data=loaded.get('no_data'))
            packed['data_samples'].set_metainfo(about)
        return packed


def with_windows(pipeline: Sequence[dict]) -> list[dict]:
    """A pipeline whose steps that load images are ``LoadWindow``."""
    steps = copy.deepcopy(list(pipeline))
    for _, step in list(nodes(steps)):
        name = kind(step)
        if name in ('LoadImageFromFile', 'LoadBands'):
            bands = dict(step) if name == 'LoadBands' else None
            step.clear()
            step.update(type='LoadWindow', bands=bands)
        elif name == 'AffineMosaic':
            bands = dict(step['load']) if step.get('load') else None
            step['load'] = dict(type='LoadWindow', bands=bands)
    return steps


@TRANSFORMS.register_module()
class LoadWindow(BaseTransform):
    """Read `window` of `img_path`: as a picture, uint8 [H, W, 3] in BGR, or as ``LoadBands``.

    Pixels are read by ``LargeImage``, as in ``predict-large``.

    Args:
        bands: a ``LoadBands`` step; None for pictures.
    """

    def __init__(self, bands: dict | None = None) -> None:
        self.bands = find_load_bands([bands]) if bands else None
        self.text = json.dumps(bands, default=list)

    def transform(self, results: dict) -> dict:
        image = open_cached(
            os.getpid(),
            results['img_path'],
            self.text,
            results['shrink'],
            results['copies'],
        )
        pixels = image.window(*results['window'])
        if self.bands is not None:
            return self.bands.transform({**results, 'img': pixels})
        shape = pixels.shape[:2]
        return {**results, 'img': pixels, 'img_shape': shape, 'ori_shape': shape}


@lru_cache(OPEN)
def open_cached(
    process: int,
    path: str,
    bands: str,
    shrink: int,
    copies: str | None,
) -> LargeImage:
    """An open image; a loading process, which is a fork, opens its own."""
    step = json.loads(bands)
    loader = find_load_bands([step]) if step else None
    return open_image(path, loader, shrink, copies)


@DATA_SAMPLERS.register_module()
class TileSampler(InfiniteSampler):
    """The tiles of a few images at a time, shuffled; of a test image after image, in order.

    All tiles of ``OPEN`` random images come in random order, then of the next ``OPEN``, so that a
    process has few files open at a time; each tile comes once in an epoch. In a test all tiles of
    an image are of one process.

    Args:
        dataset: a ``TiledDataset``.
        shuffle, seed: see mmengine's ``InfiniteSampler``; without, the order of a test.
    """

    def __init__(
        self,
        dataset: TiledDataset,
        shuffle: bool = True,
        seed: int | None = None,
    ) -> None:
        self.images = dataset.images
        super().__init__(dataset, shuffle, seed)
        own = np.flatnonzero(self.images % self.world_size == self.rank)
        self.tested = own.tolist()

    def _infinite_indices(self) -> Iterator[int]:
        random = np.random.default_rng(self.seed)
        order = np.argsort(self.images, kind='stable')
        starts = np.flatnonzero(np.diff(self.images[order])) + 1
        tiles = np.split(order, starts)  # of each image
        while True:
            images = random.permutation(len(tiles))
            for start in range(0, len(images), OPEN):
                some = [tiles[image] for image in images[start : start + OPEN]]
                yield from random.permutation(np.concatenate(some)).tolist()

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices if self.shuffle else self.tested)

    def __len__(self) -> int:
        return self.size if self.shuffle else len(self.tested)
