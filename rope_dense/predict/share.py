"""Predict the images of one process: as a whole, in batches, or in tiles; and finish the files."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from mmengine.infer import BaseInferencer
from mmengine.structures import BaseDataElement

from ..data.images.headers import Header, read_header
from ..data.images.pictures import check_picture
from ..data.images.sources import ImageReader, Source, left_out_text
from ..data.tiles.plan import TilePlan
from ..project.contents import tile_plan
from ..project.launch import should_merge
from ..utils.disk import is_disk_error
from ..utils.errors import UsageError
from ..utils.journal import remove_journal
from ..utils.progress import progress
from .files import DRAWN, Writer
from .inferencer import predict_batch
from .place import Output, file_state, journal_or_anew
from .request import Pictures
from .tiles import TiledImage, Tiling, TrainedModel, result_ending, tile_and_overlap

Image = tuple[Source, np.ndarray]
Errors = dict[Path, Exception]  # of the images that cannot be predicted, by their files


@dataclass(frozen=True)
class Predictor:
    """A built model with what is done with its predictions.

    Args:
        trained: the model.
        inferencer: of mmdet or mmseg.
        writer: of the files.
        output: their place.
        batch: images at a time.
        tile_above: megapixels above which an image is predicted in tiles.
    """

    trained: TrainedModel
    inferencer: BaseInferencer
    writer: Writer
    output: Output
    batch: int
    tile_above: float


def predict_share(
    predictor: Predictor, pictures: Pictures, rank: int, count: int
) -> None:
    """Predict the share of a process, and finish the files if it is the last.

    UsageError if no image can be predicted.
    """
    output, writer, sources = predictor.output, predictor.writer, pictures.sources
    states = {source.file_name: file_state(source.path) for source in sources}
    output.gather(states)
    try:
        failed = predict_images(predictor, pictures.reader, sources[rank::count])
    except KeyboardInterrupt:
        done = f'{len(writer.done())} of {len(sources)} images are in {output.folder}'
        print(f'\nstopped; {done}: the same command continues', file=sys.stderr)
        raise
    output.gather(states)  # notes the share of this process
    is_last = should_merge(rank, count)
    if is_last:
        output.gather(states)
    lines = [path_error_text(*item) for item in failed.items()]
    if is_last and lines and not writer.done():
        reason = next(iter(failed.values()))
        raise UsageError(f'no image could be predicted; {lines[0]}') from reason
    if is_last and isinstance(pictures.given, (str, Path)):
        suffixes = pictures.reader.suffixes
        others = left_out_text(Path(pictures.given), suffixes, output.folder)
        if others:
            lines.append(others)
    for line in lines:
        print(f'not predicted: {line}')
    if is_last:
        print(writer.finish())
        output.forget()


def predict_images(
    predictor: Predictor, reader: ImageReader, sources: Sequence[Source]
) -> Errors:
    """Predict images, large ones in tiles; returns the errors of those that cannot be.

    Images that an interrupted run has predicted are left out.
    """
    done = predictor.writer.done()
    left = [source for source in sources if source.file_name not in done]
    before = len(sources) - len(left)
    if before:
        print(f'{before} of {len(sources)} images were predicted before')
    plan = tile_plan(predictor.trained.cfg)
    small = []
    large = []
    for source in progress(left, 'sizes of images'):
        try:
            header = read_header(source.path)
        except (OSError, ValueError):  # the reason is said when it is read
            small.append(source)
            continue
        if header.pages > 1 and reader.bands is None:
            print(f'{source.path}: {header.pages} pages, the first is predicted')
        if is_large(source.path, header, predictor.tile_above, plan):
            large.append(source)
        else:
            small.append(source)
    failed = predict_in_tiles(predictor, large) if large else {}
    return failed | predict_small(predictor, reader, small)


def is_large(
    path: Path, header: Header, tile_above: float, plan: TilePlan | None
) -> bool:
    """Return whether an image is predicted in tiles.

    Such images have more megapixels than ``tile_above``; of a training on tiles also a side longer
    than a tile, or a format that GDAL reads for it.
    """
    if header.height * header.width > tile_above * 1e6:
        return True
    if plan is None:
        return False
    if max(header.height, header.width) > plan.tile:
        return True
    try:
        check_picture(path, header)
    except ValueError:
        return True
    return False


def predict_in_tiles(predictor: Predictor, sources: Sequence[Source]) -> Errors:
    """Predict large images by the same model; returns the errors of those that cannot be."""
    trained, writer, output = predictor.trained, predictor.writer, predictor.output
    try:
        labels = 'labels' in result_ending(trained.cfg)
        tile, overlap = tile_and_overlap(trained.cfg)
        least = [output.min_scores[name] for name in trained.classes]
    except (UsageError, ValueError) as problem:  # no image can be predicted so
        return {source.path: problem for source in sources}
    tiling = Tiling(tile, overlap, predictor.batch, least)
    without = ', without --scores' if output.wanted.scores and labels else ''
    failed: Errors = {}
    for source in sources:
        print(f'{source.path}: in tiles{without}')
        journal = output.results.home / 'tiles' / source.picture
        try:
            image = TiledImage(
                trained,
                source.path,
                writer.tiles_file(source),
                tiling,
                writer.writing(source),
                journal,
                writer.out / DRAWN / source.picture,
                journal_or_anew,
            )
            image.predict()
            writer.add_tiles(source)
        except Exception as error:
            if is_disk_error(error):
                raise
            remove_journal(journal)
            failed[source.path] = error
    return failed


def predict_small(
    predictor: Predictor, reader: ImageReader, sources: Sequence[Source]
) -> Errors:
    """Predict images as a whole; returns the errors of those that cannot be."""
    failed: Errors = {}
    for chunk in chunks(progress(sources, 'images'), predictor.batch):
        images = []
        for source in chunk:
            try:
                images.append((source, reader.read(source.path)))
            except ValueError as error:
                failed[source.path] = error
        for (source, image), sample in predict_some(
            predictor.inferencer, images, failed
        ):
            try:
                predictor.writer.add(source, reader.picture(image), sample)
            except Exception as error:  # whatever it is, other images can be written
                if is_disk_error(error):
                    raise
                failed[source.path] = error
    return failed


def path_error_text(path: Path, error: Exception) -> str:
    """A path and the first line of an error, or its kind: 'PATH: no such file'."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if lines[0].startswith(f'{path}:') else f'{path}: {lines[0]}'


def predict_some(
    inferencer: BaseInferencer, images: Sequence[Image], failed: Errors
) -> Iterator[tuple[Image, BaseDataElement]]:
    """The predictions for a batch, or, if it fails, for its images one by one.

    Errors go to ``failed``.
    """
    try:
        files = [source.path for source, _ in images]
        pixels = [image for _, image in images]
        samples = predict_batch(inferencer, pixels, len(images), files)
    except Exception as error:  # whatever it is, other images can be predicted
        if len(images) == 1:
            source, _ = images[0]
            failed[source.path] = error
            return
        for one in images:
            yield from predict_some(inferencer, [one], failed)
        return
    yield from zip(images, samples, strict=True)


def chunks(items: Iterable, size: int) -> Iterator[list]:
    """Lists of `size` items; the last one may be shorter."""
    left = iter(items)
    return iter(lambda: [*islice(left, size)], [])
