"""Linear heads on frozen maps, and matching of patches, with and without ``PositionalDebias``.

    OMP_NUM_THREADS=1 python docs/research/positional_debias/run.py --weights FOLDER \
        --camvid data/camvid_mini --nuclei data/nuclei

FOLDER has the weights of the study of prefix tokens (scaling_study/run.py --study prefix). Writes
results.csv, sizes.csv and the tables of README.md beside this file; ``--write`` writes the tables
from these files alone.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import mmcv
import numpy as np
import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from pycocotools.coco import COCO
from torch import Tensor, nn

from rope_dense.measure.position_bias import biases
from rope_dense.models.positional_debias import PositionalDebias, RoPEViTWithConstant
from rope_dense.utils.disk import atomic_write_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / 'scaling_study'))

import plan  # noqa: E402

import run as study  # noqa: E402

RESULTS, SIZES, PAGE = HERE / 'results.csv', HERE / 'sizes.csv', HERE / 'README.md'
MARKERS = '<!-- begin: made by run.py -->', '<!-- end: made by run.py -->'
GROWTH = (1.0, 1.5, 2.0)  # of sizes whose bias a basis of the first is tried on
SEEDS, SIZE, PATCH = (0, 1, 2), plan.SIZE, 10
GRID = (12, 16)  # patches of an image, also where a backbone has larger ones
MEAN, STD = torch.tensor([[123.675, 116.28, 103.53], [58.395, 57.12, 57.375]])[
    ..., None, None
]
IGNORED, PURE = 255, 0.75  # share of a patch's pixels with its label
NECKS: dict[str, Callable[[int], nn.Module]] = {  # of the number of channels
    'none': nn.Identity,  # whatever it is given
    'share 0.9': lambda _: PositionalDebias(0.9),
    'share 0.99': lambda _: PositionalDebias(0.99),
    'share 0.999': lambda _: PositionalDebias(0.999),
    'half of the channels': lambda channels: PositionalDebias(
        num_directions=channels // 2, normalize=True
    ),
}
BACKBONES = (
    'trained axial',
    'trained mixed',
    'untrained axial',
    'untrained DINOv3-small',
)
TASKS = {
    ('camvid', 'head'): 'CamVid, linear head',
    ('camvid', 'match'): 'CamVid, matching',
    ('nuclei', 'head'): 'nuclei, linear head',
    ('nuclei', 'match'): 'nuclei, matching',
}
Row = dict[str, str]


@dataclass
class Split:
    """Images of a data set: normalised [B, 3, height, width], and labels of patches [B, n]."""

    images: Tensor
    labels: Tensor


# Data


def camvid(root: Path, split: str) -> Split:
    """Street scenes; of the validation, frames of a film, every second."""
    paths = sorted((root / 'images' / split).iterdir())
    paths = paths[::2] if split == 'validation' else paths
    masks = [root / 'annotations' / split / f'{path.stem}.png' for path in paths]
    pairs = [
        (mmcv.imread(path), mmcv.imread(mask, 'unchanged'))
        for path, mask in zip(paths, masks, strict=True)
    ]
    return split_of(pairs, 11)


def nuclei(root: Path, split: str) -> Split:
    """Microscope images; class 1 is inside a nucleus."""
    coco = COCO(str(root / 'annotations' / f'instances_{split}.json'))
    pairs = []
    for info in coco.loadImgs(sorted(coco.getImgIds())):
        path = next((root / 'images').rglob(Path(info['file_name']).name))
        mask = np.zeros((info['height'], info['width']), np.uint8)
        for annotation in coco.loadAnns(coco.getAnnIds(info['id'])):
            mask |= coco.annToMask(annotation)
        pairs.append((mmcv.imread(path), mask))
    return split_of(pairs, 2)


def split_of(pairs: Sequence[tuple[np.ndarray, np.ndarray]], classes: int) -> Split:
    """Images (BGR) and masks, resized to the size of the training."""
    images, labels = [], []
    for image, mask in pairs:
        image = mmcv.imresize(image, SIZE[::-1], interpolation='area')
        x = torch.from_numpy(image[..., ::-1].copy()).permute(2, 0, 1).float()
        images.append((x - MEAN) / STD)
        labels.append(
            patch_labels(
                mmcv.imresize(mask, SIZE[::-1], interpolation='nearest'), classes
            )
        )
    return Split(torch.stack(images), torch.stack(labels))


def patch_labels(mask: np.ndarray, classes: int) -> Tensor:
    """The label of each patch [n] that ``PURE`` of its pixels have, else ``IGNORED``."""
    one_hot = F.one_hot(torch.from_numpy(mask).long().clamp(max=classes), classes + 1)
    shares = F.avg_pool2d(one_hot.permute(2, 0, 1).float()[None], PATCH)[0, :classes]
    share, label = shares.flatten(1).max(0)
    return torch.where(share >= PURE, label, IGNORED)


# Models


def backbone(name: str, seed: int, weights: Path) -> RoPEViTWithConstant:
    """A backbone of the study of prefix tokens, or DINOv3-small, with four registers."""
    kind, rope = name.split()
    run = plan.Run(seed, 'finer', 'vit', f'{rope}_registers')
    if rope == 'DINOv3-small':
        settings = dict(arch='dinov3_small', layer_scale_init_value=1.0)
    else:
        settings = study.config_of(run, Path()).model.backbone
    torch.manual_seed(seed)
    model = MODELS.build(dict(settings, type='RoPEViTWithConstant')).eval()
    if kind == 'trained':
        stored = torch.load(weights / f'{run.name}.pth')
        model.load_state_dict(
            {key[9:]: x for key, x in stored.items() if key.startswith('backbone.')}
        )
        return model
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.08)
    return model


@torch.no_grad()
def maps(model: RoPEViTWithConstant, images: Tensor) -> tuple[Tensor, ...]:
    """Maps [B, C, H, W] of images, resized to ``GRID`` patches, and what the neck needs."""
    size = image_size(model, 1)
    batches = (
        F.interpolate(batch, size, mode='bilinear') for batch in images.split(32)
    )
    outs = [model(batch) for batch in batches]
    return torch.cat([x for x, *_ in outs]), *outs[0][1:]


def image_size(model: RoPEViTWithConstant, factor: float) -> tuple[int, int]:
    """Height and width of images of ``factor`` times ``GRID``."""
    height, width = (round(side * factor) * model.arch.patch_size for side in GRID)
    return height, width


# Tasks


def head_score(
    train: tuple[Tensor, Tensor], val: tuple[Tensor, Tensor], classes: int
) -> float:
    """mIoU of patches in percent of a linear classifier of standardised features, by L-BFGS."""
    x, y = (part.flatten(0, 1) for part in train)
    centre, scale = x.mean(0), x.std(0) + 1e-6
    known = y != IGNORED
    x, y = (x[known] - centre) / scale, y[known]
    layer = nn.Linear(x.shape[1], classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.LBFGS(
        layer.parameters(), max_iter=100, line_search_fn='strong_wolfe'
    )

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = F.cross_entropy(layer(x), y) + 1e-4 * layer.weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    x, y = (part.flatten(0, 1) for part in val)
    known = y != IGNORED
    with torch.no_grad():
        found = layer((x[known] - centre) / scale).argmax(1)
    index = y[known] * classes + found
    matrix = index.bincount(minlength=classes**2).view(classes, classes)
    return study.mean_iou(matrix)


def match_score(x: Tensor, y: Tensor) -> float:
    """Share in percent of patches whose nearest patch of the next image has their label.

    By cosine; the mean over the classes. Patches whose class the other image lacks do not count.
    """
    x, hits, counts = F.normalize(x, dim=-1), torch.zeros(11), torch.zeros(11)
    for first in range(len(x)):
        second = (first + 1) % len(x)
        keys, labels = x[second][y[second] != IGNORED], y[second][y[second] != IGNORED]
        asked = (y[first] != IGNORED) & torch.isin(y[first], labels)
        nearest = labels[(x[first][asked] @ keys.T).argmax(1)]
        counts += y[first][asked].bincount(minlength=11)
        hits += y[first][asked][nearest == y[first][asked]].bincount(minlength=11)
    return (100 * hits[counts > 0] / counts[counts > 0]).mean().item()


# Results


def rows(args: argparse.Namespace) -> Iterator[Row]:
    """A row for each backbone, seed, neck and task."""
    data = {
        'camvid': [camvid(args.camvid, split) for split in ('training', 'validation')],
        'nuclei': [nuclei(args.nuclei, split) for split in ('train', 'val')],
    }
    for name in BACKBONES:
        for seed in SEEDS:
            model = backbone(name, seed, args.weights)
            bias = biases(model, image_size(model, 1))[0]['bias']
            seen = {
                key: [maps(model, split.images) for split in of]
                for key, of in data.items()
            }
            for neck_name, build in NECKS.items():
                neck = build(model.arch.embed_dims)
                for source, splits in data.items():
                    features = [
                        neck(of)[0].flatten(2).transpose(1, 2) for of in seen[source]
                    ]
                    pairs = [
                        (x, of.labels) for x, of in zip(features, splits, strict=True)
                    ]
                    classes = 11 if source == 'camvid' else 2
                    scores = head_score(*pairs, classes), match_score(*pairs[1])
                    number = 0
                    if isinstance(neck, PositionalDebias):
                        number = neck.bases[0, GRID][1].shape[1]
                    setting = dict(
                        backbone=name, seed=seed, neck=neck_name, directions=number
                    )
                    for task, score in zip(('head', 'match'), scores, strict=True):
                        row = setting | dict(
                            data=source, task=task, score=f'{score:.3f}'
                        )
                        yield {
                            key: str(x)
                            for key, x in (row | dict(bias=f'{bias:.4g}')).items()
                        }
                print(name, seed, neck_name, number, flush=True)


@torch.no_grad()
def size_rows(weights: Path) -> Iterator[Row]:
    """What a basis of 99 % at the size of the training leaves of a constant image's energy."""
    for name in BACKBONES:
        for seed in SEEDS:
            model, basis = backbone(name, seed, weights), None
            for factor in GROWTH:
                _, constant, _ = model(torch.zeros(1, 3, *image_size(model, factor)))
                basis = (
                    PositionalDebias(0.99).directions(constant)
                    if basis is None
                    else basis
                )
                x = constant[0].double().flatten(1)
                x = x - x.mean(1, keepdim=True)
                left = (x - basis @ (basis.T @ x)).square().sum() / x.square().sum()
                row = dict(backbone=name, seed=seed, factor=factor, left=f'{left:.4g}')
                yield {key: str(value) for key, value in row.items()}


