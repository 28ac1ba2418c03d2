"""Predictions by the inferencers of mmdet and mmseg, for images and videos."""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import cv2
import mmengine
import numpy as np
import torch
from mmengine.config import Config
from mmengine.infer import BaseInferencer
from mmengine.registry import VISUALIZERS
from mmengine.structures import BaseDataElement
from mmengine.utils import ProgressBar
from mmengine.visualization import Visualizer

from ..checks.model import patch_size
from ..checks.trained_model import classes_and_colours
from ..commands import predict_large
from ..datasets.images.sources import (
    Source,
    find_sources,
    first_problem,
    listed_sources,
    pixels_of,
    range_in,
    read_frames,
    read_image,
    stream_name,
    unreadable_sources,
)
from ..integrations.hub_config import is_stored, registered_only
from ..models.shared_backbone import FEATURES, SharedBackbone
from ..project.angles import angle_version
from ..project.errors import UsageError
from ..project.task import detects, task_of, visualizer_of
from ..project.weights import check_tested_weights, read_safely
from ..utils.config_parts import without_labels
from ..utils.sizes import ImageSize
from .files import (
    DRAWN,
    LABELS,
    DepthFiles,
    DetectionFiles,
    FeatureFiles,
    SegmentationFiles,
    TaskFiles,
    Writer,
)
from .journal import Journal
from .thin import cut, most_ratio, padded

Image = tuple[Source, np.ndarray]


def sources_of(given: str, out: Path) -> list[Source]:
    """The images of a file, a list on standard input, or a folder, but not those in ``out``.

    With folders and dead links that have the name of an image: they are named at the end.
    """
    if given == '-':
        return listed_sources(sys.stdin)
    return [*find_sources(Path(given), out), *unreadable_sources(Path(given), out)]


def build(cfg: Config, args: argparse.Namespace, device: str) -> tuple[BaseInferencer, Writer]:
    """The inferencer of mmdet or mmseg with the weights, and the writer of its results."""
    inferencer = build_inferencer(cfg, args.checkpoint, device)
    if task_of(cfg) == 'several':
        return inferencer, task_files(cfg, inferencer.model, args)
    return inferencer, files_of(cfg, inferencer.visualizer, args)


def files_of(cfg: Config, visualizer: Visualizer, args: argparse.Namespace) -> Writer:
    """The files of a model; the visualizer has its classes and colours."""
    meta, journal = visualizer.dataset_meta, journal_of(args)
    task = task_of(cfg)
    if task == 'depth':
        return DepthFiles(args.out, journal)
    if task in ('boxes', 'oriented'):
        common, version = (visualizer, args.out, meta['classes']), angle_version(cfg)
        return DetectionFiles(*common, args.score, journal, version)
    return SegmentationFiles(visualizer, args.out, meta['palette'], args.scores, journal)


def task_files(cfg: Config, model: SharedBackbone, args: argparse.Namespace) -> TaskFiles:
    """The files of several tasks."""
    writers: dict[str, Writer] = {}
    for name, task in model.configs.items():
        stored = dict(meta=dict(dataset_meta=model.dataset_metas[name]))
        classes, colours = classes_and_colours(task, stored)
        visualizer = VISUALIZERS.build(visualizer_of(task, f'predictions-{name}', alpha=0.6))
        visualizer.dataset_meta = dict(classes=classes, palette=colours)
        checkpoint = cfg.model.tasks[name].get('checkpoint') or ''
        changed = dict(out=args.out / name, checkpoint=checkpoint)
        writers[name] = files_of(task, visualizer, argparse.Namespace(**vars(args) | changed))
    if model.features:
        changed = dict(out=args.out / FEATURES, checkpoint='')
        journal = journal_of(argparse.Namespace(**vars(args) | changed))
        writers[FEATURES] = FeatureFiles(args.out / FEATURES, journal)
    return TaskFiles(writers)


