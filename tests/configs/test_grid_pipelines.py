"""The pipelines of the grid on one real image, or a generated one without them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.registry import DATASETS, MODELS

from helpers.grid import GRID, Leaf, value
from helpers.small_configs import make_data
from rope_dense.data.generated import METAINFO, SEGMENTATION_METAINFO

# The first leaf of each that reads its images in its own way; the others read theirs as it does.
FIRST = {(leaf.experiment, leaf.crop): leaf for leaf in reversed(GRID)}
every_pipeline = pytest.mark.parametrize(
    'leaf', FIRST.values(), ids=lambda leaf: leaf.name
)


@pytest.fixture(scope='module')
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('generated'))


@pytest.fixture(scope='module')
def folder(request: pytest.FixtureRequest) -> Path | None:
    """The real images, None without them."""
    try:
        return request.getfixturevalue('shared_data')
    except pytest.skip.Exception:
        return None


def with_images(leaf: Leaf, folder: Path | None, generated: Path) -> Config:
    """The config on one image of its data set's miniature, or on a generated one."""
    cfg, detects = leaf.load(), leaf.experiment.startswith('dino')
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        dataset = loader.dataset
        dataset.indices = 1
        if folder is not None:
            dataset.data_root = str(folder / ('coco_mini' if detects else 'ade_mini'))
        elif detects:
            dataset.update(data_root=str(generated / 'coco'), metainfo=dict(METAINFO))
            dataset.pop('filter_cfg', None)  # its shapes are smaller than 32 pixels
        else:
            dataset.update(
                data_root=str(generated / 'ade'), metainfo=dict(SEGMENTATION_METAINFO)
            )
            dataset.update(type='BaseSegDataset', reduce_zero_label=True)
    if not detects:  # the miniature of ADE20K has a validation part only
        cfg.train_dataloader.dataset.data_prefix = (
            cfg.val_dataloader.dataset.data_prefix
        )
    return cfg


def preprocessed(cfg: Config, sample: dict, *, training: bool) -> tuple[int, ...]:
    """Shape of the batch [B, 3, height, width] that the model gets."""
    preprocessor = MODELS.build(cfg.model.data_preprocessor)
    batch = preprocessor(pseudo_collate([sample, sample]), training)['inputs']
    assert batch.dtype.is_floating_point and batch.abs().max() < 5  # normalised
    return tuple(batch.shape)


def test_leaves_of_an_experiment_read_images_alike() -> None:
    for leaf in GRID:
        first = FIRST[leaf.experiment, leaf.crop].load()
        for part in ('train_dataloader', 'val_dataloader', 'model.data_preprocessor'):
            assert value(leaf.load(), part) == value(first, part), leaf.name


@every_pipeline
def test_training_images(leaf: Leaf, folder: Path | None, generated: Path) -> None:
    cfg = with_images(leaf, folder, generated)
    sample = DATASETS.build(cfg.train_dataloader.dataset)[0]
    size = tuple(sample['inputs'].shape[1:])
    if leaf.experiment.startswith('dino'):
        assert 480 <= min(size) <= 800 and max(size) <= 1333
        boxes = sample['data_samples'].gt_instances.bboxes
        assert boxes.shape[1] == 4 and np.isfinite(boxes.numpy()).all()
        assert preprocessed(cfg, sample, training=True) == (2, 3, *size)
        return
    crop = (leaf.crop, leaf.crop)
    assert (
        size == crop
        if leaf.experiment == 'mask2former_swin'
        else max(size) <= leaf.crop
    )
    labels = sample['data_samples'].gt_sem_seg.data
    assert tuple(labels.shape[1:]) == size
    assert set(labels.unique().tolist()) <= {*range(150), 255}
    assert preprocessed(cfg, sample, training=True) == (2, 3, *crop)


@every_pipeline
def test_test_images(leaf: Leaf, folder: Path | None, generated: Path) -> None:
    cfg = with_images(leaf, folder, generated)
    sample = DATASETS.build(cfg.val_dataloader.dataset)[0]
    height, width = sample['inputs'].shape[1:]
    short, long = (
        (800, 1333)
        if leaf.experiment.startswith('dino')
        else (leaf.crop, leaf.crop * 4)
    )
    assert min(height, width) == short or max(height, width) == long
    original = sample['data_samples'].ori_shape
    assert height / width == pytest.approx(original[0] / original[1], rel=0.01)
    if not leaf.experiment.startswith('dino'):
        assert sample['data_samples'].gt_sem_seg.shape == original
    shape = preprocessed(cfg, sample, training=False)
    if leaf.experiment == 'mask2former_swin':
        height, width = (-(-side // 32) * 32 for side in (height, width))
    assert shape == (2, 3, height, width)
