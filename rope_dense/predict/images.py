"""Predict images, folders, lists and videos: the work of ``rope-dense predict``."""

import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

import cv2
import numpy as np
from mmengine.config import Config
from mmengine.infer import BaseInferencer
from mmengine.registry import DefaultScope
from mmengine.structures import BaseDataElement

from ..datasets.images.headers import read_header
from ..datasets.images.sources import (
    ImageReader,
    Source,
    Video,
    find_video,
    left_out_text,
    listed_sources,
    unreadable_sources,
)
from ..project.building import checked_device
from ..project.errors import UsageError
from ..project.identity import Identity
from ..project.load import find_model
from ..project.parts import used_loaders
from ..project.sizes import at_size, tile_plan
from ..project.task import task_of
from ..utils.config_parts import pipelines
from ..utils.lock import exclusive
from ..utils.progress import progress
from ..utils.size_text import parse_size
from ..utils.sizes import ImageSize
from .files import DRAWN, Writer
from .formats import Output
from .inferencer import build_inferencer, predict_batch
from .journal import UNFINISHED, journal_or_anew
from .output import files_of, task_files
from .processes import init_rank, should_merge
from .thresholds import DEFAULT, Scores, least_scores
from .tiles import TiledImage, Tiling, TrainedModel, journal_dir, result_ending, tile_and_overlap

Image = tuple[Source, np.ndarray]


def predict(
    config: str | Path,
    checkpoint: str | Path | None,
    images: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    score: Scores = DEFAULT,
    write: Sequence[str] = ('coco',),
    ids: str | Path | None = None,
    batch: int = 1,
    size: str | None = None,
    scores: bool = False,
    tile_above: float = 32,
    device: str | None = None,
    cfg_options: Iterable[str] | Mapping[str, object] = (),
    work_dir: str | None = None,
) -> Path:
    """Predict images and write what is found; an interrupted run is continued.

    What cannot be read or predicted is named at the end. Several processes (see ``processes``)
    share the images.

    Args:
        config, checkpoint, cfg_options, work_dir: see ``find_model``.
        images: a file, a folder, a list of files, a video, the number of a camera, the address of a
            stream; or '-' for paths on standard input.
        out: folder; by default predictions, in the work folder.
        score: detectors: of a box that is written and drawn, at least; for all classes or each, see
            ``least_scores``.
        write: detectors: formats, see ``FORMATS``.
        ids: COCO file with the ids of images and classes for the format 'results'.
        batch: images at a time.
        size: of the model's input, '480' (the shorter side) or '480x640' (height and width); by
            default as the test pipeline resizes.
        scores: segmentors: also write the probability of each class, but for images in tiles; of
            detectors, with the format 'yolo', the score of each box.
        tile_above: megapixels above which an image is predicted in tiles.
        device: such as 'cuda:1'; by default a GPU if there is one.

    Returns:
        The folder.

    Raises:
        UsageError, CheckpointError, ValueError: settings or files that cannot be used, or no image
            can be predicted.
    """
    rank, count = init_rank()
    place = checked_device(device)
    warnings.filterwarnings('ignore', 'torch.meshgrid')  # of mmdet's DINO
    video = find_video(str(images)) if isinstance(images, (str, Path)) else None
    if count > 1 and (video or images == '-'):
        raise UsageError('several processes predict images of a folder or a list, no video or -')
    cfg, weights = find_model(config, checkpoint, cfg_options, work_dir)
    used_loaders(cfg, 'test')
    cfg = cfg if size is None else at_size(cfg, parse_size(size))
    folder = Path(cfg.work_dir, 'predictions') if out is None else Path(out)
    reader = ImageReader(next(pipelines(cfg.test_dataloader.dataset)))
    sources = [] if video else sources_of(images, folder, reader)
    paths = {source.file_name: source.path for source in sources}
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        inferencer = build_inferencer(cfg, weights, str(place))
        meta = inferencer.model.dataset_meta
        identity = Identity.of(cfg, str(config), weights or '')
        trained = TrainedModel(cfg, inferencer.model, meta['classes'], meta['palette'], identity)
        tasks = {'': cfg} if task_of(cfg) != 'several' else inferencer.model.configs
        metas = {'': meta} if task_of(cfg) != 'several' else inferencer.model.dataset_metas
        classes = [name for part in metas.values() for name in part.get('classes', ())]
        least = least_scores(score, Path(cfg.work_dir), classes)
        given = str(images) if isinstance(images, (str, Path)) else [*map(str, images)]
        settings = dict(images=given, score=least, scores=scores, tile_above=tile_above)
        file = None if ids is None else Path(ids)
        about = identity.described() | settings, least, scores, write, file
        output = Output(
            folder, *about, lambda x: reader.picture(reader.read(paths.get(x, Path(x)))), rank
        )
        output.check([*map(task_of, tasks.values())], classes, [*paths])
        with exclusive(folder / UNFINISHED / str(rank) if rank else folder):
            writer = writer_of(cfg, inferencer, output)
            if video:
                predict_video(inferencer, writer, video, batch)
            else:
                share, names = sources[rank::count], [source.file_name for source in sources]
                try:
                    failed = predict_images(
                        inferencer, trained, writer, share, output, batch, tile_above
                    )
                except KeyboardInterrupt:
                    done = f'{len(writer.done())} of {len(sources)} images are in {folder}'
                    print(f'\nstopped; {done}: the same command continues', file=sys.stderr)
                    raise
                output.gather(names)  # notes the share of this process
                if is_last := should_merge(rank, count):
                    output.gather(names)
                lines = [path_error_text(*item) for item in failed.items()]
                if is_last and lines and not writer.done():
                    reason = next(iter(failed.values()))
                    raise UsageError(f'no image could be predicted; {lines[0]}') from reason
                print(*(f'not predicted: {line}\n' for line in lines), sep='', end='')
                if not is_last:
                    return folder
                if isinstance(images, (str, Path)) and (
                    others := left_out_text(Path(images), reader.suffixes, folder)
                ):
                    print(f'not predicted: {others}')
            print(writer.finish())
    return folder


