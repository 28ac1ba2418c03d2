"""Predict large images in tiles by a built model, and write the results."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.model import BaseModel

from ..data.images.bands import find_load_bands
from ..data.images.drawing import encoded
from ..data.rotated_results import dota_texts
from ..data.tiles.band_image import open_image
from ..data.tiles.detection import (
    ROTATED_IOU,
    UPRIGHT_IOU,
    as_coco,
    detect,
    make_levels,
    suppress_duplicates,
)
from ..data.tiles.evaluation import THRESHOLD, PixelTask, segment, value_type
from ..data.tiles.image_file import LargeImage, geojson_text, is_on_map, write_raster
from ..data.tiles.pictures import draw_boxes, draw_labels
from ..data.tiles.plan import TileGrid, TilePredictor
from ..project.checks.schedule import training_crops, warn
from ..project.contents import (
    Task,
    angle_version,
    configured_size,
    task_of,
    tile_plan,
    visualizer_of,
)
from ..project.identity import Identity
from ..project.launch import should_merge
from ..project.model import Colour, mask_numbers
from ..utils.config_parts import pipelines
from ..utils.disk import read_json_lines
from ..utils.errors import UsageError
from ..utils.journal import Journal, remove_journal
from ..utils.progress import bar
from ..utils.results import Write

RESULTS: dict[Task, str] = dict(  # endings of the results: boxes, or rasters
    boxes='boxes.json', oriented='boxes.json', semantic='labels.tif', depth='depth.tif'
)
REFUSED: dict[Task, str] = {
    'depth': 'depth is not predicted in tiles, each of which has a scale of its own, but by a run '
    'on tiles (own.tile): resize the image, or raise --tile-above of rope-dense predict',
    'several': 'several tasks predict no tiles: raise --tile-above, or give one task',
    'panoptic': 'panoptic labels are not predicted in tiles: raise --tile-above of rope-dense '
    'predict, or resize the image',
}

OpenJournal = Callable[[Path, dict[str, Any]], Journal]
Work = Callable[[TilePredictor, Journal, range], None]


@dataclass(frozen=True)
class TrainedModel:
    """A model as it was built, with what its results need.

    Args:
        cfg: its config, whose test pipeline prepares the tiles.
        model: with its weights, in evaluation mode, on its device.
        classes, colours: names; red, green and blue.
        identity: of config and checkpoint.
    """

    cfg: Config
    model: BaseModel
    classes: Sequence[str]
    colours: Sequence[Colour]
    identity: Identity


@dataclass(frozen=True)
class Tiling:
    """The tiles of an image, and the boxes that are kept of them.

    Args:
        tile: side in pixels of the image.
        overlap: of neighbours in pixels, at least.
        batch: tiles at a time.
        min_score: detectors: of a box of each class that is kept.
        halvings: detectors: times that the image is halved at most, for objects larger than the
            overlap; None until one tile holds the image.
        merge_iou: detectors: boxes of two tiles that overlap more are one object; None for 0.5, of
            rotated boxes 0.1.
    """

    tile: int
    overlap: int
    batch: int
    min_score: list[float]
    halvings: int | None = None
    merge_iou: float | None = None


def tile_and_overlap(
    cfg: Config, tile: int | None = None, overlap: int | None = None
) -> tuple[int, int]:
    """By default as in training on tiles, else the size of the test images; and a quarter of it."""
    plan = tile_plan(cfg)
    if tile is None and plan:
        tile, least = plan.at(max(plan.scales))
        if overlap is None:
            overlap = least
    elif tile is None:
        tile = min(configured_size(cfg))
        crops = training_crops(cfg)
        if crops and (tile, tile) not in crops:
            sizes = ', '.join(f'{height} x {width}' for height, width in sorted(crops))
            warn(
                f'tiles of {tile} pixels, as test images; the training had crops of {sizes}'
            )
    return tile, tile // 4 if overlap is None else overlap


def result_ending(cfg: Config) -> str:
    """Of a result in tiles, by the task; UsageError if the results of tiles do not fit together."""
    task = task_of(cfg)
    if task in REFUSED and not (task == 'depth' and tile_plan(cfg)):
        raise UsageError(REFUSED[task])
    return RESULTS[task]


def files_in_tiles(cfg: Config, image: LargeImage, out: Path) -> list[Path]:
    """The files that a result replaces or comes beside: itself, GeoJSON, and DOTA's of classes."""
    files = [out]
    if out.suffix == '.json' and is_on_map(image):
        files.append(out.with_suffix('.geojson'))
    if task_of(cfg) == 'oriented':
        files += sorted(dota_folder(out).glob('Task1_*.txt'))
    return files