def build_inferencer(cfg: Config, checkpoint: str | None, device: str) -> BaseInferencer:
    """The inferencer of mmdet or mmseg with the weights, and with the classes of their training.

    Args:
        checkpoint: None for a model of several tasks, which has weights and classes.

    Raises:
        UsageError, CheckpointError: the weights cannot be read, or do not fit.
    """
    read_safely()
    cfg = copy.deepcopy(cfg)  # the inferencers change pipelines
    cfg.visualizer = visualizer_of(cfg, 'predictions', alpha=0.6)
    cfg.load_from = None
    dataset = cfg.test_dataloader.dataset
    dataset.pipeline = without_labels(dataset.pipeline)
    if detects(cfg):
        from mmdet.apis import DetInferencer as Inferencer
    else:
        from mmseg.apis import MMSegInferencer as Inferencer
    # The log is about mmengine's own business: the backend of a file, a scope without functions.
    guard = registered_only() if is_stored(cfg) else contextlib.nullcontext()
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with guard, quiet[0], quiet[1]:
        settings = dict(device=device, scope=cfg.default_scope)
        inferencer = Inferencer(copy.deepcopy(cfg), checkpoint, **settings)
    inferencer.show_progress = False
    if checkpoint is None:
        inferencer.model.dataset_meta = dict(classes=(), palette=())
        return inferencer
    # The inferencers warn where weights are missing, and take classes of COCO or Cityscapes then.
    stored = check_tested_weights(checkpoint, inferencer.model)
    classes, colours = classes_and_colours(cfg, stored)
    inferencer.model.dataset_meta = dict(classes=classes, palette=colours)
    inferencer.visualizer.dataset_meta = inferencer.model.dataset_meta
    return inferencer


def journal_of(args: argparse.Namespace) -> Journal:
    """The journal of the runs with these arguments and this checkpoint file."""
    settings = {name: str(value) for name, value in vars(args).items() if name != 'device'}
    if Path(args.checkpoint).is_file():
        settings['written'] = str(Path(args.checkpoint).stat().st_mtime_ns)
    return Journal(args.out / 'unfinished.jsonl', settings)


def predict_images(
    args: argparse.Namespace, inferencer: BaseInferencer, writer: Writer, sources: Sequence[Source]
) -> None:
    """Predict images; those that cannot be read or predicted are named at the end.

    Images that an interrupted run has predicted are left out.
    """
    white = range_in(inferencer.cfg.test_dataloader.dataset.pipeline)
    left = [source for source in sources if source.file_name not in writer.journal.entries]
    if len(left) < len(sources):
        print(f'{len(sources) - len(left)} of {len(sources)} images were predicted before')
    bar, failed = ProgressBar(len(left), file=sys.stderr), dict[Path, Exception]()
    small = []
    for source in left:
        if pixels_of(source.path) > args.tile_above * 1e6:
            try:
                predict_in_tiles(args, writer, source)
            except Exception as problem:  # whatever it is, other images can be predicted
                failed[source.path] = problem
            bar.update()
        else:
            small.append(source)
    for chunk in chunks(small, args.batch):
        images = [(source, read_image(source.path, white)) for source in chunk]
        unread = [source.path for source, image in images if image is None]
        failed |= {path: UsageError(first_problem(path)) for path in unread}
        readable = [(source, image) for source, image in images if image is not None]
        for (source, image), sample in predict_some(inferencer, readable, failed):
            writer.add(source.file_name, source.picture, image, sample)
        bar.update(len(chunk))
    if failed and len(failed) == len(sources):
        path, reason = next(iter(failed.items()))
        raise UsageError(f'no image could be predicted; {path}: {first_line(reason)}') from reason
    for path, reason in failed.items():
        print(f'\nnot predicted: {path}: {first_line(reason)}', end='')


