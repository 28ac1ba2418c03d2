"""Recipes at their full size on a GPU that pretends, with shapes in place of values.

Losses and gradients, and a prediction, of the image size and the batch that the config trains with.
A model goes as far as its code needs no values: matching, sampling and suppression do.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from mmdet.structures.mask import BitmapMasks
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.structures import BaseDataElement, PixelData
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._pytree import tree_leaves

from helpers.grid import CONFIGS, read
from helpers.pretended_gpu import CUDA, pretended_gpu, to_gpu, without_values
from rope_dense.measure.speed import random_sample
from rope_dense.project.model import build_shapes

# Each backbone and each detector and segmentor of this package once; others have the same parts.
FOLDERS = ('dino_vitdet', 'mask2former_swin', 'nat', 'deim', 'pmt', 'oriented')
NEEDS_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
OURS = {'matching.py'}  # of rope_dense, which need values: costs go to the host


def full_size(cfg: Config) -> tuple[int, int]:
    """(height, width) of the images of a batch: a fixed crop, or the largest resized image."""
    preprocessor = cfg.model.data_preprocessor
    if size := preprocessor.get('size'):
        return tuple(size)
    steps = cfg.test_dataloader.dataset.pipeline
    width, height = next(
        step.scale for step in reversed(steps) if 'Resize' in step.type
    )
    divisor = preprocessor.get('pad_size_divisor', 1)
    return -(-height // divisor) * divisor, -(-width // divisor) * divisor


def sample(cfg: Config, height: int, width: int) -> BaseDataElement:
    """An image's annotations of all kinds."""
    scope = cfg.default_scope
    found = random_sample('mmseg' if scope == 'mmseg' else 'mmdet', height, width, CUDA)
    if scope == 'mmseg':
        found.gt_depth_map = PixelData(data=torch.rand(1, height, width, device=CUDA))
        return found
    instances = found.gt_instances
    instances.masks = BitmapMasks(
        np.ones((len(instances), height, width), np.uint8), height, width
    )
    found.gt_sem_seg = PixelData(
        sem_seg=torch.zeros(1, height, width, device=CUDA).long()
    )
    if scope == 'mmrotate' or 'OrientedDEIMHead' in str(cfg.model):
        from mmrotate.structures.bbox import RotatedBoxes, hbox2rbox

        instances.bboxes = RotatedBoxes(hbox2rbox(instances.bboxes))
    return found


@contextmanager
def as_far_as_possible(stops: list[str]) -> Iterator[None]:
    """Notes where values are needed; an error if it is in this package."""
    try:
        yield
    except NEEDS_VALUES as error:
        frames = [
            Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)
        ]
        last = next(
            x for x in reversed(frames) if not {'torch', 'helpers'} & set(x.parts)
        )
        assert 'rope_dense' not in last.parts or last.name in OURS, error
        stops.append(last.name)


@pytest.mark.slow
@pytest.mark.parametrize('folder', FOLDERS)
def test_the_largest_recipe_fits_together(folder: str) -> None:
    configs = [read(path) for path in sorted((CONFIGS / folder).glob('*.py'))]
    cfg = max(configs, key=full_size)
    model, size = build_shapes(cfg.copy()), full_size(cfg)
    batch, stops = cfg.train_dataloader.batch_size, []
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    model = without_values(model, fakes)
    with (
        fakes,
        DefaultScope.overwrite_default_scope(cfg.default_scope),
        pretended_gpu(),
    ):
        to_gpu(model)
        images = torch.empty(batch, 3, *size, device='cuda')
        with unset_fake_temporarily():
            samples = [sample(cfg, *size) for _ in range(batch)]
        with torch.no_grad(), as_far_as_possible([]):
            model.eval()(images, samples, mode='predict')
        with as_far_as_possible(stops):
            model.train()
            model.parse_losses(model(images, samples, mode='loss'))[0].backward()
        trained = [p for p in model.backbone.parameters() if p.requires_grad]
        if stops and trained:
            sum(out.sum() for out in tree_leaves(model.extract_feat(images))).backward()
        assert all(p.grad is None or p.grad.device == CUDA for p in trained)
        assert not trained or any(p.grad is not None for p in trained)
