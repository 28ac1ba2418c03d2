"""Predict images larger than memory: the work of ``rope-dense predict-large``."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
from ..project.find import check_ending
from ..project.identity import Identity
from ..project.launch import init_rank
from ..project.load import Options, find_model
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


@dataclass(frozen=True)
class LargeRequest:
    """The model, an image or a folder, and what is wanted of them.

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
    """

    config: str
    checkpoint: str | None
    image: Path
    out: Path | None = None
    picture: Path | None = None
    tile: int | None = None
    size: str | None = None
    overlap: int | None = None
    batch: int = 1
    halvings: int | None = None
    score: Scores = DEFAULT
    merge_iou: float | None = None
    overwrite: bool = False
    device: str | None = None
    cfg_options: Options = ()
    work_dir: str | None = None


def predict_large(request: LargeRequest) -> Path:
    """Predict images of any size in tiles; an interrupted run is continued.

    Several processes (see ``processes``) share the images of a folder, or the rows of tiles of one
    image.

    Returns:
        The path of the result, or of their folder.

    Raises:
        UsageError, CheckpointError, ValueError: settings or files that cannot be used; nothing is
            written.
    """
    rank, count = init_rank()
    device = checked_device(request.device)
    given = request.image
    share = (0, 1) if given.is_dir() else (rank, count)
    if share != (0, 1) and 'MASTER_ADDR' not in os.environ:
        raise UsageError(
            f'{given}: processes of torchrun share one image, of a job array a folder'
        )
    picture = request.picture
    if picture is not None and given.is_dir():
        raise UsageError(f'--picture {picture}: of one image, and {given} is a folder')
    cfg, weights = find_model(
        request.config, request.checkpoint, request.cfg_options, request.work_dir
    )
    result_ending(cfg)  # before anything is built
    assert weights is not None, 'a model of one task'
    if request.size is not None:
        cfg = at_size(cfg, parse_size(request.size))
    tile, overlap = tile_and_overlap(cfg, request.tile, request.overlap)
    results, images = find_work(cfg, request, rank, count)
    bands = find_load_bands(next(pipelines(cfg.test_dataloader.dataset)))
    for path, out in images:  # before the model is built
        opened = open_image(path, bands)
        len(TileGrid(opened.height, opened.width, tile, overlap))
        results.check(files_in_tiles(cfg, opened, out))
    with DefaultScope.overwrite_default_scope(cfg.default_scope), results:
        trained = load_trained(cfg, request.config, weights, device)
        run = Path(cfg.work_dir)
        least = least_scores(request.score, run, trained.classes, weights)
        tiling = Tiling(
            tile,
            overlap,
            request.batch,
            [*least.values()],
            request.halvings,
            request.merge_iou,
        )
        for path, out in images:
            # Of one image, the processes have one folder of journals.
            home = results.home if given.is_dir() else out.parent / HOME / out.name
            journal = home / 'journal' / out.relative_to(results.folder)
            with explain_stop():
                if request.overwrite:
                    remove_journal(part_of(journal, *share))
                tiled = TiledImage(
                    trained,
                    path,
                    out,
                    tiling,
                    results.write,
                    journal,
                    picture,
                    share=share,
                )
                if tiled.predict():
                    also = f', {picture}' if picture else ''
                    print(f'{out}{also}; {memory_text()}')
    return results.folder if given.is_dir() else out


def find_work(
    cfg: Config, request: LargeRequest, rank: int, count: int
) -> tuple[Results, list[tuple[Path, Path]]]:
    """The place of the results, and the images of this process with theirs, which they lack.

    UsageError for one image that has a result, ForeignFileError for a file of the user's.
    """
    given = request.image
    places = results_of(cfg, given, request.out)
    images = [*places.items()]
    if given.is_dir():
        images = images[rank::count]
        folder = Path(request.out or cfg.work_dir)
        name = 'predict-large'
    else:
        out = places[given]
        folder, name = out.parent, out.name
    if rank:
        name += f'/{rank + 1}_of_{count}'
    results = Results(folder, name, places)
    if request.picture:
        results.check([request.picture])
    results.check([out for _, out in images], keeps=not request.overwrite)
    if not request.overwrite:  # a result stays, also an edited one
        images = [image for image in images if not os.path.lexists(image[1])]
    if given.is_dir():
        print(f'{len(images)} of {len(places)} images are predicted by this process')
    elif not images:
        raise UsageError(
            f'{out} exists: give another --out, or --overwrite to replace it'
        )
    return results, images


def load_trained(
    cfg: Config, name: str, weights: str, device: torch.device
) -> TrainedModel:
    """The model of a config of a name, with its weights, on a device."""
    used = ready(cfg, 'test', weights=weights, has_runner=False, has_data=False)
    classes, colours = classes_and_colours(cfg, used.checkpoint)
    model = revert_sync_batchnorm(used.model).to(device).eval()
    identity = Identity.of(cfg, name, weights)
    return TrainedModel(cfg, model, classes, colours, identity)


def results_of(cfg: Config, given: Path, out: Path | None) -> dict[Path, Path]:
    """The files of the results of an image or of the images of a folder.

    Raises:
        UsageError: of an image, it is no such file.
    """
    ending = result_ending(cfg)
    if given.is_dir():
        folder = Path(out or cfg.work_dir)
        check_beside(given, folder)
        reader = ImageReader(next(pipelines(cfg.test_dataloader.dataset)))
        places = {}
        for source in reader.find(given, folder):
            stem = source.picture.removesuffix('.jpg')
            places[source.path] = folder / f'{stem}_{ending}'
        return places
    if out is None:
        out = Path(cfg.work_dir, f'{given.stem}_{ending}')
    endings = LABEL_FORMATS if 'labels' in ending else [Path(ending).suffix]
    check_ending('--out', out, endings)
    return {given: out}


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
