"""configs/own: what follows from the settings, on data that is there and where it is not."""

import re
from itertools import cycle
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, PARAM_SCHEDULERS, DefaultScope
from mmengine.runner import Runner

from helpers.grid import CONFIGS
from rope_dense.backbones import RoPEViT
from rope_dense.backbones.archs import VIT_ARCHS, ViTArch, find_arch
from rope_dense.data.generated import (
    SEGMENTATION_METAINFO,
    ShapesSettings,
    write_shapes,
)
from rope_dense.project.hub import save_for_hub
from rope_dense.project.hub_config import read_settings
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense.project.own.backbones import WORDS, find_backbone
from rope_dense.project.own.fit import scale_pixels
from rope_dense.project.own.text import Text
from rope_dense.utils.config_parts import nodes
from rope_dense.utils.errors import UsageError

pytestmark = pytest.mark.usefixtures('surroundings')
OWN = CONFIGS / 'own'
TASKS = ('detection', 'instance', 'semantic', 'realtime', 'realtime_masks', 'depth')
PACKED = ('PackDetInputs', 'PackSegInputs')
LOADERS = ('train_dataloader', 'test_dataloader')
ROOTS = dict(semantic='ade', depth='depth')


OTHERS = ('dinov3_small', 'eva02_tiny', 'pe_core_large', 'rope_reg1_mediumd', 'sam3')
TWICE = [backbone for backbone in (*WORDS, *OTHERS) for _ in range(2)]
pairs = [*zip(cycle(TASKS), TWICE, strict=False)]  # each backbone below two heads


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six training and two validation images; masks have the background as class 0, void 6."""
    folder = tmp_path_factory.mktemp('own')
    write_shapes(
        folder, ShapesSettings(6, 2, (64, 96), layouts=('coco', 'ade', 'depth'))
    )
    names = ['none', *SEGMENTATION_METAINFO['classes']]
    (folder / 'ade' / 'classes.txt').write_text('\n'.join(names))
    return folder


def load(task: str, data: Path, **settings: object) -> Config:
    root = data / ROOTS.get(task, 'coco')
    return load_config(task, own={'data_root': root, 'epochs': 10, **settings})


def test_there_are_eight() -> None:
    assert {path.stem for path in OWN.glob('*.py')} == {*TASKS, 'oriented', 'adapt'}


@pytest.mark.parametrize('task', TASKS)
def test_a_dump_is_complete(task: str, data: Path, tmp_path: Path) -> None:
    """It has no task, but the model, and is read as any other config."""
    cfg = load(task, data)
    cfg.dump(tmp_path / 'dumped.py')
    plain = Config.fromfile(tmp_path / 'dumped.py')
    assert (
        plain.to_dict() == cfg.to_dict()
        and 'task' not in plain
        and plain.own.task == task
    )
    assert load_config(str(tmp_path / 'dumped.py')).to_dict() == cfg.to_dict()


@pytest.mark.parametrize('task', TASKS)
def test_it_can_be_stored(task: str, data: Path, tmp_path: Path) -> None:
    """On the hub, where nothing loads labels."""
    cfg = load(task, data)
    classes = cfg.test_dataloader.dataset.metainfo.classes
    colours = [(0, 0, 0)] * len(classes)
    folder = save_for_hub(
        cfg, {}, tmp_path / 'a', name='a/b', classes=classes, colours=colours
    )
    stored = read_settings(folder / 'config.json')
    steps = [step.type for step in stored.test_dataloader.dataset.pipeline]
    assert steps in (['LoadImageFromFile', 'Resize', name] for name in PACKED)


@pytest.mark.parametrize('task', TASKS)
def test_without_data_classes_are_needed(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        load_config(task)
    says = f"own.data_root='data/own': no such folder (seen from {tmp_path})"
    assert str(error.value) == says
    if task != 'depth':
        cfg = load_config(task, own=dict(classes=['cat', 'dog']))
        assert cfg.train_dataloader.dataset.metainfo.classes == ('cat', 'dog')


@pytest.mark.parametrize('task', TASKS)
def test_a_copy_works_in_any_folder(
    task: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / 'cats.py'
    copied.write_text((OWN / f'{task}.py').read_text().replace('epochs=50', 'epochs=7'))
    monkeypatch.chdir(tmp_path)
    root = data / ROOTS.get(task, 'coco')
    cfg = load_config('cats.py', [f'own.data_root={root}'])
    assert cfg.own.epochs == 7 and cfg.work_dir == 'work_dirs/cats'
    assert cfg.model == load(task, data, epochs=7).model


@pytest.mark.parametrize(
    'task, batch', dict(detection=2, semantic=2, realtime=8).items()
)
def test_a_copy_without_a_batch_size(
    task: str, batch: int, data: Path, tmp_path: Path
) -> None:
    lines = (OWN / f'{task}.py').read_text().splitlines()
    copied = tmp_path / 'cats.py'
    copied.write_text('\n'.join(line for line in lines if 'batch_size' not in line))
    root = data / ROOTS.get(task, 'coco')
    cfg = load_config(str(copied), [f'own.data_root={root}'])
    assert cfg.train_dataloader.batch_size == batch


@pytest.mark.parametrize('task, backbone', pairs)
def test_every_head_fits_every_backbone(data: Path, task: str, backbone: str) -> None:
    """Built without memory; the maps of the backbone and the classes of each head."""
    weights = 'default' if backbone in WORDS else 'own.pth'
    cfg = load(task, data, backbone=backbone, weights=weights)
    vit = find_backbone(backbone)
    checkpoint, channels, depth = vit.weights or weights, vit.channels, vit.depth
    assert cfg.model.backbone.init_cfg.checkpoint == checkpoint
    assert tuple(cfg.model.data_preprocessor.mean) == vit.mean
    cfg.model.backbone.init_cfg = None
    with (
        torch.device('meta'),
        MODELS.switch_scope_and_registry(cfg.default_scope) as models,
    ):
        model = models.build(cfg.model)
    assert len(model.backbone.ordered_blocks) == depth
    assert model.backbone.out_channels[-1] == channels
    heads = [m for m in model.modules() if type(m).__name__.endswith('Head')]
    counts = {h.num_classes for h in heads if getattr(h, 'num_classes', 1) > 1}
    assert counts == dict(semantic={8}, depth=set()).get(task, {6})


def test_a_schedule_follows_from_epochs_batch_and_gpus(data: Path) -> None:
    cfg = load('detection', data, epochs=24, batch_size=2, gpus=2, val_epochs=4)
    assert (
        cfg.train_cfg.max_iters == 48 and cfg.train_cfg.val_interval == 8
    )  # 2 an epoch
    assert cfg.param_scheduler[1].milestones == [44] and cfg.param_scheduler[0].end == 4
    assert cfg.default_hooks.checkpoint.interval == 8
    assert cfg.optim_wrapper.optimizer.lr == pytest.approx(1e-4 * (4 / 16) ** 0.5)
    assert cfg.auto_scale_lr.base_batch_size == 4
    assert load('detection', data, lr=3e-4).optim_wrapper.optimizer.lr == 3e-4
    cfg = load('semantic', data, epochs=3, batch_size=4)
    assert cfg.train_cfg.max_iters == cfg.param_scheduler[1].end == 6


@pytest.mark.parametrize('task', ['detection', 'instance'])
@pytest.mark.parametrize('epochs', [1, 2, 9])
def test_milestones_are_within_short_runs(data: Path, task: str, epochs: int) -> None:
    cfg = load(task, data, epochs=epochs, batch_size=6)
    *warm_up, steps = cfg.param_scheduler
    assert all(
        0 < milestone < cfg.train_cfg.max_iters == epochs
        for milestone in steps.milestones
    )
    assert [step.end for step in warm_up] == ([] if epochs == 1 else [2])


def test_the_learning_rate_rises_in_short_runs(data: Path) -> None:
    """mmengine leaves a rate where it is from the end of a warm-up on."""
    cfg = load('semantic', data, epochs=4, batch_size=6)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    with DefaultScope.overwrite_default_scope('mmengine'):
        schedulers = [
            PARAM_SCHEDULERS.build(dict(step, optimizer=optimizer))
            for step in cfg.param_scheduler
        ]
    rates = []
    for _ in range(cfg.train_cfg.max_iters):
        rates.append(optimizer.param_groups[0]['lr'])
        optimizer.step()
        for scheduler in schedulers:
            scheduler.step()
    assert rates == pytest.approx([0.001, 2 / 3, 1 / 3, 0])


def test_sizes_follow_from_one(data: Path) -> None:
    cfg = load('semantic', data, size=256)
    assert cfg.model.data_preprocessor.size == (256, 256)
    assert cfg.model.test_cfg == dict(
        mode='slide', crop_size=(256, 256), stride=(170, 170)
    )
    assert cfg.test_dataloader.dataset.pipeline[1].scale == (1024, 256)
    tta = [step.scale for step in cfg.tta_pipeline[1].transforms[0]]
    assert tta == [256, 256, 256, 320, 384, 448]
    cfg = load('detection', data, size=400)
    assert cfg.test_dataloader.dataset.pipeline[1].scale == (666, 400)
    assert (
        cfg.model.num_queries == 900
        and load('detection', data, size=160).model.num_queries < 200
    )
    cfg = load('instance', data, size=512)
    assert cfg.model.data_preprocessor.pad_size_divisor == 512
    assert cfg.train_dataloader.dataset.pipeline[4].crop_size == (512, 512)
    tta = [step.scale for step in cfg.tta_pipeline[1].transforms[0]]
    assert tta == [(512, 512), (384, 384)] and cfg.tta_model.type == 'InstanceTTAModel'


def test_sizes_of_the_recipe_are_those_of_its_config() -> None:
    """At the size of the recipe nothing changes; 10**6 is no limit."""
    for task, name in (
        ('detection', 'foundation/dino-vitdet_lingbot-b_8xb2-90k_coco'),
        ('semantic', 'foundation/upernet_lingbot-b_8xb2-160k_ade20k-512x512'),
    ):
        own = load_config(task, own=dict(classes=['cat']))
        recipe = Config.fromfile(CONFIGS / f'{name}.py')
        for _, step in nodes(
            [recipe.tta_pipeline, recipe.train_dataloader, recipe.test_dataloader]
        ):
            if task == 'semantic' and step.get('type') == 'LoadAnnotations':
                step.type = 'LoadClassMask'
        for part in ('tta_pipeline', 'val_cfg', 'visualizer'):
            assert own[part] == recipe[part]
        for loader in LOADERS:
            assert own[loader].dataset.pipeline == recipe[loader].dataset.pipeline
    assert scale_pixels([(100, 10**6), 51, 'x', None], 0.5) == [
        (50, 10**6),
        26,
        'x',
        None,
    ]


def test_void_by_name_and_by_number(data: Path) -> None:
    for void in (['none'], [0], Text('0'), Text('[none]')):
        cfg = load('semantic', data, void=void)
        assert cfg.train_dataloader.dataset.void == [0]
        assert cfg.train_dataloader.dataset.metainfo.classes[0] == 'background'
        assert (
            cfg.model.decode_head.num_classes
            == cfg.model.auxiliary_head.num_classes
            == 7
        )


def test_hooks_of_choice(data: Path) -> None:
    assert load('detection', data).custom_hooks == []
    stop, average = load('detection', data, patience=3, ema=True).custom_hooks
    assert stop.type == 'ResumableEarlyStoppingHook' and stop.patience == 3
    assert stop.min_delta <= 0.001  # the last digit of a score is progress
    assert stop.monitor == load('detection', data).default_hooks.checkpoint.save_best
    assert average.type == 'EMAHook'
    for minutes in (5, None):
        checkpoint = load(
            'detection', data, save_minutes=minutes
        ).default_hooks.checkpoint
        assert checkpoint.save_minutes == minutes
    assert load('instance', data).default_hooks.checkpoint.save_best == 'coco/segm_mAP'
    assert load('semantic', data).default_hooks.checkpoint.save_best == 'mIoU'


def test_without_weights_all_learn_alike(data: Path) -> None:
    cfg = load('detection', data, weights=None)
    assert cfg.model.backbone.init_cfg is None
    assert 'layer_decay' not in cfg.optim_wrapper.paramwise_cfg
    assert load('detection', data).optim_wrapper.paramwise_cfg.layer_decay == 0.7
    assert (
        load(
            'detection', data, backbone='large'
        ).optim_wrapper.paramwise_cfg.layer_decay
        == 0.8
    )


@pytest.mark.parametrize(
    'task, settings, says',
    [
        ('detection', dict(epoch=3), 'own.epoch: no such setting'),
        (
            'detection',
            dict(backbone='huge'),
            "own.backbone='huge': no such architecture",
        ),
        (
            'detection',
            dict(backbone='dinov3_base'),
            'own.weights: name the weights of dinov3_base',
        ),
        ('detection', dict(epochs=0), 'own.epochs must be an integer from 1 up, got 0'),
        ('detection', dict(classes=['cow']), 'classes cow are not in the labels of'),
        ('detection', dict(train=['a', 'b']), 'own.train='),
        (
            'semantic',
            dict(void=['car']),
            "own.void: 'car' is no class; there are none, background",
        ),
        (
            'semantic',
            dict(train=['a', 'b']),
            'no folders of images and masks of train; looked for a',
        ),
    ],
)
def test_wrong_settings_are_named(
    data: Path, task: str, settings: dict, says: str
) -> None:
    with pytest.raises(UsageError) as error:
        load(task, data, **settings)
    assert says in str(error.value)


def test_the_page_names_the_backbones_whose_positions_grow() -> None:
    found = set()
    for name in VIT_ARCHS.keys() - WORDS.keys():
        rope = find_arch(ViTArch, VIT_ARCHS, name).rope
        arch = dict(embed_dims=128, depth=1, num_heads=2)
        attention = RoPEViT(arch, rope=rope).blocks[0].attn
        if attention.rope is not None and attention.rope.is_scalable:
            found.add(name.split('_')[0])
    page = (CONFIGS.parent / 'docs' / 'evaluation.md').read_text()
    (named,) = re.findall(r'Of `own.backbone` positions of (.+) grow', page)
    assert {*re.findall(r'`(\w+)_`', named)} == found


def test_lines_of_a_copy_change_what_its_settings_give(
    data: Path, tmp_path: Path
) -> None:
    """As in a config with a `_base_`: parts are merged, or replaced by `_delete_`."""
    copied = tmp_path / 'copied.py'
    text = (
        (OWN / 'detection.py')
        .read_text()
        .replace("'data/own'", repr(str(data / 'coco')))
    )
    lines = [
        'train_cfg = dict(val_interval=7)',
        "default_hooks = dict(logger=dict(_delete_=True, type='LoggerHook'))",
        "custom_hooks = [dict(type='EMAHook')]",
    ]
    copied.write_text('\n'.join([text, *lines]))
    plain = load_config(str(copied))
    assert plain.train_cfg.val_interval == 7 and plain.own.epochs == 50
    assert plain.default_hooks.logger == dict(type='LoggerHook')
    assert plain.default_hooks.checkpoint.save_best == 'coco/bbox_mAP'
    assert plain.custom_hooks == [dict(type='EMAHook')]
    cfg = load_config(str(copied), ['own.epochs=100', 'model.backbone.with_cp=True'])
    assert cfg.train_cfg.val_interval == 7 and cfg.model.backbone.with_cp
    assert cfg.train_cfg.max_iters == 2 * plain.train_cfg.max_iters
    assert (cfg.filename, cfg.work_dir) == (str(copied), 'work_dirs/copied')


def test_a_copy_may_have_a_base_of_its_own(data: Path, tmp_path: Path) -> None:
    text = (
        (OWN / 'detection.py')
        .read_text()
        .replace("'data/own'", repr(str(data / 'coco')))
    )
    (tmp_path / 'mine.py').write_text(f'{text}\ntrain_cfg = dict(val_interval=7)\n')
    copied = tmp_path / 'copied.py'
    copied.write_text(
        "_base_ = './mine.py'\nown = dict(epochs=9)\nmodel = dict(num_queries=8)\n"
    )
    for cfg in (
        load_config(str(copied)),
        load_config(str(copied), ['own.batch_size=3']),
    ):
        assert (cfg.own.epochs, cfg.train_cfg.val_interval, cfg.model.num_queries) == (
            9,
            7,
            8,
        )
    assert cfg.train_cfg.max_iters == 9 * 2


def test_settings_of_a_dumped_config_are_fixed(data: Path, tmp_path: Path) -> None:
    load('detection', data).dump(tmp_path / 'dumped.py')
    with pytest.raises(
        UsageError, match=r'own\.epochs: this config computes nothing from it'
    ):
        load_config(str(tmp_path / 'dumped.py'), ['own.epochs=3'])


def test_a_semantic_model_trains(data: Path) -> None:
    """Small, on one batch of its own pipeline: finite losses of both heads."""
    cfg = load('semantic', data, size=64, weights=None, batch_size=2)
    cfg.model.backbone.arch = dict(embed_dims=32, depth=4, num_heads=2)
    cfg.model.backbone.out_indices = (0, 1, 2, 3)
    cfg.model.neck.embed_dim = cfg.model.decode_head.channels = 32
    cfg.model.decode_head.in_channels, cfg.model.auxiliary_head.in_channels = (
        [32] * 4,
        32,
    )
    cfg.train_dataloader.num_workers, cfg.train_dataloader.persistent_workers = 0, False
    model = random_model(cfg).train()
    with DefaultScope.overwrite_default_scope('mmseg'):
        batch = next(iter(Runner.build_dataloader(cfg.train_dataloader, seed=0)))
    losses = model(**model.data_preprocessor(batch, training=True), mode='loss')
    assert losses['decode.loss_ce'].isfinite() and losses['aux.loss_ce'].isfinite()