def sources_of(
    images: str | Path | Sequence[str | Path], out: Path, reader: ImageReader
) -> list[Source]:
    """The images of a file, a list or a folder, but not those in ``out``.

    With folders and dead links that have the name of an image: they are named at the end.
    """
    if images == '-':
        return listed_sources(sys.stdin)
    if not isinstance(images, (str, Path)):
        return listed_sources(map(str, images))
    return [*reader.find(Path(images), out), *unreadable_sources(Path(images), out)]


def writer_of(cfg: Config, inferencer: BaseInferencer, output: Output) -> Writer:
    """The files of a model, or of several tasks."""
    if task_of(cfg) == 'several':
        return task_files(cfg, inferencer.model, output)
    return files_of(cfg, inferencer.visualizer, output)


def predict_images(
    inferencer: BaseInferencer,
    trained: TrainedModel,
    writer: Writer,
    sources: Sequence[Source],
    output: Output,
    batch: int,
    tile_above: float,
) -> dict[Path, Exception]:
    """Predict images, large ones in tiles; returns the errors of those that cannot be.

    Images that an interrupted run has predicted are left out. Large ones have more megapixels than
    ``tile_above``, or a side longer than a tile of the training.
    """
    done = writer.done()
    left = [source for source in sources if source.file_name not in done]
    if len(left) < len(sources):
        print(f'{len(sources) - len(left)} of {len(sources)} images were predicted before')
    small, large = list[Source](), list[Source]()
    bands = ImageReader(inferencer.cfg.test_dataloader.dataset.pipeline).bands
    plan = tile_plan(trained.cfg)
    for source in progress(left, 'sizes of images'):
        try:
            header = read_header(source.path)
        except (OSError, ValueError):  # the reason is said when it is read
            small.append(source)
            continue
        if header.pages > 1 and bands is None:
            print(f'{source.path}: {header.pages} pages, the first is predicted')
        is_large = header.height * header.width > tile_above * 1e6
        is_large |= plan is not None and max(header.height, header.width) > plan.tile
        (large if is_large else small).append(source)
    failed = predict_in_tiles(trained, writer, large, output, batch) if large else {}
    return failed | predict_small(inferencer, writer, small, batch)


