"""Predict one image larger than memory: the work of ``rope-dense predict-large``."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DefaultScope

from ..datasets.images.bands import bands_in
from ..large_images.band_image import open_image
from ..large_images.image_file import LABEL_FORMATS
from ..large_images.tiles import TileGrid
from ..project.building import checked_device
from ..project.errors import UsageError
from ..project.find import PICTURES, check_ending
from ..project.identity import Identity
from ..project.load import find_model
from ..project.model import classes_and_colours
from ..project.ready import ready
from ..project.sizes import at_size
from ..project.task import task_of
from ..utils.config_parts import pipelines
from ..utils.journal import JournalError
from ..utils.lock import exclusive
from ..utils.peak_memory import peak_rss
from ..utils.size_text import parse_size
from .tiles import (
    Tiling,
    TrainedModel,
    check_tiles,
    predict_tiles,
    tile_and_overlap,
    unfinished,
)


def predict_large(
    config: str | Path,
    checkpoint: str | Path | None,
    image: str | Path,
    *,
    out: str | Path | None = None,
    picture: str | Path | None = None,
    tile: int | None = None,
    size: str | None = None,
    overlap: int | None = None,
    batch: int = 1,
    halvings: int | None = None,
    min_score: float = 0.3,
    merge_iou: float | None = None,
    overwrite: bool = False,
    device: str | None = None,
    cfg_options: Iterable[str] | Mapping[str, object] = (),
    work_dir: str | None = None,
) -> Path:
    """Predict an image of any size in tiles; an interrupted run is continued.

    Args:
        config, checkpoint, cfg_options, work_dir: see ``find_model``.
        image: a file that GDAL reads.
        out: label raster (NAME.tif, NAME.png) or detections (NAME.json); by default in the work
            folder.
        picture: also draw the result on a reduced image, in this file.
        tile, overlap, batch, halvings, min_score, merge_iou: see ``Tiling``, ``tile_and_overlap``.
        size: of a tile as model input, '480' (its shorter side) or '480x640' (height and width); by
            default as the test pipeline resizes a tile.
        overwrite: start again, and replace an earlier result.
        device: such as 'cuda:1'; by default a GPU if there is one.

    Returns:
        The path of the result.

    Raises:
        UsageError, CheckpointError, ValueError: settings or files that cannot be used; nothing is
            written.
    """
    place, path = checked_device(device), Path(image)
    cfg, weights = find_model(config, checkpoint, cfg_options, work_dir)
    check_tiles(cfg)
    assert weights is not None, 'a model of one task'
    cfg = cfg if size is None else at_size(cfg, parse_size(size))
    tile, overlap = tile_and_overlap(cfg, tile, overlap)
    tiling = Tiling(tile, overlap, batch, halvings, min_score, merge_iou)
    check_image(cfg, path, tiling)
    if picture is not None:
        check_ending('--picture', picture, PICTURES)
    result = output_of(cfg, path, out, overwrite)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        used = ready(cfg, 'test', weights=weights, has_runner=False, has_data=False)
        classes, colours = classes_and_colours(cfg, used.checkpoint)
        model = revert_sync_batchnorm(used.model).to(place).eval()
        identity = Identity.of(cfg, str(config), weights)
        trained = TrainedModel(cfg, model, classes, colours, identity)
        drawn = None if picture is None else Path(picture)
        with exclusive(result), explained(result):
            if overwrite:
                shutil.rmtree(unfinished(result), ignore_errors=True)
            predict_tiles(trained, path, result, tiling, drawn)
    print(f'{result}{f", {picture}" if picture else ""}; {memory_used()}')
    return result


def check_image(cfg: Config, path: Path, tiling: Tiling) -> None:
    """Raise ValueError for an image that cannot be read, or tiles that cannot be made."""
    image = open_image(path, bands_in(next(pipelines(cfg.test_dataloader.dataset))))
    grid = TileGrid(image.height, image.width, tiling.tile, tiling.overlap)
    len(grid)


def output_of(cfg: Config, image: Path, out: str | Path | None, overwrite: bool) -> Path:
    """The file of the result, by default in the work folder.

    Raises:
        UsageError: it is no such file, or is there already.
    """
    has_labels = task_of(cfg) == 'semantic'
    if out is None:
        ending = 'labels.tif' if has_labels else 'boxes.json'
        out = Path(cfg.work_dir, f'{image.stem}_{ending}')
    check_ending('--out', out, LABEL_FORMATS if has_labels else ['.json'])
    if Path(out).exists() and not overwrite:
        raise UsageError(f'{out} exists: give another --out, or --overwrite to replace it')
    return Path(out)


@contextmanager
def explained(result: Path) -> Iterator[None]:
    """Within this context, say how to go on after Ctrl-C, or where unfinished work is another's."""
    try:
        yield
    except JournalError as error:
        advice = 'Give another --out, or --overwrite to begin anew'
        raise UsageError(f'{error}. {advice}') from error
    except KeyboardInterrupt:
        folder = unfinished(result)
        print(f'\nstopped; the same command continues ({folder})', file=sys.stderr)
        raise


def memory_used() -> str:
    """The largest memory so far, of the process and of the GPU."""
    text = f'peak memory {peak_rss() / 2**20:.0f} MB'
    if torch.cuda.is_available():
        text += f', {torch.cuda.max_memory_allocated() / 2**20:.0f} MB of tensors on the GPU'
    return text