def dota_folder(out: Path) -> Path:
    """The folder of the files in DOTA's format beside NAME.json."""
    return out.with_name(f'{out.stem}_dota')


def part_of(folder: Path, rank: int, count: int) -> Path:
    """The folder of a process, of several that share a result."""
    return folder if count == 1 else folder / f'{rank + 1}_of_{count}'


def share_of(rows: Sequence[int], rank: int, count: int) -> range:
    """The rows of a process, by the tiles in each: neighbours, with about equally many tiles."""
    before = np.cumsum(rows) - rows
    ends = np.searchsorted(before, np.arange(count + 1) * sum(rows) / count).tolist()
    return range(ends[rank], ends[rank + 1])


@dataclass
class TiledImage:
    """An image that is predicted in tiles, within the default scope of the config.

    Args:
        path: of the image.
        out: label raster (NAME.tif, NAME.png), depth (NAME.tif) or detections (NAME.json).
        write: gives the new file of each path that is written, see ``Results.write``.
        journal: folder of the unfinished result, which is removed in the end.
        picture: also draw the result on a reduced image, in this file.
        open_journal: called with the folder of the unfinished result and its settings.
        share: rank and number of the processes that share the rows of tiles; the first merges.

    Raises:
        ValueError: the image cannot be read.
    """

    trained: TrainedModel
    path: Path
    out: Path
    tiling: Tiling
    write: Write
    journal: Path
    picture: Path | None
    open_journal: OpenJournal = Journal
    share: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        dataset = self.trained.cfg.test_dataloader.dataset
        self.bands = find_load_bands(next(pipelines(dataset)))
        self.image = open_image(self.path, self.bands)

    def predict(self) -> bool:
        """Write the result, and return True if this process has; unfinished work goes on.

        Raises:
            ValueError: the overlap is not less than a tile.
            JournalError: there is unfinished work of other settings, or it is damaged.
        """
        has_boxes = RESULTS[task_of(self.trained.cfg)].endswith('.json')
        is_written = self.write_boxes() if has_boxes else self.write_labels()
        if is_written:
            remove_journal(self.journal)
        return is_written

    def settings(self) -> dict[str, Any]:
        """All that the result depends on, but for what only detectors have."""
        file = self.path.stat()
        about = f'{file.st_size} bytes, changed {file.st_mtime_ns / 1e9:.3f}'
        return {
            **self.trained.identity.described(),
            'image': f'{self.path.name} of {about}',
            'tile': self.tiling.tile,
            'overlap': self.tiling.overlap,
        }

    def predict_all(
        self, rows: Sequence[int], settings: dict[str, Any], work: Work
    ) -> Path | None:
        """Predict the rows of tiles of this process, and wait for the others.

        Args:
            rows: numbers of tiles; those that the journal has are not predicted again.
            settings: of the journal.

        Returns:
            The file of all rows, or None if another process merges.
        """
        rank, count = self.share
        journal = self.open_journal(part_of(self.journal, rank, count), settings)
        steps = share_of(rows, rank, count)
        total = sum(rows[step] for step in steps)
        left = sum(rows[step] for step in steps[journal.finished :])
        trained = self.trained
        tiling = self.tiling
        said = f'{total} tiles of {tiling.tile} pixels, {left} of them not finished'
        print(said, flush=True)
        if left:
            with bar(self.path.name, left) as done:
                predict = TilePredictor(
                    trained.model,
                    trained.cfg,
                    batch=tiling.batch,
                    report=done.update,
                    file=self.path,
                )
                work(predict, journal, steps)
        if not should_merge(rank, count):
            return None
        whole = self.journal / journal.content.name
        if count > 1:
            with whole.open('wb') as file:
                for part in range(count):
                    folder = part_of(self.journal, part, count)
                    with (folder / whole.name).open('rb') as rows_file:
                        shutil.copyfileobj(rows_file, file)
        return whole

    def write_labels(self) -> bool:
        """Write the labels of a segmentor, or depth; False if another process does."""
        image, model, tiling = self.image, self.trained.model, self.tiling
        grid = TileGrid(image.height, image.width, tiling.tile, tiling.overlap)
        rows = [len(grid.lefts)] * len(grid.tops)
        task: PixelTask = 'semantic'
        num_scores = model.out_channels
        threshold = THRESHOLD
        if task_of(self.trained.cfg) == 'depth':
            task = 'depth'
            num_scores = 1
        elif num_scores == 1:
            threshold = model.decode_head.threshold
        work = partial(segment, image, grid, task, num_scores, threshold)
        content = self.predict_all(rows, self.settings(), work)
        if content is None:
            return False
        dtype = value_type(task, num_scores)
        colours = dict(enumerate(self.trained.colours))
        if self.picture:
            drawn = draw_labels(self.path, content, dtype, colours, self.bands)
            self.write_bytes(self.picture, encoded(drawn, self.picture.suffix))
        numbers = mask_numbers(self.trained.cfg) if dtype.kind == 'u' else None
        with self.write(self.out) as file:
            write_raster(content, file, image, dtype, colours, numbers)
        return True

    def write_boxes(self) -> bool:
        """Write the detections, and GeoJSON if the image is on a map; False if another does."""
        image, tiling, path = self.image, self.tiling, self.path
        if not image.file.crs and not image.file.transform.is_identity:
            warn(
                f'{path} has a transform but no coordinate system: no GeoJSON is written'
            )
        halvings = tiling.halvings
        if halvings is None:
            plan = tile_plan(self.trained.cfg)
            halvings = plan.halvings if plan else -1
        levels = make_levels(
            image.height, image.width, tiling.tile, tiling.overlap, halvings
        )
        rows: list[int] = []
        for level in levels:
            rows += [len(level.grid.lefts)] * len(level.grid.tops)
        settings = self.settings()
        settings |= {'halvings': halvings, 'min-score': tiling.min_score}
        work = partial(detect, path, levels, tiling.min_score, self.bands)
        content = self.predict_all(rows, settings, work)
        if content is None:
            return False
        self.merge(list(read_json_lines(content, strict=True)))
        return True

    def merge(self, lines: Sequence[dict]) -> None:
        """Write the boxes of all tiles without duplicates."""
        cfg, classes, image = self.trained.cfg, self.trained.classes, self.image
        version = angle_version(cfg)
        merge_iou = self.tiling.merge_iou
        if merge_iou is None:
            merge_iou = ROTATED_IOU if version else UPRIGHT_IOU
        lines = suppress_duplicates(lines, merge_iou)
        size = (image.height, image.width)
        result = as_coco(lines, self.path.name, size, classes, version)
        if version:
            objects = ((self.path.stem, item) for item in result['annotations'])
            for name, text in dota_texts(classes, objects).items():
                content = text.encode('utf-8', 'surrogateescape')
                self.write_bytes(dota_folder(self.out) / name, content)
        said = f'{len(lines)} objects'
        if is_on_map(image):
            text = geojson_text(result, image)
            self.write_bytes(self.out.with_suffix('.geojson'), text.encode())
            said += f', also as {self.out.stem}.geojson'
        if self.picture:
            kind = visualizer_of(cfg, '', 0)['type']
            colours = dict(enumerate(self.trained.colours))
            drawn = draw_boxes(self.path, lines, classes, colours, kind, self.bands)
            self.write_bytes(self.picture, encoded(drawn, self.picture.suffix))
        text = json.dumps(result) + '\n'
        self.write_bytes(self.out, text.encode())  # last: it says that all is there
        print(said)

    def write_bytes(self, path: Path, content: bytes) -> None:
        with self.write(path) as file:
            file.write_bytes(content)
