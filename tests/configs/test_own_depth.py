"""configs/own/depth.py: what follows from the settings, and a step of training."""

from __future__ import annotations

import shutil
from pathlib import Path

import mmcv
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, DefaultScope
from mmengine.runner import Runner

from rope_dense.data.generated import ShapesSettings, write_shapes
from rope_dense.project.load import load_config
from rope_dense.project.model import build_shapes, random_model
from rope_dense.utils.errors import UsageError

pytestmark = pytest.mark.usefixtures('surroundings')


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six training and two validation images of 64 x 96 pixels."""
    folder = tmp_path_factory.mktemp('own')
    write_shapes(folder, ShapesSettings(6, 2, (64, 96), layouts=('depth',)))
    return folder / 'depth'


def load(data: Path, **settings: object) -> Config:
    return load_config('depth', own={'data_root': data, 'epochs': 10, **settings})


def test_sizes_and_depths_follow_from_one_value_each(data: Path) -> None:
    cfg = load(data, size=240, max_depth=80, unit=0.01)
    steps = {step.type: step for step in cfg.train_dataloader.dataset.pipeline}
    assert steps['Resize'].scale == (960, 240) and steps['LoadDepth'].unit == 0.01
    assert (
        steps['RandomCrop'].crop_size == cfg.model.data_preprocessor.size == (240, 320)
    )
    assert cfg.model.decode_head.max_depth == cfg.test_evaluator.max_depth_eval == 80
    tested = [step.type for step in cfg.test_dataloader.dataset.pipeline]
    assert tested == ['LoadImageFromFile', 'Resize', 'LoadDepth', 'PackSegInputs']
    assert cfg.model.data_preprocessor.test_cfg == dict(size_divisor=16)
    assert load(
        data, backbone='sam3', weights=None
    ).model.data_preprocessor.test_cfg == dict(size_divisor=14)
    resize, _, depth, _ = cfg.tta_pipeline[1].transforms
    assert resize == [steps['Resize']] and depth == [steps['LoadDepth']]


def test_the_backbone_is_frozen_has_adapters_or_trains(data: Path) -> None:
    for settings, trained in (
        (dict(), 'none'),
        (dict(lora=4), 'lora'),
        (dict(weights=None), 'all'),
    ):
        cfg = load(data, **settings)
        cfg.model.backbone.init_cfg = None
        model = build_shapes(cfg)
        learns = {
            name: x.requires_grad for name, x in model.backbone.named_parameters()
        }
        expected = {name: trained == 'all' or trained in name for name in learns}
        assert learns == expected and (trained == 'none' or any(learns.values()))
        assert all(x.requires_grad for x in model.decode_head.parameters())


def test_the_best_checkpoint_has_the_least_error(data: Path) -> None:
    cfg = load(data, patience=3)
    assert cfg.default_hooks.checkpoint.save_best == 'rmse'
    assert cfg.default_hooks.checkpoint.rule == cfg.custom_hooks[0].rule == 'less'


def test_the_range_of_depths_is_said(data: Path) -> None:
    depths = [
        mmcv.imread(x, 'unchanged') / 1000 for x in (data / 'depth' / 'train').iterdir()
    ]
    known = np.concatenate([x[x > 0] for x in depths])
    least, median, most = known.min(), np.median(known), known.max()
    text = f'depths of {least:.3g} to {most:.3g} m, median {median:.3g} m (6 files)'
    assert load(data).own_data.startswith(
        'depth maps, 6 training and 2 validation images, by '
    )
    assert text in load(data).own_data.splitlines()


def test_arrays_in_metres_are_read(data: Path, tmp_path: Path) -> None:
    """The same numbers as from PNGs of millimetres; what is no number is unknown."""
    shutil.copytree(data, tmp_path / 'rooms')
    for file in (tmp_path / 'rooms' / 'depth').rglob('*.png'):
        depth = mmcv.imread(file, 'unchanged') / 1000
        np.save(file.with_suffix('.npy'), np.where(depth > 0, depth, np.nan))
        file.unlink()
    datasets = []
    for cfg in (load(data), load(tmp_path / 'rooms', unit=1.0)):
        with DefaultScope.overwrite_default_scope('mmseg'):
            datasets.append(DATASETS.build(cfg.test_dataloader.dataset))
    assert len(datasets[0]) == len(datasets[1]) == 2
    pair = [dataset[1]['data_samples'].gt_depth_map.data for dataset in datasets]
    torch.testing.assert_close(*pair)
    assert (pair[0] == 0).any()


@pytest.mark.parametrize(
    'settings, says',
    [
        (dict(unit=0), 'own.unit must be'),
        (dict(max_depth=-1), 'own.max_depth must be'),
        (dict(lora=-1), 'own.lora must be'),
        (
            dict(lora=8, weights=None),
            'own.lora=8: adapters are for runs without own.weights=None',
        ),
        (
            dict(depth=3),
            'own.depth: no such setting; did you mean max_depth?; allowed: data_root',
        ),
        (dict(mosaic=True), 'own.mosaic: no such setting'),
        (dict(classes=['room']), 'own.classes: no such setting'),
        (dict(train='a'), 'give [folder of images, folder of labels]'),
        (
            dict(train=['a', 'b']),
            'no folders of images and depth maps of train; looked for',
        ),
    ],
)
def test_wrong_settings_are_named(data: Path, settings: dict, says: str) -> None:
    with pytest.raises(UsageError) as error:
        load(data, **settings)
    assert says in str(error.value)


@pytest.mark.parametrize('backbone', ['small', 'sam3'])
def test_a_small_model_trains(data: Path, backbone: str) -> None:
    """With and without class tokens, on one batch of its own pipeline."""
    cfg = load(data, backbone=backbone, size=64, weights=None, batch_size=2)
    has_token = backbone == 'small'
    cfg.model.backbone.arch = dict(
        embed_dims=32, depth=4, num_heads=2, with_cls_token=has_token, num_registers=0
    )
    cfg.model.backbone.out_indices = (0, 1, 2, 3)
    cfg.model.decode_head.update(
        in_channels=32, channels=16, post_process_channels=[8] * 4
    )
    cfg.train_dataloader.update(num_workers=0, persistent_workers=False)
    assert cfg.model.backbone.output_prefix == ('cls' if has_token else None)
    model = random_model(cfg).train()
    with DefaultScope.overwrite_default_scope('mmseg'):
        batch = next(iter(Runner.build_dataloader(cfg.train_dataloader, seed=0)))
    losses = model(**model.data_preprocessor(batch, training=True), mode='loss')
    losses['decode.loss_silog'].backward()
    assert all(
        x.grad is not None and x.grad.isfinite().all() for x in model.parameters()
    )
