"""Predict images, folders, lists and videos: the work of ``rope-dense predict``."""

import errno
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path

import cv2
import numpy as np
from mmengine.config import Config
from mmengine.infer import BaseInferencer
from mmengine.registry import DefaultScope
from mmengine.structures import BaseDataElement

from ..data.images.headers import Header, read_header
from ..data.images.pictures import check_picture
from ..data.images.sources import (
    ImageReader,
    Source,
    Video,
    find_video,
    left_out_text,
    listed_sources,
    unreadable_sources,
)
from ..project.building import checked_device
from ..project.contents import at_size, task_of, tile_plan, used_loaders
from ..project.identity import Identity
from ..project.launch import init_rank, should_merge
from ..project.load import find_model
from ..utils.config_parts import pipelines
from ..utils.disk import is_disk_error
from ..utils.errors import UsageError
from ..utils.journal import remove_journal
from ..utils.progress import progress
from ..utils.results import Results
from ..utils.sizes import ImageSize
from ..utils.validation import parse_size
from .files import DRAWN, Writer
from .formats import check_wanted
from .inferencer import build_inferencer, predict_batch
from .output import FILES, files_of, task_files
from .place import Output, Wanted, file_state, journal_or_anew
from .thresholds import DEFAULT, Scores, least_scores
from .tiles import TiledImage, Tiling, TrainedModel, result_ending, tile_and_overlap

Given = str | Path | Sequence[str | Path]  # one path, or several
Image = tuple[Source, np.ndarray]


@dataclass(frozen=True)
class Pictures:
    """The images that are predicted.

    Args:
        given: what the user gave.
        reader: of the config's images.
        sources: of all processes; none of a video.
        video: or None.
    """

    given: Given
    reader: ImageReader
    sources: Sequence[Source]
    video: Video | None

    def inputs(self) -> list[str | Path]:
        """The files that are read."""
        return (
            [self.video.given]
            if self.video
            else [source.path for source in self.sources]
        )

    @cached_property
    def paths(self) -> dict[str, Path]:
        """The files of the images, by their names."""
        return {source.file_name: source.path for source in self.sources}

    def drawable(self, file_name: str) -> np.ndarray:
        """The pixels of an image by its name: BGR uint8 [H, W, 3]."""
        return self.reader.picture(self.reader.read(self.paths[file_name]))


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


