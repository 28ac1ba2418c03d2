"""Predict large images in tiles by a built model, and write the results."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.model import BaseModel

from ..datasets.images.bands import bands_in
from ..datasets.mask_colours import label_type
from ..datasets.rotated_results import write_dota
from ..large_images.band_image import open_image
from ..large_images.detection import (
    ROTATED_IOU,
    UPRIGHT_IOU,
    as_coco,
    detect,
    make_levels,
    suppress_duplicates,
)
from ..large_images.geojson import write_geojson
from ..large_images.image_file import write_labels
from ..large_images.pictures import draw_boxes, draw_labels
from ..large_images.predictor import TilePredictor
from ..large_images.segmentation import segment
from ..large_images.tiles import TileGrid, TilePlan
from ..project.checks.training import training_crops, warn
from ..project.errors import UsageError
from ..project.identity import Identity
from ..project.model import Colour
from ..project.sizes import configured_size
from ..project.task import angle_version, task_of, visualizer_of
from ..utils.atomic_write import atomic_write_text
from ..utils.config_parts import pipelines
from ..utils.journal import Journal
from ..utils.json_lines import read_json_lines
from ..utils.progress import bar

REFUSED = {
    'depth': 'depth is not predicted in tiles, each of which would have a scale of its own: resize '
    'the image, or raise --tile-above of rope-dense predict',
    'several': 'several tasks predict no tiles: raise --tile-above, or give one task',
    'panoptic': 'panoptic labels are not predicted in tiles: raise --tile-above of rope-dense '
    'predict, or resize the image',
}

OpenJournal = Callable[[Path, dict[str, Any]], Journal]


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
        halvings: detectors: times that the image is halved at most, for objects larger than the
            overlap; None until one tile holds the image.
        min_score: detectors: of a box that is kept; or for each class.
        merge_iou: detectors: boxes of two tiles that overlap more are one object; None for 0.5, of
            rotated boxes 0.1.
    """

    tile: int
    overlap: int
    batch: int = 1
    halvings: int | None = None
    min_score: float | list[float] = 0.3
    merge_iou: float | None = None


def tile_and_overlap(
    cfg: Config, tile: int | None = None, overlap: int | None = None
) -> tuple[int, int]:
    """By default as in training on tiles, else the size of the test images; and a quarter of it."""
    if tile is None and (plan := trained_plan(cfg)):
        tile, least = plan.at(max(plan.scales))
        overlap = least if overlap is None else overlap
    elif tile is None:
        tile = min(configured_size(cfg))
        crops = training_crops(cfg)
        if crops and (tile, tile) not in crops:
            sizes = ', '.join(f'{height} x {width}' for height, width in sorted(crops))
            warn(f'tiles of {tile} pixels, as test images; the training had crops of {sizes}')
    return tile, tile // 4 if overlap is None else overlap


def trained_plan(cfg: Config) -> TilePlan | None:
    """The tiles of a training on tiles (`own.tile`); None for depth, which is not joined."""
    dataset = cfg.test_dataloader.dataset
    is_tiled = dataset.get('type') == 'TiledDataset' and task_of(cfg) not in REFUSED
    return TilePlan(dataset.tile, dataset.overlap, dataset.scales) if is_tiled else None


def check_tiles(cfg: Config) -> None:
    """Raise UsageError for a task whose results in tiles do not fit together."""
    if reason := REFUSED.get(task_of(cfg)):
        raise UsageError(reason)


def predict_tiles(
    trained: TrainedModel,
    path: Path,
    out: Path,
    tiling: Tiling,
    picture: Path | None = None,
    open_journal: OpenJournal = Journal,
) -> None:
    """Predict an image in tiles and write the result; unfinished work goes on.

    Called within the default scope of the config, by one process for each result.

    Args:
        path: of the image.
        out: label raster (NAME.tif, NAME.png) or detections (NAME.json).
        picture: also draw the result on a reduced image, in this file.
        open_journal: called with the folder of the unfinished result and its settings.

    Raises:
        UsageError: see ``check_tiles``.
        ValueError: the image cannot be read, or the overlap is not less than a tile.
        JournalError: there is unfinished work of other settings, or it is damaged.
    """
    check_tiles(trained.cfg)
    work = TiledImage(trained, path, out, tiling, picture)
    if task_of(trained.cfg) == 'semantic':
        work.write_labels(open_journal)
    else:
        work.write_boxes(open_journal)
    shutil.rmtree(unfinished(out))


