"""Train and test small models on generated scenes of two scales; see README.md.

    OMP_NUM_THREADS=1 python docs/research/ground_distance/run.py

writes results.csv beside this file, a row for each arm, seed and distance.
"""

from __future__ import annotations

import csv
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_dense.backbones import RoPEViT
from rope_dense.backbones.vit import GROUND
from rope_dense.utils.disk import atomic_write_text

RESULTS = Path(__file__).parent / 'results.csv'
COLUMNS = ('arm', 'seed', 'distance', 'seen', 'mIoU')
SIDE, PATCH = 64, 4  # pixels of an image and of a patch
FINE, COARSE, REFERENCE = 0.5, 1.0, 0.7  # metres a pixel
TESTED = (0.35, FINE, 0.7, COARSE, 1.4)
RADII = (3.0, 6.0)  # metres of the discs of both classes
CLASSES, OBJECTS = 3, 4
ITERATIONS, BATCH, TEST_IMAGES = 300, 16, 128
ARMS = ('pixels', 'metres', 'resampled')


def main() -> None:
    torch.set_num_threads(1)
    lines = [','.join(COLUMNS)]
    for seed in range(3):
        for arm in ARMS:
            began = time.process_time()
            model = train(arm, seed)
            for distance in TESTED:
                seen = distance in (FINE, COARSE)
                score = test(model, distance)
                lines.append(f'{arm},{seed},{distance},{seen},{score:.2f}')
            print(
                *lines[-len(TESTED) :],
                f'{time.process_time() - began:.0f} s',
                flush=True,
            )
            atomic_write_text(RESULTS, '\n'.join([*lines, '']))


def scenes(
    number: int, distance: float, draw: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Images [n, 3, S, S] and classes [n, S, S]: discs of 3 m (1) and 6 m (2) on noise.

    The rim of a disc is a bright ring one pixel wide at any distance; inside, it looks as the
    background does. So a disc of 6 pixels is of class 1 at 0.5 m a pixel, and of class 2 at 1 m.
    """
    axis = torch.arange(SIDE) + 0.5
    images = 0.5 * torch.randn(number, 3, SIDE, SIDE, generator=draw)
    labels = torch.zeros(number, SIDE, SIDE, dtype=torch.long)
    for image, label in zip(images, labels, strict=True):
        for _ in range(OBJECTS):
            kind = int(torch.randint(2, (), generator=draw))
            radius = RADII[kind] / distance
            x, y = torch.rand(2, generator=draw) * SIDE
            far = torch.hypot(axis[None, :] - x, axis[:, None] - y)
            image[:, (far - radius).abs() < 0.5] += 2.0
            label[far < radius] = kind + 1
    return images, labels


class Model(nn.Module):
    """A ViT of 3 blocks and a linear layer on each token."""

    def __init__(self, arm: str) -> None:
        super().__init__()
        self.arm = arm
        self.backbone = RoPEViT(
            dict(embed_dims=64, depth=3, num_heads=2),
            img_size=SIDE,
            patch_size=PATCH,
            with_cls_token=False,
            layer_scale_init_value=None,
            final_norm=True,
            rope=dict(type='AxialRoPE', theta=100.0),
            ground_distance=REFERENCE if arm == 'metres' else None,
        )
        self.head = nn.Linear(64, CLASSES)

    def forward(self, images: Tensor, distance: float) -> Tensor:
        """Scores [n, classes, H, W] at the size of the images, all of one distance."""
        size = images.shape[-2:]
        if self.arm == 'resampled':
            side = PATCH * round(SIDE * distance / REFERENCE / PATCH)
            images = F.interpolate(
                images, (side, side), mode='bilinear', antialias=True
            )
        setattr(images, GROUND, torch.full((len(images),), distance))
        (out,) = self.backbone(images)
        scores = self.head(out.movedim(1, -1)).movedim(-1, 1)
        return F.interpolate(scores, size, mode='bilinear')


def train(arm: str, seed: int) -> Model:
    """Half of each batch at either distance; images are those of the seed in all arms."""
    torch.manual_seed(seed)
    model, draw = Model(arm), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, ITERATIONS)
    for _ in range(ITERATIONS):
        optimizer.zero_grad()
        for distance in (FINE, COARSE):
            images, labels = scenes(BATCH // 2, distance, draw)
            (F.cross_entropy(model(images, distance), labels) / 2).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


@torch.no_grad()
def test(model: Model, distance: float) -> float:
    """Mean IoU of the three classes in percent, on the same images for all arms and seeds."""
    images, labels = scenes(TEST_IMAGES, distance, torch.Generator().manual_seed(1000))
    predicted = model(images, distance).argmax(1)
    ratios = []
    for kind in range(CLASSES):
        found, true = predicted == kind, labels == kind
        ratios.append((found & true).sum() / (found | true).sum())
    return 100 * torch.stack(ratios).mean().item()


def table() -> list[str]:
    """Lines of a markdown table of results.csv: mIoU of each arm and seed by distance."""
    rows: dict[tuple[str, str], list[str]] = {}
    with open(RESULTS, newline='', encoding='utf-8') as file:
        for row in csv.DictReader(file):
            key = row['seed'], row['arm']
            rows.setdefault(key, []).append(f'{float(row["mIoU"]):.1f}')
    lines = [f'| seed | arm | {" | ".join(f"{at:g} m" for at in TESTED)} |']
    lines.append('|--:|---|' + '---:|' * len(TESTED))
    for key, scores in rows.items():
        lines.append(f'| {" | ".join([*key, *scores])} |')
    return lines


if __name__ == '__main__':
    main()
