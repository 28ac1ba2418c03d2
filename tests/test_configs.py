"""The flagship configs against the recipes that they reproduce, transcribed below."""

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.optim import build_optim_wrapper
from mmengine.registry import DATASETS, MODELS, PARAM_SCHEDULERS, TRANSFORMS, init_default_scope
from mmengine.runner import Runner
from recipes import GROUPS, RECIPES, SCHEDULES, TTA_SHORT_SIDES, WEIGHTS
from torch import nn

import rope_dense  # noqa: F401

CONFIGS = Path(__file__).parents[1] / 'configs'

KEYS = {
    *('auto_scale_lr', 'custom_imports', 'default_hooks', 'default_scope', 'env_cfg', 'load_from'),
    *('log_level', 'log_processor', 'model', 'optim_wrapper', 'param_scheduler', 'randomness'),
    *('resume', 'test_cfg', 'test_dataloader', 'test_evaluator', 'train_cfg', 'train_dataloader'),
    *('tta_model', 'tta_pipeline', 'val_cfg', 'val_dataloader', 'val_evaluator', 'visualizer'),
}
flagship = pytest.mark.parametrize('name', RECIPES)


def load(name: str) -> Config:
    """The config, in the scope that it asks for, with batches loaded in this process."""
    cfg = Config.fromfile(CONFIGS / f'{name}.py')
    init_default_scope(cfg.default_scope)
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.update(num_workers=0, persistent_workers=False)
    return cfg


def value(cfg: Config, path: str) -> object:
    for key in path.split('.'):
        cfg = cfg[int(key)] if key.isdigit() else cfg.get(key)
    return cfg


def build_offline(cfg: Config) -> nn.Module:
    """The whole model without storage: parameters have shapes but no values."""
    cfg.model.backbone.init_cfg = None
    with torch.device('meta'):
        return MODELS.build(cfg.model)


@flagship
def test_numbers_are_those_of_the_recipe(name: str) -> None:
    cfg = load(name)
    wrong = {
        path: value(cfg, path)
        for path, expected in RECIPES[name].items()
        if value(cfg, path) != expected
    }
    assert not wrong
    assert cfg.model.backbone.init_cfg.checkpoint == (
        f'https://huggingface.co/naver-ai/{WEIGHTS[name]}/resolve/main/pytorch_model.bin'
    )
    assert 'save_best' not in cfg.default_hooks.checkpoint  # the recipes report the last


def test_every_config_at_the_top_is_tested() -> None:
    assert {path.stem for path in CONFIGS.glob('*.py')} == set(RECIPES)


@flagship
def test_config_has_no_stray_keys_and_survives_a_dump(name: str, tmp_path: Path) -> None:
    cfg = load(name)
    assert set(cfg) == KEYS
    cfg.dump(tmp_path / 'dumped.py')
    assert Config.fromfile(tmp_path / 'dumped.py').to_dict() == cfg.to_dict()
    header = (CONFIGS / f'{name}.py').read_text()
    assert re.match(r'# .*\n(# .*\n)*# Where no source settles it', header)


@flagship
def test_every_parameter_has_its_learning_rate_and_decay(name: str) -> None:
    cfg = load(name)
    model = build_offline(cfg)
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    base = cfg.optim_wrapper.optimizer
    factors = {
        id(param): (group['lr'] / base.lr, group['weight_decay'] / base.weight_decay)
        for group in optimizer.param_groups
        for param in group['params']
    }
    used = set()
    for parameter, param in model.named_parameters():
        pattern = next((p for p in GROUPS[name] if re.match(p, parameter)), None)
        assert pattern, f'{parameter} is in no row of the table'
        assert factors[id(param)] == pytest.approx(GROUPS[name][pattern]), parameter
        used.add(pattern)
    assert used == set(GROUPS[name])


