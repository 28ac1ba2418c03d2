"""Train and test all models of the study; finished runs are not repeated.

    OMP_NUM_THREADS=1 python docs/research/scaling_study/run.py --data-root FOLDER --out FOLDER

``--study kinds`` runs the second study, kinds.md, ``--study prefix`` the third, prefix.md, and
``--study wider`` the fourth, wider.md, in folders of their own.

Several such processes share the work. A run that was stopped is begun again. Each finished run has
a file OUT/results/NAME.json, its weights are OUT/weights/NAME.pth.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path

import mmcv
import torch
from kinds.distance_bias import MeasuredAttention, Unit
from mmengine.config import Config
from mmengine.registry import MODELS
from mmengine.runner import Runner
from mmseg.models import EncoderDecoder
from mmseg.models.utils import resize
from plan import (
    CONFIGS,
    PIPELINES,
    SCALINGS,
    SIZE,
    WHOLE,
    WINDOW,
    Point,
    Run,
    backbone_of,
    kind_points,
    kind_runs,
    points,
    prefix_points,
    prefix_runs,
    runs,
    wider_points,
    wider_runs,
)
from torch import Tensor

from rope_dense.utils.disk import atomic_write, atomic_write_text

CONFIG_FOLDER = Path(__file__).parents[3] / 'configs' / 'research' / 'study'
STUDIES = dict(
    scalings=(runs, points),
    kinds=(kind_runs, kind_points),
    prefix=(prefix_runs, prefix_points),
    wider=(wider_runs, wider_points),
)
NUM_CLASSES, IGNORED = 11, 255
TUNED_ITERATIONS, TUNED_LR = 50, 2e-4
Box = tuple[int, int, int, int]  # top, left, height, width in pixels
Scene = tuple[Tensor, Tensor]  # [H, W, 3] BGR, uint8; [H, W], labels


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        '--data-root', type=Path, required=True, help='folder of the images'
    )
    parser.add_argument('--out', type=Path, required=True, help='folder of the results')
    parser.add_argument(
        '--study', choices=STUDIES, default='scalings', help='(%(default)s)'
    )
    parser.add_argument('--seeds', type=int, nargs='+', help='(those of the study)')
    parser.add_argument(
        '--only',
        default='',
        metavar='REGEX',
        help='runs with this in their name, and those whose weights they start from',
    )
    parser.add_argument(
        '--iterations',
        type=int,
        help='of each training, to try the script (as the configs say)',
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    args = parse_args(argv)
    torch.set_num_threads(1)
    selected = select(args)
    while waiting := [
        run for run in selected if not result_path(args.out, run).exists()
    ]:
        if not any(execute(run, args) for run in waiting):
            time.sleep(10)  # other processes have them
    print(f'{len(selected)} runs are finished')


def select(args: argparse.Namespace) -> list[Run]:
    """The runs of ``--seeds`` and ``--only``, parents first."""
    plan = STUDIES[args.study][0]
    planned = plan(args.seeds) if args.seeds else plan()
    named = {run for run in planned if re.search(args.only, run.name)}
    parents = {run.parent for run in named}
    return [run for run in planned if run in named | parents]


def execute(run: Run, args: argparse.Namespace) -> bool:
    """Train and test, unless another process does or the parent's weights are missing.

    Returns:
        Whether this process did it.
    """
    with claim(args.out / 'locks' / run.name) as claimed:
        parent_missing = run.parent and not weights_path(args.out, run.parent).exists()
        result = result_path(args.out, run)
        if not claimed or parent_missing or result.exists():
            return False
        started = time.process_time()
        if not run.tested and not weights_path(args.out, run).exists():
            train(run, args)
        trained = time.process_time()
        tested = test(run, args)
        seconds = dict(train=trained - started, test=time.process_time() - trained)
        content = dict(run=asdict(run), cpu_seconds=seconds, points=tested)
        atomic_write_text(result, json.dumps(content) + '\n')
    scores = {
        point['factor']: point['mIoU'] for point in reversed(tested)
    }  # the first ones: none
    print(
        f'{run.name}: {scores}, CPU {seconds["train"]:.0f} + {seconds["test"]:.0f} s',
        flush=True,
    )
    return True


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Whether this process has the lock at ``path``, which the system releases if it dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, 'w') as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def result_path(out: Path, run: Run) -> Path:
    return out / 'results' / f'{run.name}.json'


def weights_path(out: Path, run: Run) -> Path:
    return out / 'weights' / f'{run.name}.pth'


def train(run: Run, args: argparse.Namespace) -> None:
    config = config_of(run, args.data_root, args.iterations)
    config.work_dir = str(args.out / 'logs' / run.name)
    if run.parent:
        config.load_from = str(weights_path(args.out, run.parent))
    runner = Runner.from_cfg(config)
    runner.train()
    with atomic_write(weights_path(args.out, run)) as partial:
        torch.save(runner.model.state_dict(), partial)


def config_of(run: Run, data_root: Path, iterations: int | None = None) -> Config:
    """The config of a training.

    Args:
        iterations: of a training in place of those that the study has.
    """
    config = Config.fromfile(CONFIG_FOLDER / CONFIGS[run.backbone])
    config.merge_from_dict({'model.backbone': backbone_of(run)})
    load, labels, _, *others = config.train_dataloader.dataset.pipeline
    steps = PIPELINES[run.way]
    if run.tuned:
        steps = []
        config.model.data_preprocessor.size = WHOLE
        config.model.backbone.rope_scaling = SCALINGS[run.tuned]
        config.optim_wrapper.optimizer.lr = TUNED_LR
        set_length(config, TUNED_ITERATIONS)
    if iterations:
        set_length(config, iterations)
    config.train_dataloader.dataset.pipeline = [load, labels, *steps, *others]
    config.train_dataloader.dataset.data_root = str(data_root)
    config.val_dataloader = config.val_evaluator = config.val_cfg = None
    config.test_dataloader = config.test_evaluator = config.test_cfg = None
    config.default_hooks.checkpoint = None
    config.log_level = 'WARNING'
    # mmengine finds loggers and visualizers by name: a new one keeps runs apart.
    config.experiment_name = config.visualizer.name = run.name
    config.randomness = dict(seed=run.seed)
    return config


def set_length(config: Config, iterations: int) -> None:
    """A tenth of the iterations warms up, as in the configs."""
    config.train_cfg.max_iters = iterations
    warm_up, descent = config.param_scheduler
    warm_up.end, descent.T_max = max(1, iterations // 10), iterations


def test(run: Run, args: argparse.Namespace) -> list[dict]:
    """Each point of a run with the confusion matrix (rows: labels) and its mIoU in percent."""
    with MODELS.switch_scope_and_registry('mmseg') as models:
        model = models.build(config_of(run, args.data_root).model).eval()
    trained = run.parent if run.tested else run
    model.load_state_dict(torch.load(weights_path(args.out, trained)))
    rows, way = [], run.tested or run.way
    for point in STUDIES[args.study][1](run):
        set_point(model, point)
        matrix = confusion(model, load_scenes(args.data_root), way, point.factor)
        row = dict(
            asdict(point), mIoU=round(mean_iou(matrix), 3), confusion=matrix.tolist()
        )
        rows.append(row)
    return rows


def set_point(model: EncoderDecoder, point: Point) -> None:
    backbone = model.backbone
    backbone.set_rope_scaling(SCALINGS[point.scaling])
    set_unit(model, 'grid' if 'distances' in point.scaling else 'patch')
    if point.grown_windows:
        backbone.set_window_size([round(side * point.factor) for side in WINDOW])
    elif backbone.has_windows:
        backbone.set_window_size(WINDOW)


def set_unit(model: EncoderDecoder, unit: Unit) -> None:
    """Measure the distances of ALiBi, LookHere and PaPE in a unit."""
    for block in model.backbone.ordered_blocks:
        if isinstance(block.attn, MeasuredAttention):
            block.attn.reference = (
                model.backbone.pretrain_grid if unit == 'grid' else None
            )


@cache
def load_scenes(data_root: Path) -> list[Scene]:
    """Every second of the validation images, frames of one film that differ little, and labels."""
    images = sorted((data_root / 'images' / 'validation').iterdir())[::2]
    labels = [
        data_root / 'annotations' / 'validation' / f'{path.stem}.png' for path in images
    ]
    return [
        (
            torch.from_numpy(mmcv.imread(image)),
            torch.from_numpy(mmcv.imread(label, 'unchanged')),
        )
        for image, label in zip(images, labels, strict=True)
    ]


@torch.no_grad()
def confusion(
    model: EncoderDecoder, scenes: list[Scene], way: str, factor: float
) -> Tensor:
    """[C, C] pixels by label and prediction, over every pixel of the images once."""
    matrix = torch.zeros(NUM_CLASSES, NUM_CLASSES, dtype=torch.int64)
    for image, label in scenes:
        if way == 'extent':
            predicted = predict_in_views(model, image, factor)
        else:
            predicted = predict(model, [resized(image, factor)], tuple(label.shape))[0]
        valid = label != IGNORED
        index = label[valid].long() * NUM_CLASSES + predicted[valid]
        matrix += index.bincount(minlength=NUM_CLASSES**2).view_as(matrix)
    return matrix


def resized(image: Tensor, factor: float) -> Tensor:
    height, width = (round(side * factor) for side in SIZE)
    enlarged = height > image.shape[0]
    interpolation = 'bicubic' if enlarged else 'area'
    return torch.from_numpy(
        mmcv.imresize(image.numpy(), (width, height), interpolation=interpolation)
    )


def predict_in_views(model: EncoderDecoder, image: Tensor, factor: float) -> Tensor:
    """Labels of an image whose quarters are each predicted from a view of their own."""
    height, width = image.shape[:2]
    seen, scored = views(factor)
    crops = [image[top : top + h, left : left + w] for top, left, h, w in seen]
    labels = torch.empty(height, width, dtype=torch.int64)
    outputs = predict(model, crops, tuple(crops[0].shape[:2]))
    for (top, left, *_), (y, x, h, w), output in zip(
        seen, scored, outputs, strict=True
    ):
        labels[y : y + h, x : x + w] = output[
            y - top : y - top + h, x - left : x - left + w
        ]
    return labels


def views(factor: float) -> tuple[list[Box], list[Box]]:
    """What is seen, and what of it is scored. The four quarters of an image, each of the training
    size, are scored; each is seen with what is around it, up to the corner of the image: alone
    (factor 1), in a window of 1.5 times its sides, or in the whole image (2)."""
    height, width = (round(side * factor) for side in SIZE)
    if factor == WHOLE[0] / SIZE[0]:
        return [(0, 0, *WHOLE)], [(0, 0, *WHOLE)]
    corners = [(bottom, right) for bottom in (0, 1) for right in (0, 1)]
    seen = [
        (b * (WHOLE[0] - height), r * (WHOLE[1] - width), height, width)
        for b, r in corners
    ]
    return seen, [(b * SIZE[0], r * SIZE[1], *SIZE) for b, r in corners]


def predict(
    model: EncoderDecoder, images: list[Tensor], shape: tuple[int, int]
) -> list[Tensor]:
    """Labels at ``shape``, (height, width), of images of one size [H, W, 3]."""
    size = tuple(images[0].shape[:2])
    info = dict(img_shape=size, ori_shape=shape, pad_shape=size)
    data = dict(inputs=[image.permute(2, 0, 1) for image in images])
    data = model.data_preprocessor(data, training=False)
    scores = model.encode_decode(data['inputs'], [info] * len(images))  # [B, C, H, W]
    scores = resize(
        scores, size=shape, mode='bilinear', align_corners=model.align_corners
    )
    # NumPy's, over contiguous scores, takes a tenth of the time of torch's over the channels.
    labels = scores.permute(0, 2, 3, 1).contiguous().numpy().argmax(-1)
    return list(torch.from_numpy(labels))


def mean_iou(matrix: Tensor) -> float:
    """In percent, over the classes that are in the labels or predicted."""
    both = matrix.diagonal()
    either = matrix.sum(0) + matrix.sum(1) - both
    present = either > 0
    return 100 * (both[present] / either[present]).mean().item()


if __name__ == '__main__':
    main()