def size_table(found: list[Row]) -> list[str]:
    """Means over the seeds in percent, and their range."""
    lines = ['| backbone | ' + ' | '.join(f'{factor:g}' for factor in GROWTH) + ' |']
    lines.append('|---|' + '---:|' * len(GROWTH))
    for name in BACKBONES:
        cells = []
        for factor in GROWTH:
            wanted = dict(backbone=name, factor=str(factor))
            left = [
                100 * float(row['left'])
                for row in found
                if wanted.items() <= row.items()
            ]
            cells.append(f'{mean(left):.1f} ({max(left) - min(left):.1f})')
        lines.append(f'| {name} | {" | ".join(cells)} |')
    return lines


def differences(
    found: list[Row], name: str, neck: str, task: tuple[str, str]
) -> list[float]:
    """Scores with a neck less those without, by seed."""

    def score(neck: str, seed: int) -> float:
        wanted = dict(
            backbone=name, seed=str(seed), neck=neck, data=task[0], task=task[1]
        )
        return next(
            float(row['score']) for row in found if wanted.items() <= row.items()
        )

    return [score(neck, seed) - score('none', seed) for seed in SEEDS]


def counts(values: Sequence[float]) -> bool:
    """The criterion of the scaling study."""
    return abs(mean(values)) > max(max(values) - min(values), 0.5)