def unfinished(out: Path) -> Path:
    """The folder of the unfinished result."""
    return out.with_name(f'{out.name}.unfinished')


class TiledImage:
    """An image and the files of its result, see ``predict_tiles``."""

    def __init__(
        self,
        trained: TrainedModel,
        path: Path,
        out: Path,
        tiling: Tiling,
        picture: Path | None,
    ) -> None:
        self.trained, self.path, self.out = trained, path, out
        self.bands = bands_in(next(pipelines(trained.cfg.test_dataloader.dataset)))
        self.tiling, self.picture = tiling, picture
        self.image = open_image(path, self.bands)

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

    @contextmanager
    def predicting(self, rows: Sequence[int], journal: Journal) -> Iterator[TilePredictor]:
        """Within this context, the predictor shows its progress.

        Args:
            rows: numbers of tiles; those that the journal has are not predicted again.
        """
        left = sum(rows[journal.finished :])
        total, side = sum(rows), self.tiling.tile
        print(f'{total} tiles of {side} pixels, {left} of them not finished', flush=True)
        model, cfg = self.trained.model, self.trained.cfg
        with bar(self.path.name, left) as done:
            yield TilePredictor(model, cfg, batch=self.tiling.batch, report=done.update)

    def write_labels(self, open_journal: OpenJournal) -> None:
        """Write the label raster of a segmentor."""
        image, model, tiling = self.image, self.trained.model, self.tiling
        grid = TileGrid(image.height, image.width, tiling.tile, tiling.overlap)
        rows = [len(grid.lefts)] * len(grid.tops)
        journal = open_journal(unfinished(self.out), self.settings())
        num_scores = model.out_channels
        threshold = model.decode_head.threshold if num_scores == 1 else None
        with self.predicting(rows, journal) as predict:
            segment(image, grid, predict, journal, num_scores=num_scores, threshold=threshold)
        dtype, colours = label_type(num_scores), dict(enumerate(self.trained.colours))
        write_labels(journal.content, self.out, image, dtype, colours)
        if self.picture:
            draw_labels(self.path, journal.content, dtype, colours, self.picture, self.bands)

    def write_boxes(self, open_journal: OpenJournal) -> None:
        """Write the detections, and GeoJSON if the image is on a map."""
        image, tiling, path = self.image, self.tiling, self.path
        if not image.file.crs and not image.file.transform.is_identity:
            warn(f'{path} has a transform but no coordinate system: no GeoJSON is written')
        if (halvings := tiling.halvings) is None:
            plan = trained_plan(self.trained.cfg)
            halvings = plan.halvings if plan else -1
        levels = make_levels(image.height, image.width, tiling.tile, tiling.overlap, halvings)
        rows = [len(level.grid.lefts) for level in levels for _ in level.grid.tops]
        more = {'halvings': halvings, 'min-score': tiling.min_score}
        journal = open_journal(unfinished(self.out), self.settings() | more)
        with self.predicting(rows, journal) as predict:
            detect(path, levels, predict, journal, min_score=tiling.min_score, bands=self.bands)
        self.merge(list(read_json_lines(journal.content, strict=True)))

    def merge(self, lines: Sequence[dict]) -> None:
        """Write the boxes of all tiles without duplicates."""
        cfg, classes, image = self.trained.cfg, self.trained.classes, self.image
        version, merge_iou = angle_version(cfg), self.tiling.merge_iou
        if merge_iou is None:
            merge_iou = ROTATED_IOU if version else UPRIGHT_IOU
        lines = suppress_duplicates(lines, merge_iou)
        result = as_coco(lines, self.path.name, (image.height, image.width), classes, version)
        if version:
            objects = ((self.path.stem, item) for item in result['annotations'])
            write_dota(self.out.with_name(f'{self.out.stem}_dota'), classes, objects)
        write_geojson(self.out.with_suffix('.geojson'), result, image)
        atomic_write_text(self.out, json.dumps(result) + '\n')
        print(f'{len(lines)} objects')
        if self.picture:
            kind, colours = visualizer_of(cfg, '', 0)['type'], dict(enumerate(self.trained.colours))
            draw_boxes(self.path, lines, classes, colours, self.picture, kind, self.bands)
