"""Predict images larger than memory: the work of ``rope-dense predict-large``."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DefaultScope

from ..data.images.bands import find_load_bands
from ..data.images.sources import ImageReader
from ..data.tiles.band_image import open_image
from ..data.tiles.image_file import LABEL_FORMATS
from ..data.tiles.plan import TileGrid
from ..project.building import checked_device
from ..project.contents import at_size
from ..project.find import PICTURES, check_ending
from ..project.identity import Identity
from ..project.launch import init_rank
from ..project.load import find_model
from ..project.model import classes_and_colours
from ..project.ready import ready
from ..utils.config_parts import pipelines
from ..utils.errors import UsageError
from ..utils.journal import JournalError, remove_journal
from ..utils.process import peak_rss
from ..utils.results import HOME, Results
from ..utils.validation import parse_size
from .place import check_beside
from .thresholds import DEFAULT, Scores, least_scores
from .tiles import (
    TiledImage,
    Tiling,
    TrainedModel,
    files_in_tiles,
    part_of,
    result_ending,
    tile_and_overlap,
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
    score: Scores = DEFAULT,
    merge_iou: float | None = None,
    overwrite: bool = False,
    device: str | None = None,
    cfg_options: Iterable[str] | Mapping[str, object] = (),
    work_dir: str | None = None,
) -> Path:
    """Predict images of any size in tiles; an interrupted run is continued.

    Several processes (see ``processes``) share the images of a folder, or the rows of tiles of one
    image.

    Args:
        config, checkpoint, cfg_options, work_dir: see ``find_model``.
        image: a file that GDAL reads, or a folder, of which those with a result are left out.
        out: label raster (NAME.tif, NAME.png), depth (NAME.tif) or detections (NAME.json), by
            default in the work folder; or the folder of the results of a folder.
        picture: also draw the result on a reduced image, in this file.
        tile, overlap, batch, halvings, merge_iou: see ``Tiling``, ``tile_and_overlap``.
        score: detectors: of a box that is kept, at least; see ``least_scores``.
        size: of a tile as model input, '480' (its shorter side) or '480x640' (height and width); by
            default as the test pipeline resizes a tile.
        overwrite: start again, and replace an earlier result.
        device: such as 'cuda:1'; by default a GPU if there is one.

    Returns:
        The path of the result, or of their folder.

    Raises:
        UsageError, CheckpointError, ValueError: settings or files that cannot be used; nothing is
            written.
    """
    rank, count = init_rank()
    place, given = checked_device(device), Path(image)
    part = (rank, count) if not given.is_dir() else (0, 1)
    if part[1] > 1 and 'MASTER_ADDR' not in os.environ:
        raise UsageError(
            f'{given}: processes of torchrun share one image, of a job array a folder'
        )
    if picture is not None and given.is_dir():
        raise UsageError(f'--picture {picture}: of one image, and {given} is a folder')
    cfg, weights = find_model(config, checkpoint, cfg_options, work_dir)
    result_ending(cfg)  # before anything is built
    assert weights is not None, 'a model of one task'
    cfg = cfg if size is None else at_size(cfg, parse_size(size))
    tile, overlap = tile_and_overlap(cfg, tile, overlap)
    if picture is not None:
        check_ending('--picture', picture, PICTURES)
    places = results_of(cfg, given, out)
    items = [*places.items()][rank::count] if given.is_dir() else places.items()
    folder, name = Path(out or cfg.work_dir), 'predict-large'
    if not given.is_dir():
        folder, name = places[given].parent, places[given].name
    results = Results(folder, f'{name}/{rank + 1}_of_{count}' if rank else name, places)
    journals = results.home if given.is_dir() else folder / HOME / name
    drawn = None if picture is None else Path(picture)
    results.check([drawn] if drawn else [])
    share = [x for x in items if overwrite or not os.path.lexists(x[1])]
    results.check(
        [place for _, place in items], keeps=not overwrite
    )  # an edited one stays
    if given.is_dir():
        print(f'{len(share)} of {len(places)} images are predicted by this process')
    elif not share:
        raise UsageError(
            f'{places[given]} exists: give another --out, or --overwrite to replace it'
        )
    bands = find_load_bands(next(pipelines(cfg.test_dataloader.dataset)))
    for path, result in share:  # before the model is built
        opened = open_image(path, bands)
        len(TileGrid(opened.height, opened.width, tile, overlap))
        results.check(files_in_tiles(cfg, opened, result))
    with DefaultScope.overwrite_default_scope(cfg.default_scope), results:
        used = ready(cfg, 'test', weights=weights, has_runner=False, has_data=False)
        classes, colours = classes_and_colours(cfg, used.checkpoint)
        least = [*least_scores(score, Path(cfg.work_dir), classes, weights).values()]
        tiling = Tiling(tile, overlap, batch, halvings, least, merge_iou)
        model = revert_sync_batchnorm(used.model).to(place).eval()
        identity = Identity.of(cfg, str(config), weights)
        trained = TrainedModel(cfg, model, classes, colours, identity)
        for path, result in share:
            journal, write = (
                journals / 'journal' / result.relative_to(folder),
                results.write,
            )
            with explain_stop():
                if overwrite:
                    remove_journal(part_of(journal, *part))
                tiled = TiledImage(
                    trained, path, result, tiling, write, journal, drawn, share=part
                )
                if tiled.predict():
                    print(
                        f'{result}{f", {picture}" if picture else ""}; {memory_text()}'
                    )
    return folder if given.is_dir() else places[given]


def results_of(cfg: Config, given: Path, out: str | Path | None) -> dict[Path, Path]:
    """The files of the results of an image or of the images of a folder.

    Raises:
        UsageError: of an image, it is no such file.
    """
    ending = result_ending(cfg)
    if given.is_dir():
        folder = Path(out or cfg.work_dir)
        check_beside(given, folder)
        found = ImageReader(next(pipelines(cfg.test_dataloader.dataset))).find(
            given, folder
        )
        return {
            x.path: folder / f'{x.picture.removesuffix(".jpg")}_{ending}' for x in found
        }
    if out is None:
        out = Path(cfg.work_dir, f'{given.stem}_{ending}')
    check_ending(
        '--out', out, LABEL_FORMATS if 'labels' in ending else [Path(ending).suffix]
    )
    return {given: Path(out)}


@contextmanager
def explain_stop() -> Iterator[None]:
    """Within this context, say how to go on after Ctrl-C, or where unfinished work is another's."""
    try:
        yield
    except JournalError as error:
        advice = 'Give another --out, or --overwrite to begin anew'
        raise UsageError(f'{error}. {advice}') from error
    except KeyboardInterrupt:
        print('\nstopped; the same command continues', file=sys.stderr)
        raise


def memory_text() -> str:
    """The largest memory so far, of the process and of the GPU."""
    text = f'peak memory {peak_rss() / 2**20:.0f} MB'
    if torch.cuda.is_available():
        text += f', {torch.cuda.max_memory_allocated() / 2**20:.0f} MB of tensors on the GPU'
    return text
