"""Train and test everything of the study; finished parts are not repeated.

    OMP_NUM_THREADS=1 python docs/research/fine_features/run.py --data-root FOLDER --out FOLDER

Weights go to OUT, results to results.csv beside this file, a row for each seed and method, and
errors of the neck to errors.csv.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import mmcv
import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.registry import MODELS
from mmengine.runner import Runner, set_random_seed
from torch import Tensor, nn

from rope_dense.backbones import RoPEViT
from rope_dense.models.fine_features import FineFeatures
from rope_dense.utils.disk import atomic_write

CONFIG = (
    Path(__file__).parents[3] / 'configs/research/study/linear_vit_rope_mixed_camvid.py'
)
RESULTS, ERRORS = (
    Path(__file__).with_name(f'{name}.csv') for name in ('results', 'errors')
)
SEEDS = (0, 1, 2)
METHODS, UNTRAINED = ('bilinear', 'attention'), 'untrained'
SIZE, WHOLE = (
    (120, 160),
    (240, 320),
)  # pixels that the encoder sees in training; on disk
SCALE_FACTOR = 5  # patches of 10 pixels to a stride of 2
NECK_IMAGES, NECK_ITERATIONS, NECK_BATCH, NECK_LR = 100, 300, 2, 1e-3
HEAD_BATCH = 8


@dataclass(frozen=True)
class Length:
    """Iterations of an encoder, images and iterations of a head."""

    encoder: int
    images: int
    head: int


LENGTHS = dict(short=Length(150, 40, 200), long=Length(400, 120, 400))
CLASSES = (
    *(
        'Sky',
        'Building',
        'Pole',
        'Road',
        'Pavement',
        'Tree',
        'SignSymbol',
        'Fence',
        'Car',
    ),
    *('Pedestrian', 'Bicyclist'),
)
IGNORED, TOLERANCE = 255, 2  # pixels between a border and its prediction


@dataclass
class Scenes:
    """Images [n, 3, 240, 320], normalised, and labels [n, 240, 320]."""

    images: Tensor
    labels: Tensor


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--data-root', type=Path, required=True)
    parser.add_argument('--out', type=Path, required=True)
    parser.add_argument('--length', choices=LENGTHS, default='short')
    parser.add_argument(
        '--methods', choices=(*METHODS, UNTRAINED), nargs='+', default=METHODS
    )
    parser.add_argument('--seeds', type=int, nargs='+', default=SEEDS)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    training, tested = (
        read(args.data_root, name) for name in ('training', 'validation')
    )
    tested = Scenes(tested.images[::5], tested.labels[::5])  # frames of one film
    for seed in args.seeds:
        encoder = trained_encoder(seed, args.length, args.data_root, args.out)
        neck = trained_neck(args.out, encoder, training.images)
        if not ERRORS.exists():
            for row in errors(neck, encoder, tested.images):
                append(ERRORS, row)
        for method in args.methods:
            if (args.length, str(seed), method) in finished():
                continue
            started = time.process_time()
            row = dict(length=args.length, seed=seed, method=method)
            used = neck_of(method, neck)
            row |= test(seed, LENGTHS[args.length], encoder, used, training, tested)
            row['cpu_seconds'] = round(time.process_time() - started)
            append(RESULTS, row)


def finished() -> set[tuple[str, str, str]]:
    """Lengths, seeds and methods with a row of results."""
    if not RESULTS.exists():
        return set()
    with RESULTS.open() as file:
        return {
            (row['length'], row['seed'], row['method']) for row in csv.DictReader(file)
        }


def read(data_root: Path, split: str) -> Scenes:
    paths = sorted((data_root / 'images' / split).iterdir())
    images = torch.stack(
        [torch.from_numpy(mmcv.imread(p)).permute(2, 0, 1) for p in paths]
    )
    labels = [data_root / 'annotations' / split / f'{path.stem}.png' for path in paths]
    labels = torch.stack(
        [torch.from_numpy(mmcv.imread(p, 'unchanged')) for p in labels]
    )
    settings = Config.fromfile(CONFIG).model.data_preprocessor
    mean, std = (
        torch.tensor(settings[name]).view(-1, 1, 1) for name in ('mean', 'std')
    )
    return Scenes((images.flip(1) - mean) / std, labels.long())


def trained_encoder(seed: int, length: str, data_root: Path, out: Path) -> RoPEViT:
    """The frozen encoder of a seed, trained with a linear head as in the scaling study."""
    config, name = Config.fromfile(CONFIG), f'encoder_{length}{seed}'
    path = out / f'{name}.pth'
    if not path.exists():
        config.train_dataloader.dataset.data_root = str(data_root)
        config.val_dataloader = config.val_evaluator = config.val_cfg = None
        config.test_dataloader = config.test_evaluator = config.test_cfg = None
        config.default_hooks.checkpoint = None
        config.train_cfg.max_iters = iterations = LENGTHS[length].encoder
        warm_up, descent = config.param_scheduler
        warm_up.end, descent.T_max = iterations // 10, iterations
        config.work_dir, config.randomness = str(out / name), dict(seed=seed)
        config.experiment_name = config.visualizer.name = name
        runner = Runner.from_cfg(config)
        runner.train()
        with atomic_write(path) as partial:
            torch.save(runner.model.backbone.state_dict(), partial)
    encoder = MODELS.build(config.model.backbone).eval().requires_grad_(False)
    encoder.load_state_dict(torch.load(path))
    encoder.set_rope_scaling(dict(type='linear'))  # for images larger than in training
    return encoder


def trained_neck(out: Path, encoder: RoPEViT, images: Tensor) -> FineFeatures:
    """The neck, trained on the features of the first encoder, for all encoders."""
    path, neck = out / 'neck.pth', FineFeatures(SCALE_FACTOR)
    if not path.exists():
        set_random_seed(0)
        neck = FineFeatures(2).train()
        optimizer = torch.optim.AdamW(neck.parameters(), NECK_LR, weight_decay=1e-5)
        step = len(images) // NECK_IMAGES
        inputs, small, targets = pairs(encoder, images[::step][:NECK_IMAGES])
        losses = []
        for index in range(1, NECK_ITERATIONS + 1):
            chosen = torch.randint(len(inputs), (NECK_BATCH,))
            (out,) = neck((inputs[chosen], small[chosen]))
            losses.append((out - targets[chosen]).square().mean())
            optimizer.zero_grad()
            losses[-1].backward()
            optimizer.step()
            if index % 25 == 0:
                print(index, torch.stack(losses[-25:]).mean().item(), flush=True)
        with atomic_write(path) as partial:
            torch.save(neck.state_dict(), partial)
    neck = FineFeatures(SCALE_FACTOR, frozen=True).eval()
    neck.load_state_dict(torch.load(path))
    return neck


def neck_of(method: str, trained: FineFeatures) -> FineFeatures:
    if method == 'attention':
        return trained
    set_random_seed(0)
    kind = 'attention' if method == UNTRAINED else method
    return FineFeatures(SCALE_FACTOR, kind, frozen=True).eval()


def resized(images: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(images, size, mode='bilinear', antialias=True)


@torch.no_grad()
def pairs(encoder: RoPEViT, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Features of halved images, images with 2 pixels a side for a position, and features."""
    inputs, targets = (
        torch.cat([encoder(image)[0] for image in x.split(1)])
        for x in (resized(images, SIZE), images)
    )
    return inputs, resized(images, (48, 64)), targets