def predict(
    config: str | Path,
    checkpoint: str | Path | None,
    images: Given,
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

    What cannot be read, predicted or drawn is named at the end. Several processes (see
    ``processes``) share the images.

    Args:
        config, checkpoint, cfg_options, work_dir: see ``find_model``.
        images: a file, a folder, a list of files, a video, the number of a camera, the address of a
            stream; or '-' for paths on standard input.
        out: folder; by default predictions, in the work folder. Files of the user's in it stay:
            see ``Results``.
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
    cfg, weights = find_model(config, checkpoint, cfg_options, work_dir)
    used_loaders(cfg, 'test')
    cfg = cfg if size is None else at_size(cfg, parse_size(size))
    folder = Path(cfg.work_dir, 'predictions') if out is None else Path(out)
    pictures = find_pictures(cfg, images, folder, count)
    wanted = Wanted(write, scores, None if ids is None else Path(ids))
    check_wanted(wanted, [task_of(cfg)], pictures.video is None)
    inputs = [*pictures.inputs(), config, weights or '', ids or '']
    results = Results(folder, f'predict/{rank}', inputs, is_flushed=False)
    with results, DefaultScope.overwrite_default_scope(cfg.default_scope):
        check_files(cfg, pictures, results, wanted)
        inferencer = build_inferencer(cfg, weights, str(place))
        meta, identity = (
            inferencer.model.dataset_meta,
            Identity.of(cfg, str(config), weights or ''),
        )
        trained = TrainedModel(
            cfg, inferencer.model, meta['classes'], meta['palette'], identity
        )
        classes = check_tasks(cfg, inferencer, pictures, wanted)
        least = least_scores(score, Path(cfg.work_dir), classes, weights or '')
        given = str(images) if isinstance(images, (str, Path)) else [*map(str, images)]
        settings = dict(images=given, score=least, scores=scores, tile_above=tile_above)
        settings |= identity.described()
        output = Output(results, folder, wanted, settings, least, pictures.drawable)
        if task_of(cfg) == 'several':
            writer: Writer = task_files(cfg, inferencer.model, output, pictures.sources)
        else:
            writer = files_of(cfg, inferencer.visualizer, output)
        predictor = Predictor(trained, inferencer, writer, output, batch, tile_above)
        if pictures.video:
            predict_video(predictor, pictures.video)
            print(writer.finish())
            output.forget()
        else:
            predict_sources(predictor, pictures, rank, count)
        if edited := results.edited_text():
            print(edited)
    return folder


def find_pictures(cfg: Config, images: Given, out: Path, count: int) -> Pictures:
    """The images that the user gave, for a number of processes.

    UsageError if they cannot be shared, or the images of a folder would be among the results.
    """
    reader = ImageReader(next(pipelines(cfg.test_dataloader.dataset)))
    is_path = isinstance(images, (str, Path))
    video = find_video(str(images)) if is_path else None
    if count > 1 and (video or images == '-'):
        raise UsageError(
            'several processes predict images of a folder or a list, no video or -'
        )
    if video:
        return Pictures(images, reader, [], video)
    if images == '-':
        return Pictures(images, reader, listed_sources(sys.stdin), None)
    if not isinstance(images, (str, Path)):
        return Pictures(images, reader, listed_sources(map(str, images)), None)
    given, inside = Path(images), out.resolve()
    if given.is_dir() and inside in (given.resolve(), *given.resolve().parents):
        raise UsageError(
            f'--out {out} contains the images of {given}: give a folder beside or below them'
        )
    # Folders and dead links that have the name of an image are named at the end.
    return Pictures(
        images,
        reader,
        [*reader.find(given, out), *unreadable_sources(given, out)],
        None,
    )


def check_files(
    cfg: Config, pictures: Pictures, results: Results, wanted: Wanted
) -> None:
    """Raise ForeignFileError if a result would replace a file of the user's."""
    if (
        task_of(cfg) in FILES
    ):  # the models of several tasks check theirs when they are built
        FILES[task_of(cfg)].check(results, results.folder, wanted, pictures.sources)
    if pictures.video:
        results.check([video_file(results.folder, pictures.video)])


def check_tasks(
    cfg: Config, inferencer: BaseInferencer, pictures: Pictures, wanted: Wanted
) -> list[str]:
    """The classes of all tasks, whose predictions can be written; else UsageError."""
    metas = {'': inferencer.model.dataset_meta}
    if task_of(cfg) == 'several':
        tasks, metas = inferencer.model.configs, inferencer.model.dataset_metas
        check_wanted(wanted, [*map(task_of, tasks.values())], pictures.video is None)
    classes = [name for meta in metas.values() for name in meta.get('classes', ())]
    wanted.say_lacking(classes, [source.file_name for source in pictures.sources])
    return classes


def predict_sources(
    predictor: Predictor, pictures: Pictures, rank: int, count: int
) -> None:
    """Predict the share of a process, and finish the files if it is the last.

    UsageError if no image can be predicted.
    """
    output, writer, sources = predictor.output, predictor.writer, pictures.sources
    states = {source.file_name: file_state(source.path) for source in sources}
    output.gather(states)
    try:
        failed = predict_images(predictor, sources[rank::count])
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
    for line in lines:
        print(f'not predicted: {line}')
    if not is_last:
        return
    if isinstance(pictures.given, (str, Path)):
        suffixes = pictures.reader.suffixes
        if others := left_out_text(Path(pictures.given), suffixes, output.folder):
            print(f'not predicted: {others}')
    print(writer.finish())
    output.forget()


def predict_images(
    predictor: Predictor, sources: Sequence[Source]
) -> dict[Path, Exception]:
    """Predict images, large ones in tiles; returns the errors of those that cannot be.

    Images that an interrupted run has predicted are left out. Large ones have more megapixels than
    ``tile_above``; of a training on tiles also a side longer than a tile, or GDAL's formats.
    """
    done = predictor.writer.done()
    left = [source for source in sources if source.file_name not in done]
    if len(left) < len(sources):
        print(
            f'{len(sources) - len(left)} of {len(sources)} images were predicted before'
        )
    small, large = list[Source](), list[Source]()
    bands = ImageReader(predictor.inferencer.cfg.test_dataloader.dataset.pipeline).bands
    plan = tile_plan(predictor.trained.cfg)
    for source in progress(left, 'sizes of images'):
        try:
            header = read_header(source.path)
        except (OSError, ValueError):  # the reason is said when it is read
            small.append(source)
            continue
        if header.pages > 1 and bands is None:
            print(f'{source.path}: {header.pages} pages, the first is predicted')
        is_large = header.height * header.width > predictor.tile_above * 1e6
        if plan is not None:
            is_large |= max(header.height, header.width) > plan.tile
            is_large |= not is_decoded_whole(source.path, header)
        (large if is_large else small).append(source)
    failed = predict_in_tiles(predictor, large) if large else {}
    return failed | predict_small(predictor, small)


def is_decoded_whole(path: Path, header: Header) -> bool:
    """Return whether an image is read as a whole: a training on tiles reads others by GDAL, too."""
    try:
        check_picture(path, header)
    except ValueError:
        return False
    return True


def predict_in_tiles(
    predictor: Predictor, sources: Sequence[Source]
) -> dict[Path, Exception]:
    """Predict large images by the same model; returns the errors of those that cannot be."""
    trained, writer, output = predictor.trained, predictor.writer, predictor.output
    failed: dict[Path, Exception] = {}
    try:
        labels = 'labels' in result_ending(trained.cfg)
        least = [output.min_scores[name] for name in trained.classes]
        tiling = Tiling(
            *tile_and_overlap(trained.cfg), predictor.batch, min_score=least
        )
    except (UsageError, ValueError) as problem:  # no image can be predicted so
        return dict.fromkeys((source.path for source in sources), problem)
    without = ', without --scores' if output.wanted.scores and labels else ''
    for source in sources:
        print(f'{source.path}: in tiles{without}')
        journal = output.results.home / 'tiles' / source.picture
        image = partial(
            TiledImage, trained, source.path, writer.tiles_file(source.picture), tiling
        )
        picture = writer.out / DRAWN / source.picture
        try:
            image(writer.writing(source), journal, picture, journal_or_anew).predict()
            writer.add_tiles(source)
        except Exception as error:
            if is_disk_error(error):
                raise
            remove_journal(journal)
            failed[source.path] = error
    return failed


def predict_small(
    predictor: Predictor, sources: Sequence[Source]
) -> dict[Path, Exception]:
    """Predict images as a whole; returns the errors of those that cannot be."""
    failed: dict[Path, Exception] = {}
    inferencer, writer = predictor.inferencer, predictor.writer
    reader = ImageReader(inferencer.cfg.test_dataloader.dataset.pipeline)
    for chunk in chunks(progress(sources, 'images'), predictor.batch):
        images = []
        for source in chunk:
            try:
                images.append((source, reader.read(source.path)))
            except ValueError as error:
                failed[source.path] = error
        for (source, image), sample in predict_some(inferencer, images, failed):
            try:
                writer.add(source, reader.picture(image), sample)
            except Exception as error:  # whatever it is, other images can be written
                if is_disk_error(error):
                    raise
                failed[source.path] = error
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


def video_file(folder: Path, video: Video) -> Path:
    """The drawn video."""
    return folder / f'{video.name}.mp4'


def predict_video(predictor: Predictor, video: Video) -> None:
    """Predict the frames of a video; the drawn ones become a video again.

    A camera or a stream ends with Ctrl-C.
    """
    target, number = video_file(predictor.output.folder, video), 0
    with predictor.output.results.write(target) as file:
        drawn = DrawnVideo(file, target, video.rate)
        try:
            for images in chunks(
                progress(video.frames(), 'frames', video.count), predictor.batch
            ):
                samples = predict_batch(predictor.inferencer, images, predictor.batch)
                for image, sample in zip(images, samples, strict=True):
                    name = f'{video.name}/{number:06d}.jpg'
                    frame = Source(Path(video.given), name, name)
                    drawn.add(predictor.writer.add(frame, image, sample))
                    number += 1
        except KeyboardInterrupt:
            if video.count:
                raise
        finally:
            drawn.close()
        drawn.check(number)
    print(f'{number} frames drawn: {target}')


class DrawnVideo:
    """A video that is written frame by frame.

    Args:
        file: that is written.
        target: its name in errors.
        rate: frames a second.
    """

    def __init__(self, file: Path, target: Path, rate: float) -> None:
        self.file, self.target, self.rate = file, target, rate
        self.video: cv2.VideoWriter | None = None

    def add(self, frame: np.ndarray) -> None:
        """Add a frame (BGR); UsageError if OpenCV has no writer for its size."""
        if self.video is None:
            self.video = open_video(self.file, self.rate, frame.shape[:2], self.target)
        self.video.write(frame)

    def close(self) -> None:
        if self.video is not None:
            self.video.release()

    def check(self, number: int) -> None:
        """Raise OSError unless all frames are in the file: OpenCV is silent on a full disk."""
        if not number:
            self.file.unlink()
            return
        capture = cv2.VideoCapture(str(self.file))
        written = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
        capture.release()
        if 0 <= written < number:
            raise OSError(errno.ENOSPC, f'{written} of {number} frames were written')


def open_video(
    file: Path, rate: float, size: ImageSize, target: Path | None = None
) -> cv2.VideoWriter:
    """A video to be written; UsageError, with its name, if OpenCV has no writer for this size."""
    height, width = size
    code = cv2.VideoWriter.fourcc(*'mp4v')
    video = cv2.VideoWriter(str(file), code, rate, (width, height))
    if not video.isOpened():
        raise UsageError(
            f'{target or file}: OpenCV writes no video of {width} x {height} pixels; predict its '
            'frames as images, or a smaller video'
        )
    return video