def predict_in_tiles(
    trained: TrainedModel, writer: Writer, sources: Sequence[Source], output: Output, batch: int
) -> dict[Path, Exception]:
    """Predict large images by the same model; returns the errors of those that cannot be."""
    failed: dict[Path, Exception] = {}
    try:
        labels = 'labels' in result_ending(trained.cfg)
        least = [output.min_scores[name] for name in trained.classes]
        tiling = Tiling(*tile_and_overlap(trained.cfg), batch, min_score=least)
    except (UsageError, ValueError) as problem:  # no image can be predicted so
        return dict.fromkeys((source.path for source in sources), problem)
    for source in sources:
        out, picture = writer.tiles_file(source.picture), writer.out / DRAWN / source.picture
        for path in (out, picture):
            path.parent.mkdir(parents=True, exist_ok=True)
        print(f'{source.path}: in tiles{", without --scores" if output.scores and labels else ""}')
        try:
            TiledImage(trained, source.path, out, tiling, picture, journal_or_anew).predict()
            writer.add_tiles(source.file_name, source.picture)
        except Exception as problem:  # whatever it is, other images can be predicted
            shutil.rmtree(journal_dir(out), ignore_errors=True)
            failed[source.path] = problem
    return failed


def predict_small(
    inferencer: BaseInferencer, writer: Writer, sources: Sequence[Source], batch: int
) -> dict[Path, Exception]:
    """Predict images as a whole; returns the errors of those that cannot be."""
    failed: dict[Path, Exception] = {}
    reader = ImageReader(inferencer.cfg.test_dataloader.dataset.pipeline)
    for chunk in chunks(progress(sources, 'images'), batch):
        images = []
        for source in chunk:
            try:
                images.append((source, reader.read(source.path)))
            except ValueError as error:
                failed[source.path] = error
        for (source, image), sample in predict_some(inferencer, images, failed):
            writer.add(source.file_name, source.picture, reader.picture(image), sample)
    return failed


def path_error_text(path: Path, error: Exception) -> str:
    """A path and the first line of an error, or its kind: 'PATH: no such file'."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return line if line.startswith(f'{path}:') else f'{path}: {line}'


def predict_some(
    inferencer: BaseInferencer, images: Sequence[Image], failed: dict[Path, Exception]
) -> Iterator[tuple[Image, BaseDataElement]]:
    """The predictions for a batch, or, if it fails, for its images one by one.

    Errors go to ``failed``.
    """
    try:
        samples = predict_batch(inferencer, [image for _, image in images], len(images))
    except Exception as error:  # whatever it is, other images can be predicted
        if len(images) == 1:
            failed[images[0][0].path] = error
            return
        for one in images:
            yield from predict_some(inferencer, [one], failed)
        return
    yield from zip(images, samples, strict=True)


def chunks(items: Iterable, size: int) -> Iterator[list]:
    """Lists of `size` items; the last one may be shorter."""
    left = iter(items)
    return iter(lambda: [*islice(left, size)], [])


def predict_video(inferencer: BaseInferencer, writer: Writer, source: Video, batch: int) -> None:
    """Predict the frames of a video; the drawn ones become a video again.

    A camera or a stream ends with Ctrl-C.
    """
    video, target, number = None, writer.out / f'{source.name}.mp4', 0
    try:
        for images in chunks(progress(source.frames(), 'frames', source.count), batch):
            for image, sample in zip(images, predict_batch(inferencer, images, batch), strict=True):
                frame = f'{source.name}/{number:06d}.jpg'
                drawn = writer.add(frame, frame, image, sample)
                video = video or open_video(target, source.rate, drawn.shape[:2])
                video.write(drawn)
                number += 1
    except KeyboardInterrupt:
        if source.count:
            raise
    finally:
        if video is not None:
            video.release()
    print(f'{number} frames drawn: {target}')


def open_video(target: Path, rate: float, size: ImageSize) -> cv2.VideoWriter:
    """A video to be written; UsageError if OpenCV has no writer for this size."""
    target.parent.mkdir(parents=True, exist_ok=True)
    height, width = size
    video = cv2.VideoWriter(str(target), cv2.VideoWriter.fourcc(*'mp4v'), rate, (width, height))
    if not video.isOpened():
        raise UsageError(
            f'{target}: OpenCV writes no video of {width} x {height} pixels; predict its frames as '
            'images, or a smaller video'
        )
    return video