def tables(found: list[Row]) -> list[str]:
    """Lines of the page: scores without a neck, then differences in bold where they count."""
    lines = [
        '| backbone | spread | neck | directions | ' + ' | '.join(TASKS.values()) + ' |'
    ]
    lines.append('|---|---:|---|---:|' + '---:|' * len(TASKS))
    for name in BACKBONES:
        for neck in NECKS:
            mine = [
                row for row in found if (row['backbone'], row['neck']) == (name, neck)
            ]
            bias = mean(float(row['bias']) for row in mine)
            numbers = sorted({int(row['directions']) for row in mine})
            cells = []
            for task in TASKS:
                if neck == 'none':
                    of_task = [
                        row for row in mine if (row['data'], row['task']) == task
                    ]
                    cells.append(f'{mean(float(row["score"]) for row in of_task):.1f}')
                    continue
                values = differences(found, name, neck, task)
                text = f'{mean(values):+.1f} ({max(values) - min(values):.1f})'
                cells.append(f'**{text}**' if counts(values) else text)
            shown = (
                f'{numbers[0]} to {numbers[-1]}'
                if len(numbers) > 1
                else str(numbers[0])
            )
            lines.append(
                f'| {name} | {bias:.3f} | {neck} | {shown} | {" | ".join(cells)} |'
            )
    return lines


def results() -> list[str]:
    """The lines of the page between its markers."""
    title = 'Energy of a constant image in percent that a basis of size 1 leaves, by the size:'
    return [
        *tables(read(RESULTS)),
        '',
        '### A basis belongs to a size',
        '',
        title,
        '',
        *size_table(read(SIZES)),
    ]


def read(path: Path) -> list[Row]:
    with open(path, newline='', encoding='utf-8') as file:
        return list(csv.DictReader(file))


def write(path: Path, found: list[Row]) -> None:
    with open(path, 'w', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, found[0], lineterminator='\n')
        writer.writeheader()
        writer.writerows(found)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        '--weights', type=Path, help='folder of NAME.pth of the prefix study'
    )
    parser.add_argument('--camvid', type=Path, help='folder of the street scenes')
    parser.add_argument('--nuclei', type=Path, help='folder of the microscope images')
    parser.add_argument('--write', action='store_true', help='only the tables')
    args = parser.parse_args(argv)
    if not args.write:
        write(RESULTS, list(rows(args)))
        write(SIZES, list(size_rows(args.weights)))
    before, rest = PAGE.read_text(encoding='utf-8').split(MARKERS[0])
    after = rest.split(MARKERS[1])[1]
    lines = [before + MARKERS[0], '', *results(), '', MARKERS[1] + after]
    atomic_write_text(PAGE, '\n'.join(lines))


if __name__ == '__main__':
    main()
