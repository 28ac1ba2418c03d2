"""Recipes of own data at their limits: many objects, small images, few images, odd launchers.

Numbers as F4 and F8 are of inputs that were tried, C2 and K10 of runs.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner import Runner

from rope_dense.data.generated import (
    SEGMENTATION_METAINFO,
    ShapesSettings,
    write_shapes,
)
from rope_dense.engine.train_loop import set_epoch
from rope_dense.project.contents import box_limit, evaluators
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense.project.own.fit import set_box_limit
from rope_dense.project.own.recipes import DERIVE, find_anew
from rope_dense.project.own.settings import task_settings
from rope_dense.project.own.tasks import TASKS, find_data
from rope_dense.utils.errors import UsageError

pytestmark = pytest.mark.usefixtures('surroundings')
ROOTS = dict(semantic='ade', depth='depth')


@pytest.fixture(scope='module')
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven training and two validation images."""
    root = tmp_path_factory.mktemp('recipes')
    write_shapes(
        root, ShapesSettings(11, 2, (64, 96), layouts=('coco', 'ade', 'depth'))
    )
    (root / 'ade' / 'classes.txt').write_text(
        '\n'.join(['none', *SEGMENTATION_METAINFO['classes']])
    )
    return root


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder, and one process."""
    monkeypatch.chdir(tmp_path)
    for name in ('WORLD_SIZE', 'OMPI_COMM_WORLD_SIZE', 'SLURM_NTASKS', 'LOCAL_RANK'):
        monkeypatch.delenv(name, raising=False)


def load(task: str, shapes: Path, **settings: object) -> Config:
    if task == 'oriented':
        pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
    settings = dict(data_root=shapes / ROOTS.get(task, 'coco'), weights=None) | settings
    return load_config(task, own=settings)


def said(task: str, shapes: Path, **settings: object) -> str:
    """The line of a refusal."""
    with pytest.raises(UsageError) as error:
        load(task, shapes, **settings)
    assert '\n' not in str(error.value)
    return str(error.value)


def with_objects(task: str, shapes: Path, most: int, **settings: object) -> dict:
    """The config of a data set that has ``most`` objects in an image."""
    if task == 'oriented':
        pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
    own = task_settings(
        TASKS[task].settings, dict(data_root=str(shapes / 'coco')) | settings
    )
    data = find_data(task, own).data
    object.__setattr__(data, 'most_objects', most)
    return DERIVE[task](own, data)


@pytest.mark.parametrize(
    'task, size, most, limit, merged',
    [
        ('detection', 800, 384, 900, 900),
        ('detection', 800, 3, 900, 900),
        ('detection', 800, 1500, 900, 900),
        ('detection', 64, 384, 16, 300),
        ('instance', 1024, 3, 100, 100),
        ('instance', 1024, 384, 384, 384),
        ('instance', 1024, 1500, 1000, 1000),
        ('realtime', 640, 100, 300, 300),
        ('realtime', 640, 110, 330, 330),
        ('realtime', 640, 1000, 900, 900),
        ('realtime', 64, 384, 16, 300),
        ('realtime_masks', 640, 150, 450, 450),
        ('oriented', 1024, 384, 900, None),
        ('oriented', 64, 65, 64, None),
    ],
)
def test_f4_more_objects_than_a_model_returns(
    shapes: Path, task: str, size: int, most: int, limit: int, merged: int | None
) -> None:
    cfg = with_objects(task, shapes, most, size=size)
    test_cfg = cfg['model']['test_cfg']
    assert test_cfg.get('rcnn', test_cfg)['max_per_img'] == limit
    assert cfg.get('tta_model', {}).get('tta_cfg', {}).get('max_per_img') == merged
    line = f'up to {most} objects in an image; the model returns at most {limit}'
    assert (cfg['own_data'].splitlines()[-1] == line) == (most > limit)
    assert ('objects in an image' in cfg['own_data']) == (most > limit)


@pytest.mark.parametrize('task', ['detection', 'instance', 'realtime'])
def test_n6_as_many_boxes_count_with_tiles_as_without(task: str, shapes: Path) -> None:
    """The limit is from the fullest image; one that is given stays, if it is larger."""
    for settings in (dict(), dict(tile=32)):
        cfg = load(task, shapes, data_root=str(shapes / 'coco'), **settings)
        for name in ('val_evaluator', 'test_evaluator'):
            ((_, metric),) = evaluators(cfg, name)
            assert metric.proposal_nums == (1, 10, 100)
        for most, limit in ((300, 1500), (7, 1500)):
            set_box_limit(cfg.test_evaluator, most)
            assert box_limit(cfg) == limit
    assert box_limit(load('semantic', shapes)) is None


def test_n6_other_data_have_their_own_fullest_image(shapes: Path) -> None:
    root = shapes / 'coco'
    cfg = load('realtime', shapes, data_root=str(root))
    other = Path('other')
    shutil.copytree(root, other)
    file = next(other.rglob('*val*.json'))
    content = json.loads(file.read_text())
    first = dict(content['annotations'][0], segmentation=[])
    for number in range(1000, 1050):
        box = [number % 50, 1, 8, 8]
        content['annotations'].append(dict(first, id=number, bbox=box))
    file.write_text(json.dumps(content))
    find_anew(cfg, str(other))
    assert box_limit(cfg) >= 250


def shrink(cfg: Config) -> None:
    """A backbone of 32 channels below the heads of the recipe, and no workers."""
    model = cfg.model
    maps = dict(semantic=4, depth=4).get(cfg.own.task, 3)
    model.backbone.arch = dict(embed_dims=32, depth=4, num_heads=2)
    if cfg.own.task in ('detection', 'instance'):
        model.backbone.window_block_indexes = (0, 1, 2)
        (model.neck[0] if isinstance(model.neck, list) else model.neck).in_channels = 32
    else:
        model.backbone.update(out_indices=tuple(range(4))[-maps:], output_prefix=None)
    if cfg.own.task in ('realtime', 'realtime_masks', 'oriented'):
        model.neck.update(in_channels=32, out_channels=32, stem_channels=4)
        model.encoder.update(
            in_channels=(32,) * 3, embed_dims=32, feedforward_channels=32
        )
        model.bbox_head.embed_dims = 32
        model.bbox_head.decoder.update(num_layers=2, feedforward_channels=32)
    elif cfg.own.task == 'semantic':
        model.neck.embed_dim = model.decode_head.channels = (
            model.auxiliary_head.in_channels
        ) = 32
        model.decode_head.in_channels = [32] * 4
    elif cfg.own.task == 'depth':
        model.decode_head.update(
            in_channels=32, channels=16, post_process_channels=[8] * 4
        )
        model.decode_head.readout = 'ignore'
    cfg.train_dataloader.update(num_workers=0, persistent_workers=False)


def step(cfg: Config) -> list[torch.Tensor]:
    """The losses of the last batch of an epoch, at the smallest size of the recipe's batches."""
    set_epoch(0)
    model = random_model(cfg).train()
    for augment in getattr(model.data_preprocessor, 'batch_augments', None) or ():
        if hasattr(augment, 'sizes'):
            augment.sizes = [min(augment.sizes)]
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        loader = Runner.build_dataloader(cfg.train_dataloader, seed=0)
        batches = iter(loader)
        *_, batch = (
            next(batches) for _ in range(cfg.train_cfg.max_iters // cfg.own.epochs)
        )
    losses = model(**model.data_preprocessor(batch, training=True), mode='loss')
    return [torch.as_tensor(loss) for loss in losses.values()]


# The smallest that each recipe takes, one image in a batch where it can be.
LEAST: list[tuple[str, dict[str, Any]]] = [
    ('detection', dict(size=64, batch_size=1)),
    ('instance', dict(size=32, batch_size=1)),
    ('depth', dict(size=32, batch_size=1)),
    ('semantic', dict(size=32, batch_size=2)),
    ('realtime', dict(size=96, batch_size=1)),
    ('realtime', dict(size=64, batch_size=1, augment='none')),
    (
        'realtime',
        dict(size=32, batch_size=2),
    ),  # the eleventh image is a batch of its own
    ('realtime', dict(size=64, batch_size=2, keep_ratio=True)),
    ('realtime', dict(size=96, batch_size=2)),
    ('realtime_masks', dict(size=64, batch_size=5)),
    ('oriented', dict(size=64, batch_size=1)),
    ('oriented', dict(size=32, batch_size=2)),
]


@pytest.mark.parametrize('task, settings', LEAST)
def test_the_smallest_images_and_batches_train(
    shapes: Path, task: str, settings: dict[str, Any]
) -> None:
    cfg = load(task, shapes, **settings)
    shrink(cfg)
    assert all(loss.isfinite().all() for loss in step(cfg))


@pytest.mark.parametrize(
    'task, settings, says',
    [
        ('semantic', dict(), 'own.batch_size=1: the pooling of UperNet normalises'),
        (
            'realtime',
            dict(size=64),
            'give own.size=96 or more, or own.batch_size=2 or more',
        ),
        ('realtime', dict(size=32, augment='none'), 'give own.size=64 or more'),
        (
            'realtime',
            dict(size=64, augment='light', keep_ratio=True),
            'give own.size=96 or more',
        ),
        ('realtime_masks', dict(size=64), 'give own.size=96 or more'),
        ('oriented', dict(size=32), 'give own.size=64 or more'),
    ],
)
def test_f8_k10_a_batch_of_one_is_refused_where_its_norm_fails(
    shapes: Path, task: str, settings: dict[str, Any], says: str
) -> None:
    assert says in said(task, shapes, batch_size=1, **settings)
    cfg = load(task, shapes, batch_size=2, **settings)
    shrink(cfg)
    cfg.train_dataloader.update(batch_size=1, drop_last=False)
    with pytest.raises(ValueError, match='Expected more than 1 value per channel'):
        step(cfg)


def test_f8_batch_norms_are_synchronised_on_gpus(
    shapes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for has_gpus in (True, False):
        monkeypatch.setattr('torch.cuda.is_available', lambda value=has_gpus: value)
        if has_gpus:
            assert load('semantic', shapes, batch_size=1, gpus=2).own.gpus == 2
        else:
            assert 'own.batch_size=1:' in said('semantic', shapes, batch_size=1, gpus=2)


def test_detection_has_patches_to_pool(shapes: Path) -> None:
    assert (
        said('detection', shapes, size=63)
        == 'own.size must be an integer from 64 up, got 63'
    )


def test_a_last_batch_of_one_is_dropped_only_where_it_fails(shapes: Path) -> None:
    """Eleven images: ten are in batches of two or five, or of two for each of two processes."""
    for settings, drops, batches in (
        (dict(batch_size=2), True, 5),
        (dict(batch_size=5), True, 2),
        (dict(batch_size=4), False, 3),
        (dict(batch_size=8), False, 2),
        (dict(batch_size=2, size=96), False, 6),
        (dict(batch_size=5, gpus=2), True, 1),
        (dict(batch_size=4, gpus=2), False, 2),
    ):
        cfg = load('realtime', shapes, **dict(dict(size=64, epochs=3), **settings))
        assert cfg.train_dataloader.drop_last == drops, settings
        assert cfg.train_cfg.max_iters == 3 * batches, settings


def test_c2_a_batch_of_more_images_than_there_are(shapes: Path) -> None:
    for task in TASKS:
        images = 13 if task == 'adapt' else 11  # those of validation, too
        says = f'own.batch_size=500: more than the {images} training images; '
        assert (
            said(task, shapes, batch_size=500) == says + 'give a smaller own.batch_size'
        )
    says = 'own.batch_size=9 on 2 GPUs: more than the 11 training images'
    assert says in said('detection', shapes, batch_size=9, gpus=2)
    for batch in (8, 11):
        assert load('detection', shapes, batch_size=batch).train_cfg.max_iters in (
            50,
            100,
        )


@pytest.mark.parametrize('value, gpus', [('', 1), (' ', 1), ('2', 2)])
def test_a_launcher_that_says_little(
    shapes: Path, monkeypatch: pytest.MonkeyPatch, value: str, gpus: int
) -> None:
    """An empty variable is none, as after `export WORLD_SIZE=`."""
    monkeypatch.setenv('WORLD_SIZE', value)
    assert load('detection', shapes).own.gpus == gpus


@pytest.mark.parametrize('value', ['two', '0', '-1', '1.5', '0x2'])
def test_a_launcher_that_says_no_number(
    shapes: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv('OMPI_COMM_WORLD_SIZE', value)
    says = f'OMPI_COMM_WORLD_SIZE={value}: no number of processes; unset it'
    assert said('detection', shapes).startswith(says)


def test_k10_workers_have_the_cores_of_the_job(
    shapes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cores, workers in ({0}, 1), ({0, 3}, 2), ({*range(64)}, 4):
        monkeypatch.setattr(os, 'sched_getaffinity', lambda _, cores=cores: cores)
        assert load('detection', shapes).train_dataloader.num_workers == workers