def learning_rate_factors(cfg: Config) -> Iterator[float]:
    """Factor of the learning rate in every iteration, from the config's schedulers."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedulers = [
        PARAM_SCHEDULERS.build(scheduler, default_args=dict(optimizer=optimizer))
        for scheduler in cfg.param_scheduler
    ]
    optimizer.step()
    for _ in range(cfg.train_cfg.max_iters):
        yield optimizer.param_groups[0]['lr']
        for scheduler in schedulers:
            scheduler.step()


@flagship
def test_learning_rate_follows_the_recipe(name: str) -> None:
    factors = list(learning_rate_factors(load(name)))
    expected = SCHEDULES[name]
    found = {iteration: factors[iteration] for iteration in expected}
    # mmengine's warm-up and polynomial end one iteration before the recipe's: 1 / 250 at most.
    assert found == pytest.approx(expected, rel=0.005, abs=3e-5)


def mini(name: str, shared_data: Path) -> Config:
    """The config on the miniature of its data set."""
    cfg = load(name)
    folder = shared_data / ('coco_mini' if name.startswith('dino') else 'ade_mini')
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.dataset.data_root = str(folder)
    if not name.startswith('dino'):  # the miniature of ADE20K has a validation part only
        cfg.train_dataloader.dataset.data_prefix = cfg.val_dataloader.dataset.data_prefix
    return cfg


@pytest.mark.parametrize('name', [n for n in RECIPES if n.startswith('dino')])
def test_detection_pipelines_on_real_images(name: str, shared_data: Path) -> None:
    cfg = mini(name, shared_data)
    np.random.seed(0)
    train = DATASETS.build(cfg.train_dataloader.dataset)
    sizes = {tuple(train[index % len(train)]['inputs'].shape[1:]) for index in range(12)}
    assert all(480 <= min(size) <= 800 and max(size) <= 1333 for size in sizes)
    assert len(sizes) > 6
    sample = DATASETS.build(cfg.val_dataloader.dataset)[0]
    height, width = sample['inputs'].shape[1:]
    assert min(height, width) == 800 or max(height, width) == 1333
    ratio = sample['data_samples'].ori_shape[0] / sample['data_samples'].ori_shape[1]
    assert height / width == pytest.approx(ratio, rel=0.01)


@pytest.mark.parametrize('name', [n for n in RECIPES if n.startswith('dino')])
def test_detection_batches_and_empty_images(name: str, shared_data: Path) -> None:
    cfg = mini(name, shared_data)
    loader = Runner.build_dataloader(cfg.train_dataloader, seed=0)
    assert all(
        len(loader.dataset.get_data_info(i)['instances']) for i in range(len(loader.dataset))
    )
    batch = next(iter(loader))
    assert len(batch['inputs']) == 2
    wide = {sample.ori_shape[1] > sample.ori_shape[0] for sample in batch['data_samples']}
    assert len(wide) == 1  # grouped by aspect ratio


@pytest.mark.parametrize('name', [n for n in RECIPES if not n.startswith('dino')])
def test_segmentation_pipelines_on_real_images(name: str, shared_data: Path) -> None:
    cfg = mini(name, shared_data)
    np.random.seed(0)
    train = DATASETS.build(cfg.train_dataloader.dataset)
    padded = name.startswith('mask2former')
    for index in range(6):
        sample = train[index % len(train)]
        size = tuple(sample['inputs'].shape[1:])
        assert size == (512, 512) if padded else max(size) <= 512
        labels = sample['data_samples'].gt_sem_seg.data
        assert tuple(labels.shape[1:]) == size
        assert set(labels.unique().tolist()) <= {*range(150), 255}
    sample = DATASETS.build(cfg.val_dataloader.dataset)[0]
    height, width = sample['inputs'].shape[1:]
    assert min(height, width) == 512 or max(height, width) == 2048
    assert sample['data_samples'].gt_sem_seg.shape == sample['data_samples'].ori_shape


def test_mask2former_pads_small_crops_with_grey_and_ignore() -> None:
    cfg = load('mask2former_swin_rope_mixed')
    pad = TRANSFORMS.build(cfg.train_dataloader.dataset.pipeline[6])
    image, labels = np.zeros((300, 512, 3), np.uint8), np.zeros((300, 512), np.uint8)
    out = pad(dict(img=image, gt_seg_map=labels, seg_fields=['gt_seg_map']))
    assert out['img'].shape == (512, 512, 3)
    assert (out['img'][300:] == 128).all() and (out['img'][:300] == 0).all()
    assert (out['gt_seg_map'][300:] == 255).all() and (out['gt_seg_map'][:300] == 0).all()


@flagship
def test_augmented_views_have_the_recipe_s_sizes(name: str, shared_data: Path) -> None:
    cfg = mini(name, shared_data)
    dataset = cfg.val_dataloader.dataset
    dataset.pipeline = cfg.tta_pipeline
    views = DATASETS.build(dataset)[0]
    sides = [min(image.shape[1:]) for image in views['inputs']]
    assert sides == [side for side in TTA_SHORT_SIDES[name] for _ in range(2)]
    assert [sample.flip for sample in views['data_samples']] == [False, True] * (len(sides) // 2)
