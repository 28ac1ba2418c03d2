"""Classify pictures by a class token at larger sizes; see kinds.md, "As a classifier".

    OMP_NUM_THREADS=1 python docs/research/scaling_study/classify.py CAMVID_MINI

writes classify.csv beside this file, a row for each position, scaling and size.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import cv2
import kinds  # noqa: F401, registers FIRE
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_dense.backbones import RoPEViT
from rope_dense.utils.disk import atomic_write_text

RESULTS = Path(__file__).parent / 'classify.csv'
COLUMNS = ('position', 'scaling', 'factor', 'top1')
CLASSES = {1: 'building', 6: 'sign', 7: 'fence', 8: 'car', 9: 'pedestrian'}
CLASSES[10] = 'bicyclist'
SIDE, PATCH = (
    56,
    4,
)  # pixels in training: 14 x 14 patches, as 224 pixels in patches of 16
FACTORS = (1.0, 2.0, 32 / 7)  # 64 x 64 patches, as 1024 pixels
ITERATIONS, BATCH, TESTED = 400, 16, 10  # images of a class
POSITIONS: dict[str, dict] = {
    'axial': dict(rope=dict(type='AxialRoPE', theta=100.0)),
    'FIRE': dict(rope=None, attention=dict(type='FIRE')),
}
Object = tuple[np.ndarray, float, float, int]  # image, centre x and y, longer side


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    training, validation = objects(folder, 'training'), objects(folder, 'validation')
    rng = np.random.default_rng(1000)
    chosen = [
        found[index]
        for found in validation
        for index in rng.permutation(len(found))[:TESTED]
    ]
    truth = torch.arange(len(CLASSES)).repeat_interleave(TESTED)
    lines = [','.join(COLUMNS)]
    for position, settings in POSITIONS.items():
        began = time.process_time()
        model = train(settings, training)
        print(f'{position}: trained in {time.process_time() - began:.0f} s', flush=True)
        for scaling in ('none', 'linear') if position == 'axial' else ('none',):
            model.backbone.set_rope_scaling(dict(type=scaling))
            for factor in FACTORS:
                score = test(model, chosen, truth, factor)
                lines.append(f'{position},{scaling},{factor:.2f},{score:.1f}')
                print(lines[-1], f'{time.process_time() - began:.0f} s', flush=True)
        atomic_write_text(RESULTS, '\n'.join([*lines, '']))


def objects(folder: Path, split: str) -> list[list[Object]]:
    """Connected regions of each class, of 150 pixels or more, at most 120 wide and high."""
    found: list[list[Object]] = [[] for _ in CLASSES]
    for path in sorted((folder / 'annotations' / split).iterdir()):
        labels = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
        image = cv2.imread(str(folder / 'images' / split / f'{path.stem}.jpg'))
        for own, label in zip(found, CLASSES, strict=True):
            regions = cv2.connectedComponentsWithStats((labels == label).astype('u1'))
            for left, top, width, height, area in regions[2][1:].tolist():
                sides = sorted((width, height))
                if area >= 150 and sides[0] >= 8 and sides[1] <= 120:
                    x, y = left + width / 2, top + height / 2
                    own.append((image, x, y, sides[1]))
    return found


def crop(which: Object, growth: float, shift: np.ndarray, side: int) -> Tensor:
    """A square [3, side, side] around an object, ``growth`` times as large; shift: of its side."""
    image, x, y, longer = which
    length = longer * growth
    first = np.array([x, y]) + (shift - 0.5) * length
    scale = side / length
    matrix = np.array([[scale, 0, -scale * first[0]], [0, scale, -scale * first[1]]])
    pixels = cv2.warpAffine(
        image,
        matrix,
        (side, side),
        flags=cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REFLECT,
    )
    return (torch.from_numpy(pixels).movedim(-1, 0).float() - 110) / 60


class Classifier(nn.Module):
    """A ViT of 4 blocks with a class token, and a linear layer on it."""

    def __init__(self, settings: dict) -> None:
        super().__init__()
        self.backbone = RoPEViT(
            dict(embed_dims=96, depth=4, num_heads=3),
            img_size=SIDE,
            patch_size=PATCH,
            layer_scale_init_value=None,
            final_norm=True,
            output_prefix='cls',
            **settings,
        )
        self.head = nn.Linear(96, len(CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        ((_, token),) = self.backbone(images)
        return self.head(token)


def train(settings: dict, training: list[list[Object]]) -> Classifier:
    """All classes are as frequent; images are the same for all positions."""
    torch.manual_seed(0)
    model, rng = Classifier(settings), np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, ITERATIONS)
    for _ in range(ITERATIONS):
        truth = rng.integers(len(CLASSES), size=BATCH)
        images = []
        for label in truth:
            which = training[label][rng.integers(len(training[label]))]
            picture = crop(
                which, rng.uniform(1.0, 1.8), rng.uniform(-0.15, 0.15, 2), SIDE
            )
            images.append(picture.flip(-1) if rng.integers(2) else picture)
        optimizer.zero_grad()
        F.cross_entropy(model(torch.stack(images)), torch.from_numpy(truth)).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def test(
    model: Classifier, chosen: list[Object], truth: Tensor, factor: float
) -> float:
    """Top-1 in percent of the same views at ``factor`` times the size of the training."""
    side = round(SIDE * factor)
    right = 0
    for which, label in zip(chosen, truth, strict=True):
        image = crop(which, 1.3, np.zeros(2), side)
        right += int(model(image[None]).argmax() == label)
    return 100 * right / len(chosen)


if __name__ == '__main__':
    main()
