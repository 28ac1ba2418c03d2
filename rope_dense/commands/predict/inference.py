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
from mmengine.config import Config
from mmengine.infer import BaseInferencer
from mmengine.utils import ProgressBar

from ...datasets.image_sources import (
    Source,
    find_sources,
    listed_sources,
    pixels_of,
    read_frames,
    read_image,
)
from ...integrations.hub_config import is_stored, registered_only
from .. import predict_large
from ..dataset_meta import classes_and_colours
from ..errors import UsageError
from ..weights import check_tested_weights, read_safely
from .files import DRAWN, LABELS, DetectionFiles, SegmentationFiles

Writer = DetectionFiles | SegmentationFiles


def sources_of(given: str) -> list[Source]:
    """The images of a file, a folder, or a list on standard input."""
    return listed_sources(sys.stdin) if given == '-' else find_sources(Path(given))


def build(cfg: Config, args: argparse.Namespace, device: str) -> tuple[BaseInferencer, Writer]:
    """The inferencer of mmdet or mmseg with the weights, and what writes its results.

    Raises:
        UsageError, CheckpointError: the weights cannot be read, or do not fit.
    """
    read_safely()
    cfg = copy.deepcopy(cfg)  # the inferencers change pipelines
    detects = cfg.default_scope == 'mmdet'
    kind = 'DetLocalVisualizer' if detects else 'SegLocalVisualizer'
    cfg.visualizer = dict(type=kind, name='predictions', **({} if detects else {'alpha': 0.6}))
    cfg.load_from = None
    if detects:
        from mmdet.apis import DetInferencer as Inferencer
    else:
        from mmseg.apis import MMSegInferencer as Inferencer
    # What they log is of mmengine's own business: the backend of a file, a scope without functions.
    guard = registered_only() if is_stored(cfg) else contextlib.nullcontext()
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with guard, quiet[0], quiet[1]:
        inferencer = Inferencer(copy.deepcopy(cfg), args.checkpoint, device=device)
    inferencer.show_progress = False
    # The inferencers warn where weights are missing, and take classes of COCO or Cityscapes then.
    stored = check_tested_weights(args.checkpoint, inferencer.model)
    classes, palette = classes_and_colours(cfg, stored)
    colours = [palette[index] for index in range(len(classes))]
    inferencer.model.dataset_meta = dict(classes=classes, palette=colours)
    inferencer.visualizer.dataset_meta = inferencer.model.dataset_meta
    if detects and not is_panoptic(cfg):
        return inferencer, DetectionFiles(inferencer.visualizer, args.out, classes, args.score)
    return inferencer, SegmentationFiles(inferencer.visualizer, args.out, colours, args.scores)


def is_panoptic(cfg: Config) -> bool:
    """Return True for a model of mmdet that labels every pixel."""
    return bool((cfg.model.get('test_cfg') or {}).get('panoptic_on'))


def predict_images(
    args: argparse.Namespace, inferencer: BaseInferencer, writer: Writer, sources: Sequence[Source]
) -> None:
    """Predict images; those that cannot be read are named at the end."""
    bar, unread = ProgressBar(len(sources), file=sys.stderr), []
    small = []
    for source in sources:
        if pixels_of(source.path) > args.tile_above * 1e6:
            predict_in_tiles(args, writer, source)
            bar.update()
        else:
            small.append(source)
    for chunk in chunks(small, args.batch):
        images = [read_image(source.path) for source in chunk]
        unread += [s.path for s, image in zip(chunk, images, strict=True) if image is None]
        pairs = [(s, i) for s, i in zip(chunk, images, strict=True) if i is not None]
        samples = predict(inferencer, [image for _, image in pairs], args.batch)
        for (source, image), sample in zip(pairs, samples, strict=True):
            writer.add(source.name, image, sample)
        bar.update(len(chunk))
    if unread:
        print(f'\n{len(unread)} files are no images: {", ".join(map(str, unread[:5]))}')
    if len(unread) == len(sources):
        raise UsageError(f'no image of {args.input} could be read')


def predict(inferencer: BaseInferencer, images: Sequence[np.ndarray], batch: int) -> list:
    """The predictions for images (BGR), as data samples."""
    if not images:
        return []
    results = inferencer(list(images), batch_size=batch, return_datasamples=True)
    if isinstance(results, dict):  # of mmdet
        return results['predictions']
    return results if isinstance(results, list) else [results]


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
    """Predict one large image by the command predict-large."""
    detects = isinstance(writer, DetectionFiles)
    stem = Path(source.name).with_suffix('')
    out = args.out / (f'tiles/{stem}.json' if detects else f'{LABELS}/{stem}.png')
    picture = args.out / DRAWN / source.name
    for path in (out, picture):
        path.parent.mkdir(parents=True, exist_ok=True)
    options = ['--out', out, '--picture', picture, '--batch', args.batch, '--overwrite']
    options += ['--min-score', args.score] if detects else []
    for name in ('size', 'device', 'work_dir'):
        if (given := getattr(args, name)) is not None:
            options += [f'--{name.replace("_", "-")}', given]
    options += ['--cfg-options', *args.cfg_options] if args.cfg_options else []
    print(f'{source.path}: in tiles')
    given = [args.config, args.checkpoint, source.path, *options]
    predict_large.main(predict_large.parse_args([*map(str, given)]))
    if isinstance(writer, DetectionFiles):
        content = mmengine.load(out)
        image = content['images'][0]
        image_id = writer.add_image(source.name, image['height'], image['width'])
        for annotation in content['annotations']:
            writer.add_annotation(image_id, annotation)


def predict_video(
    args: argparse.Namespace,
    inferencer: BaseInferencer,
    writer: Writer,
    path: Path,
    count: int,
    rate: float,
) -> None:
    """Predict the frames of a video; the drawn ones become a video again."""
    bar, number, video = ProgressBar(count, file=sys.stderr), 0, None
    target = args.out / f'{path.stem}.mp4'
    try:
        for images in chunks(read_frames(path), args.batch):
            for image, sample in zip(images, predict(inferencer, images, args.batch), strict=True):
                drawn = writer.add(f'{path.stem}/{number:06d}.jpg', image, sample)
                if video is None:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    codec = cv2.VideoWriter.fourcc(*'mp4v')
                    video = cv2.VideoWriter(str(target), codec, rate, drawn.shape[1::-1])
                video.write(drawn)
                number += 1
            bar.update(len(images))
    finally:
        if video is not None:
            video.release()
    print(f'\n{number} frames drawn: {target}')
