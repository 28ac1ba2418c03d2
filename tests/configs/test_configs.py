"""What the configs of one experiment share: data loading, test-time augmentation, dumps."""

import re
from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config
from mmengine.registry import DATASETS, TRANSFORMS
from mmengine.runner import Runner

from helpers.grid import CONFIGS, FLAGSHIPS, Leaf, readme_options
from helpers.recipes import PAPER, SWIN_VARIANTS, TTA_SHORT_SIDES
from rope_dense.project.contents import trained_size

REFERENCES = [Leaf(experiment, size, 'rope-mixed') for experiment, size in PAPER]
every_size = pytest.mark.parametrize('leaf', REFERENCES, ids=lambda leaf: leaf.name)


def test_every_config_at_the_top_is_a_flagship() -> None:
    actual = {path.stem for path in CONFIGS.glob('*.py')}
    assert actual == {f'{experiment}_rope_mixed' for experiment in FLAGSHIPS}


def test_scalings_refer_to_the_size_of_the_training() -> None:
    """A type that is set at test finds the grid that the weights last saw."""
    found = 0
    for path in sorted(CONFIGS.glob('*/*.py')) + sorted(
        CONFIGS.glob('research/study/*.py')
    ):
        text = path.read_text()
        if not re.search('_rope|_ape|vit', path.stem) or path.parent.name in (
            'own',
            'detectron2',
        ):
            continue
        cfg = (
            Config.fromfile(path) if '_base_' in text or 'RoPEViT' in text else Config()
        )
        backbone = (cfg.get('model') or {}).get('backbone') or {}
        if grid := (backbone.get('rope_scaling') or {}).get('grid'):
            patch = 14 if 'eva02' in str(backbone.get('arch')) else 16
            sides = tuple(side // patch for side in trained_size(cfg))
            assert grid == sides or backbone.get('rope') == 'default', path.name
            found += 1
    assert found > 20


SIZES = {  # steps of a training's pipeline, height and width
    'crops': ([dict(scale=(2048, 512)), dict(crop_size=(416, 544))], (416, 544)),
    'width first': ([dict(scale=(160, 120)), dict(type='RandomFlip')], (120, 160)),
    'bounds': ([dict(scale=(600, 1000), keep_ratio=True)], (600, 1000)),
    'one of several': (
        [dict(transforms=[[dict(scales=[(480, 1333), (800, 1333)])]])],
        (1333, 800),
    ),
    'a range': ([dict(scale=[(1333, 640), (1333, 800)], keep_ratio=True)], (800, 1333)),
    'squares': ([dict(scales=[256, 512, 384])], (512, 512)),
    'shares': (
        [dict(scale=96), dict(crop_size=(0.3, 0.7), crop_type='relative_range')],
        (96, 96),
    ),
    'none': ([dict(scale=(0.1, 2.0))], (64, 48)),
}


@pytest.mark.parametrize('steps, size', SIZES.values(), ids=SIZES)
def test_the_size_that_weights_last_saw(
    steps: list[dict], size: tuple[int, int]
) -> None:
    """The tests' size does not matter: choose-scaling writes configs with others."""
    tested = dict(dataset=dict(pipeline=[dict(type='Resize', scale=(48, 64))]))
    train = dict(dataset=dict(type='Repeat', dataset=dict(pipeline=steps)))
    assert (
        trained_size(Config(dict(train_dataloader=train, test_dataloader=tested)))
        == size
    )
    assert trained_size(Config(dict(test_dataloader=tested))) == (64, 48)


@pytest.mark.parametrize('experiment', FLAGSHIPS)
def test_configs_survive_a_dump(experiment: str, tmp_path: Path) -> None:
    cfg = Config.fromfile(CONFIGS / f'{experiment}_rope_mixed.py')
    cfg.dump(tmp_path / 'dumped.py')
    assert Config.fromfile(tmp_path / 'dumped.py').to_dict() == cfg.to_dict()


@pytest.mark.parametrize('variant', SWIN_VARIANTS)
def test_mask2former_swin_b_on_crops_of_512(variant: str) -> None:
    """By the options of the README: the config of Swin-S becomes Swin-B's but for the crop."""
    small, large = (Leaf('mask2former_swin', size, variant) for size in 'sb')
    options = readme_options(large.path.parent / 'README.md', 'arch=base')
    checkpoint = 'model.backbone.init_cfg.checkpoint'
    if variant == 'rope-mixed':
        assert options[checkpoint] == large.weights
    options[checkpoint] = large.weights
    if large.weights is None:
        del options[checkpoint]
    other = Config.fromfile(small.path)
    other.merge_from_dict(options)
    assert other.model.backbone == large.load().model.backbone
    assert other.model.decode_head == large.load().model.decode_head
    for part in (
        'train_dataloader',
        'test_dataloader',
        'tta_pipeline',
        'optim_wrapper',
    ):
        assert other[part] == Config.fromfile(small.path)[part]
    assert other.model.data_preprocessor == small.load().model.data_preprocessor


def mini(leaf: Leaf, shared_data: Path) -> Config:
    """The config on the miniature of its data set."""
    cfg = leaf.load()
    folder = shared_data / (
        'coco_mini' if leaf.experiment.startswith('dino') else 'ade_mini'
    )
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.dataset.data_root = str(folder)
    return cfg


def test_detection_batches_and_empty_images(shared_data: Path) -> None:
    cfg = mini(Leaf('dino_vitdet', 'b', 'rope-mixed'), shared_data)
    loader = Runner.build_dataloader(cfg.train_dataloader, seed=0)
    assert all(
        len(loader.dataset.get_data_info(i)['instances'])
        for i in range(len(loader.dataset))
    )
    batch = next(iter(loader))
    assert len(batch['inputs']) == 2
    wide = {
        sample.ori_shape[1] > sample.ori_shape[0] for sample in batch['data_samples']
    }
    assert len(wide) == 1  # grouped by aspect ratio


def test_detection_images_take_many_sizes(shared_data: Path) -> None:
    cfg = mini(Leaf('dino_swin', 't', 'rope-mixed'), shared_data)
    train = DATASETS.build(cfg.train_dataloader.dataset)
    sizes = {
        tuple(train[index % len(train)]['inputs'].shape[1:]) for index in range(12)
    }
    assert all(480 <= min(size) <= 800 and max(size) <= 1333 for size in sizes)
    assert len(sizes) > 6


@pytest.mark.parametrize('size, crop', [('s', 512), ('b', 640)])
def test_mask2former_pads_small_crops_with_grey_and_ignore(
    size: str, crop: int
) -> None:
    cfg = Leaf('mask2former_swin', size, 'rope-mixed').load()
    pad = TRANSFORMS.build(cfg.train_dataloader.dataset.pipeline[6])
    image, labels = np.zeros((300, crop, 3), np.uint8), np.zeros((300, crop), np.uint8)
    out = pad(dict(img=image, gt_seg_map=labels, seg_fields=['gt_seg_map']))
    assert out['img'].shape == (crop, crop, 3)
    assert (out['img'][300:] == 128).all() and (out['img'][:300] == 0).all()
    assert (out['gt_seg_map'][300:] == 255).all() and (
        out['gt_seg_map'][:300] == 0
    ).all()


@every_size
def test_augmented_views_have_the_recipe_s_sizes(leaf: Leaf, shared_data: Path) -> None:
    cfg = mini(leaf, shared_data)
    dataset = cfg.val_dataloader.dataset
    dataset.pipeline = cfg.tta_pipeline
    views = DATASETS.build(dataset)[0]
    sides = [min(image.shape[1:]) for image in views['inputs']]
    expected = TTA_SHORT_SIDES.get(leaf.recipe) or TTA_SHORT_SIDES[leaf.experiment]
    assert sides == [side for side in expected for _ in range(2)]
    assert [sample.flip for sample in views['data_samples']] == [False, True] * (
        len(sides) // 2
    )
