"""Augmentation settings of configs/own: the steps that follow, and what they do to images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DATASETS, TRANSFORMS, DefaultScope
from mmengine.runner import Runner

from rope_dense.data.generated import (
    SEGMENTATION_METAINFO,
    ShapesSettings,
    write_shapes,
)
from rope_dense.engine.train_loop import set_epoch
from rope_dense.project.load import load_config
from rope_dense.project.own.augment import mirrored_text
from rope_dense.utils.config_parts import nodes
from rope_dense.utils.errors import UsageError

pytestmark = pytest.mark.usefixtures('surroundings')
TASKS = ('detection', 'instance', 'semantic', 'realtime', 'realtime_masks', 'depth')
ROOTS = dict(semantic='ade', depth='depth')
COLOURS = {'PhotoMetricDistortion', 'PhotometricJitter', 'RandomColourGain'}


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('own')
    write_shapes(
        folder, ShapesSettings(4, 2, (64, 96), layouts=('coco', 'ade', 'depth'))
    )
    names = ['background', *SEGMENTATION_METAINFO['classes'][1:], 'none']
    (folder / 'ade' / 'classes.txt').write_text('\n'.join(names))
    return folder


def load(task: str, data: Path, **settings: object) -> Config:
    root = data / ROOTS.get(task, 'coco')
    settings = dict(data_root=root, batch_size=2, size=64, weights=None) | settings
    return load_config(task, own=settings)


def step_types(cfg: Config) -> list[str]:
    pipeline = cfg.train_dataloader.dataset.pipeline
    return [node['type'] for _, node in nodes(pipeline) if 'type' in node]


def batch_augments(cfg: Config) -> list[str]:
    return [b.type for b in cfg.model.data_preprocessor.get('batch_augments', ())]


def first_batch(cfg: Config) -> dict[str, Any]:
    cfg.train_dataloader.update(num_workers=0, persistent_workers=False)
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        return next(iter(Runner.build_dataloader(cfg.train_dataloader, seed=0)))


@pytest.mark.parametrize('task', TASKS)
def test_published_is_the_default(data: Path, task: str) -> None:
    """But for real time in short runs from random values: four images, below 5000 epochs."""
    default = 'light' if task.startswith('realtime') else 'published'
    for epochs, augment in ((4999, default), (5000, 'published')):
        loaders = [load(task, data, epochs=epochs, augment=x) for x in (None, augment)]
        assert loaders[0].train_dataloader == loaders[1].train_dataloader


@pytest.mark.parametrize('task', TASKS)
def test_light_flips_and_scales(data: Path, task: str) -> None:
    cfg = load(task, data, augment='light')
    types = step_types(cfg)
    assert types.count('RandomFlip') == 1
    assert not COLOURS & {*types} and not {'StageByEpoch', 'RandomChoice'} & {*types}
    if task == 'depth':  # another size of the same picture would be another depth
        assert 'Resize' in types and 'RandomResize' not in types
    elif task.startswith('realtime'):
        assert 'Resize' in types and batch_augments(cfg) == ['MultiScaleBatch']
    else:
        step = next(
            s for s in cfg.train_dataloader.dataset.pipeline if s.type == 'RandomResize'
        )
        assert step.ratio_range == (0.8, 1.25) and batch_augments(cfg) == []
    first_batch(cfg)


@pytest.mark.parametrize('task', TASKS)
def test_none_gives_images_as_in_a_test(data: Path, task: str) -> None:
    """Twice the same pixels, those of the test pipeline on the same image, its crop left out."""
    cfg = load(task, data, augment='none')
    types = step_types(cfg)
    assert not {'RandomFlip', 'RandomResize', 'StageByEpoch', *COLOURS} & {*types}
    assert ('RandomCrop' in types) == (task in ROOTS)
    assert batch_augments(cfg) == []
    if task in ROOTS:  # wide images: their labels are cropped along
        width = 64 if task == 'semantic' else 96
        assert {tuple(x.shape) for x in first_batch(cfg)['inputs']} == {(3, 64, width)}
        return
    train, test = cfg.train_dataloader.dataset, cfg.test_dataloader.dataset
    test.update(ann_file=train.ann_file, data_prefix=train.data_prefix)
    train['test_mode'] = True
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        first, second = DATASETS.build(train), DATASETS.build(test)
    assert torch.equal(first[1]['inputs'], second[1]['inputs'])
    assert torch.equal(first[1]['inputs'], first[1]['inputs'])


def test_steps_of_other_scopes_are_found(data: Path) -> None:
    """Oriented boxes: a step of mmrotate among mmdet's; flips in all directions."""
    pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
    given = step_types(load('oriented', data))
    light, none = (
        load('oriented', data, augment=name).train_dataloader.dataset.pipeline
        for name in ('light', 'none')
    )
    step = next(step for step in light if step.type == 'RandomResize')
    assert step.ratio_range == (0.8, 1.25)
    assert [s.type for s in none] == [kind for kind in given if kind != 'RandomFlip']
    assert step_types(load('oriented', data, flip='none')) == [s.type for s in none]