def first_line(error: Exception) -> str:
    """The first line of its message, or its kind."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def predict_some(
    inferencer: BaseInferencer, images: Sequence[Image], failed: dict[Path, Exception]
) -> Iterator[tuple[Image, BaseDataElement]]:
    """The predictions for a batch, or, if it fails, for its images one by one.

    Errors go to ``failed``.
    """
    try:
        samples = predict(inferencer, [image for _, image in images], len(images))
    except Exception as error:  # whatever it is, other images can be predicted
        if len(images) == 1:
            failed[images[0][0].path] = error
            return
        for one in images:
            yield from predict_some(inferencer, [one], failed)
        return
    yield from zip(images, samples, strict=True)


def predict(inferencer: BaseInferencer, images: Sequence[np.ndarray], batch: int) -> list:
    """The predictions for images (BGR), as data samples; thin images are padded, see ``thin``.

    Raises:
        ValueError: a prediction is not finite.
    """
    if not images:
        return []
    pipeline = inferencer.cfg.test_dataloader.dataset.pipeline
    ratio = most_ratio(pipeline, patch_size(inferencer.model))
    given = [padded(image, ratio) for image in images]
    results = inferencer(given, batch_size=batch, return_datasamples=True)
    if isinstance(results, dict):  # of mmdet
        results = results['predictions']
    samples = results if isinstance(results, list) else [results]
    for image, whole, sample in zip(images, given, samples, strict=True):
        if not is_finite(sample):
            raise ValueError(
                'the prediction is not finite (NaN): the weights are damaged, or their training '
                'diverged'
            )
        if whole is not image:
            cut(sample, image.shape[:2], whole.shape[:2])
    return samples


def is_finite(sample: BaseDataElement) -> bool:
    """Return whether all numbers of a prediction are finite."""
    for value in sample.values():
        if isinstance(value, BaseDataElement) and not is_finite(value):
            return False
        values = getattr(value, 'tensor', value)  # of rotated boxes
        if isinstance(values, torch.Tensor) and not values.isfinite().all():
            return False
    return True


def chunks(items: Iterable, size: int) -> Iterator[list]:
    """Lists of `size` items; the last one may be shorter."""
    chunk = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def predict_in_tiles(args: argparse.Namespace, writer: Writer, source: Source) -> None:
    """Predict one large image by the command predict-large.

    Raises:
        UsageError: the model estimates depth, or has several tasks.
    """
    if isinstance(writer, DepthFiles):
        raise UsageError(predict_large.NO_DEPTH)
    if isinstance(writer, TaskFiles):
        raise UsageError('several tasks predict no tiles: raise --tile-above, or give one task')
    has_boxes = isinstance(writer, DetectionFiles)
    stem = Path(source.picture).with_suffix('')
    out = args.out / (f'tiles/{stem}.json' if has_boxes else f'{LABELS}/{stem}.png')
    picture = args.out / DRAWN / source.picture
    for path in (out, picture):
        path.parent.mkdir(parents=True, exist_ok=True)
    options = ['--out', out, '--picture', picture, '--batch', args.batch, '--overwrite']
    options += ['--min-score', args.score] if has_boxes else []
    for name in ('size', 'device', 'work_dir'):
        if (given := getattr(args, name)) is not None:
            options += [f'--{name.replace("_", "-")}', given]
    options += ['--cfg-options', *args.cfg_options] if args.cfg_options else []
    print(f'{source.path}: in tiles')
    given = [args.config, args.checkpoint, source.path, *options]
    predict_large.main(predict_large.parse_args([*map(str, given)]))
    if isinstance(writer, DetectionFiles):
        content = mmengine.load(out)
        image = dict(content['images'][0], file_name=source.file_name)
        writer.add_image(image, source.picture, content['annotations'])
    else:
        writer.journal.add(dict(file_name=source.file_name))


def predict_video(
    args: argparse.Namespace,
    inferencer: BaseInferencer,
    writer: Writer,
    count: int | None,
    rate: float,
) -> None:
    """Predict the frames of a video; the drawn ones become a video again.

    A camera or a stream has no count of frames, and ends with Ctrl-C.
    """
    stem = Path(args.input).stem if count else stream_name(args.input)
    bar, number = ProgressBar(count or 0, file=sys.stderr), 0
    video, target = None, args.out / f'{stem}.mp4'
    try:
        for images in chunks(read_frames(args.input), args.batch):
            for image, sample in zip(images, predict(inferencer, images, args.batch), strict=True):
                frame = f'{stem}/{number:06d}.jpg'
                drawn = writer.add(frame, frame, image, sample)
                video = video or open_video(target, rate, drawn.shape[:2])
                video.write(drawn)
                number += 1
            bar.update(len(images))
    except KeyboardInterrupt:
        if count:
            raise
    finally:
        if video is not None:
            video.release()
    print(f'\n{number} frames drawn: {target}')


def open_video(target: Path, rate: float, size: ImageSize) -> cv2.VideoWriter:
    """A video to be written.

    Raises:
        UsageError: OpenCV has no writer for this size.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    height, width = size
    video = cv2.VideoWriter(str(target), cv2.VideoWriter.fourcc(*'mp4v'), rate, (width, height))
    if not video.isOpened():
        raise UsageError(
            f'{target}: OpenCV writes no video of {width} x {height} pixels; predict its frames as '
            'images, or a smaller video'
        )
    return video