@torch.no_grad()
def errors(neck: FineFeatures, encoder: RoPEViT, images: Tensor) -> Iterator[dict]:
    """Errors of the features of images, from features of halved images, over their variance."""
    inputs, small, targets = pairs(encoder, images)
    for method in METHODS:
        half = FineFeatures(2, method).eval()
        if method == 'attention':
            half.load_state_dict(neck.state_dict())
        error = (half((inputs, small))[0] - targets).square().mean() / targets.var()
        yield dict(method=method, error=round(error.item(), 4))


@torch.no_grad()
def features(encoder: RoPEViT, neck: FineFeatures, images: Tensor) -> Tensor:
    """Fine features [n, 96, 60, 80] of images of the training size."""
    outs = []
    for image in resized(images, SIZE).split(1):
        outs += neck((*encoder(image), image))
    return torch.cat(outs)


def test(
    seed: int,
    length: Length,
    encoder: RoPEViT,
    neck: FineFeatures,
    training: Scenes,
    tested: Scenes,
) -> dict[str, float]:
    """Scores in percent of a linear head that is trained on some images."""
    chosen = torch.randperm(
        len(training.images), generator=torch.Generator().manual_seed(seed)
    )
    chosen = chosen[: length.images]
    x = features(encoder, neck, training.images[chosen])
    labels = F.interpolate(training.labels[chosen, None].float(), x.shape[2:])[
        :, 0
    ].long()
    set_random_seed(seed)
    head = nn.Sequential(
        nn.BatchNorm2d(x.shape[1]), nn.Conv2d(x.shape[1], len(CLASSES), 1)
    )
    optimizer = torch.optim.AdamW(head.parameters(), 1e-2, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, length.head)
    for _ in range(length.head):
        index = torch.randperm(len(x))[:HEAD_BATCH]
        loss = F.cross_entropy(head(x[index]), labels[index], ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    head.eval()
    with torch.no_grad():
        logits = head(features(encoder, neck, tested.images))
        predicted = F.interpolate(logits, WHOLE, mode='bilinear').argmax(1)
    return scores(predicted, tested.labels)


def scores(predicted: Tensor, labels: Tensor) -> dict[str, float]:
    """MIoU, F1 of borders, and the IoU of each class that is labelled or predicted."""
    valid = labels != IGNORED
    index = labels[valid] * len(CLASSES) + predicted[valid]
    matrix = index.bincount(minlength=len(CLASSES) ** 2).view(len(CLASSES), -1)
    either = matrix.sum(0) + matrix.sum(1) - matrix.diagonal()
    iou = 100 * matrix.diagonal() / either.clamp(min=1)
    by_class = {name: round(x.item(), 2) for name, x in zip(CLASSES, iou, strict=True)}
    mean = round(iou[either > 0].mean().item(), 2)
    return dict(mIoU=mean, border_F1=border_f1(predicted, labels), **by_class)


def border_f1(predicted: Tensor, labels: Tensor) -> float:
    """F1 of borders between any two classes, within ``TOLERANCE`` pixels, mean over images."""
    near_ignored = grown((labels == IGNORED).float())[:, 0] > 0
    found, given = (borders(x) & ~near_ignored for x in (predicted, labels))
    near_found, near_given = (grown(x.float())[:, 0] > 0 for x in (found, given))
    precision = (found & near_given).sum((1, 2)) / found.sum((1, 2)).clamp(min=1)
    recall = (given & near_found).sum((1, 2)) / given.sum((1, 2)).clamp(min=1)
    f1 = 2 * precision * recall / (precision + recall).clamp(min=1e-6)
    return round(100 * f1.mean().item(), 2)


def borders(labels: Tensor) -> Tensor:
    """Pixels whose right or lower neighbour has another class."""
    out = torch.zeros_like(labels, dtype=torch.bool)
    out[:, :-1] |= labels[:, :-1] != labels[:, 1:]
    out[:, :, :-1] |= labels[:, :, :-1] != labels[:, :, 1:]
    return out


def grown(x: Tensor) -> Tensor:
    return F.max_pool2d(x[:, None], 2 * TOLERANCE + 1, 1, TOLERANCE)


def append(path: Path, row: dict) -> None:
    print(row, flush=True)
    new = not path.exists()
    with path.open('a', newline='') as file:
        writer = csv.DictWriter(file, row, lineterminator='\n')
        if new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == '__main__':
    main()