def flips_of(cfg: Config) -> set[str | None]:
    """Directions of the flips of 60 samples."""
    step = next(
        s for s in cfg.train_dataloader.dataset.pipeline if s.type == 'RandomFlip'
    )
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        flip = TRANSFORMS.build(step)
    image = np.zeros((4, 6, 3), np.uint8)
    found = (
        flip(dict(img=image, img_shape=(4, 6))).get('flip_direction') for _ in range(60)
    )
    return {*found}


@pytest.mark.parametrize('task', ['detection', 'semantic', 'realtime'])
@pytest.mark.parametrize('augment', ['published', 'none'])
def test_flips_are_chosen(data: Path, task: str, augment: str) -> None:
    cfg = load(task, data, flip='none', augment=augment)
    assert 'RandomFlip' not in step_types(cfg)
    both = load(task, data, flip='both', augment=augment)
    assert flips_of(both) == {None, 'horizontal', 'vertical', 'diagonal'}
    assert flips_of(load(task, data, flip='vertical')) == {None, 'vertical'}
    assert step_types(both).count('RandomFlip') == 1
    first_batch(both)


@pytest.mark.parametrize(
    'classes, flip, said',
    [
        (['left_arrow', 'Right_arrow'], None, 'changes left_arrow and right_arrow'),
        (
            ['turn left', 'turn right'],
            ['vertical', 'horizontal'],
            'left and turn right',
        ),
        (['0', '1', '6', '7', 'dash'], 'horizontal', '0 and other digits or letters'),
        (['left_arrow', 'right_arrow'], 'vertical', ''),
        (['left_arrow', 'right'], 'horizontal', ''),
        (['a', 'b', 'laptop', 'bottom'], 'horizontal', ''),
    ],
)
def test_classes_that_a_mirror_exchanges_are_said(
    classes: list[str], flip: str | list[str] | None, said: str
) -> None:
    step: dict = dict(type='RandomFlip', prob=0.5)
    if flip:
        step['direction'] = flip
    pipeline = [dict(type='Stage', transforms=[[step]])]
    cfg = dict(train_dataloader=dict(dataset=dict(pipeline=pipeline)))
    text = mirrored_text(cfg, classes)
    assert said in text and bool(said) is bool(text)
    step['type'] = 'Resize'
    assert mirrored_text(cfg, classes) == ''


def test_a_recipe_says_them_unless_it_mirrors_nothing(tmp_path: Path) -> None:
    write_shapes(tmp_path, ShapesSettings(2, 1, (64, 96), layouts=('coco',)))
    for file in tmp_path.rglob('*.json'):
        text = file.read_text().replace('"circle"', '"left sign"')
        file.write_text(text.replace('"square"', '"right sign"'))
    given = dict(data_root=tmp_path / 'coco', weights=None, size=64)
    said = 'own.flip=none if that changes left sign and right sign'
    assert said in load_config('realtime', own=given).own_data
    assert said not in load_config('realtime', own=given | dict(flip='none')).own_data


@pytest.mark.parametrize('task', ['realtime', 'realtime_masks'])
def test_mosaics_are_left_out(data: Path, task: str) -> None:
    cfg = load(task, data, mosaic=False)
    types = step_types(cfg)
    assert 'AffineMosaic' not in types and 'RandomIoUCrop' in types
    assert batch_augments(cfg) == ['MultiScaleBatch']
    set_epoch(10)
    first_batch(cfg)
    set_epoch(0)


@pytest.mark.parametrize(
    'task, settings, says',
    [
        ('detection', dict(augment='strong'), 'own.augment must be one of'),
        ('detection', dict(flip='up'), 'own.flip must be'),
        ('semantic', dict(mosaic=True), 'own.mosaic: no such setting'),
        (
            'realtime',
            dict(mosaic=True, augment='light'),
            "needs own.augment='published'",
        ),
    ],
)
def test_wrong_settings_are_named(
    data: Path, task: str, settings: dict, says: str
) -> None:
    with pytest.raises(UsageError) as error:
        load(task, data, **settings)
    assert says in str(error.value)
