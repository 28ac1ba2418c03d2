"""EoMT's and PMT's recipes on generated shapes, shrunk: training, validation, TTA and a sweep."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from test_eomt_checkpoints import in_the_authors_names, save

from helpers.eomt import (
    SMALL_BACKBONE,
    SMALL_ENCODER,
    SMALL_HEAD,
    SMALL_PMT,
    TASKS,
    build_model,
    theirs,
)
from helpers.eomt_recipes import load
from helpers.small_configs import make_data
from rope_dense.backbones import RoPEViT
from rope_dense.data.generated import METAINFO, SEGMENTATION_METAINFO
from rope_dense.models.eomt.annealing import MaskAnnealingHook
from rope_dense.models.eomt.detector import class_weights
from rope_dense_command import command

SIDE = 64


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('shapes'))


def shrunk(task: str, data: Path, folder: Path, kind: str = 'eomt') -> Config:
    """Two iterations of a recipe at 64 x 64 pixels, annealed between them."""
    cfg = load(TASKS[task])
    classes = 7 if task == 'semantic' else 6
    head = 'decode_head' if task == 'semantic' else 'panoptic_head'
    points = 'decode_head.train_cfg' if task == 'semantic' else 'train_cfg'
    pipeline = 'train_dataloader.dataset.pipeline'
    root = data / ('ade' if task == 'semantic' else 'coco')
    loaders = [f'{name}_dataloader' for name in ('train', 'val', 'test')]
    options = {
        'model.backbone': dict(
            SMALL_BACKBONE if kind == 'eomt' else SMALL_ENCODER, _delete_=True
        ),
        f'model.{head}.loss_cls.class_weight': [1.0] * classes + [0.1],
        f'model.{points}.num_points': 64,
        'train_cfg.max_iters': 2,
        'train_cfg.val_interval': 2,
        'optim_wrapper.paramwise_cfg': dict(_delete_=True, lr_mult={'backbone': 1.0}),
        'param_scheduler.0.warmup': 0,
        'param_scheduler.0.backbone_warmup': 0,
        'param_scheduler.0.end': 3,
        'custom_hooks.0.start': [0, 0],
        'custom_hooks.0.end': [1, 2],
        'default_hooks.checkpoint.interval': 2,
        'work_dir': str(folder / 'run'),
    }
    settings = SMALL_HEAD if kind == 'eomt' else SMALL_PMT
    options |= {f'model.{head}.{key}': value for key, value in settings.items()}
    options |= {f'{loader}.num_workers': 0 for loader in loaders}
    options |= {f'{loader}.persistent_workers': False for loader in loaders}
    options |= {f'{loader}.dataset.data_root': str(root) for loader in loaders}
    metainfo = SEGMENTATION_METAINFO if task == 'semantic' else METAINFO
    options |= {f'{loader}.dataset.metainfo': dict(metainfo) for loader in loaders}
    if task == 'semantic':
        options |= {f'{loader}.dataset.type': 'BaseSegDataset' for loader in loaders}
        options |= {f'{loader}.dataset.reduce_zero_label': True for loader in loaders}
        options |= {f'{loader}.dataset.img_suffix': '.jpg' for loader in loaders}
        options |= {f'{loader}.dataset.seg_map_suffix': '.png' for loader in loaders}
        options |= {
            'model.decode_head.num_classes': classes,
            'model.data_preprocessor.size': (SIDE, SIDE),
            'model.test_cfg.crop_size': (SIDE, SIDE),
            f'{pipeline}.4.scale': (SIDE, SIDE),
            f'{pipeline}.5.crop_size': (SIDE, SIDE),
            f'{pipeline}.6.size': (SIDE, SIDE),
            'val_dataloader.dataset.pipeline.1.scale': SIDE,
            'test_dataloader.dataset.pipeline.1.scale': SIDE,
            **{
                f'tta_pipeline.1.transforms.0.{i}.scale': SIDE + 16 * i
                for i in range(4)
            },
        }
    else:
        annotations = str(root / 'annotations' / 'instances_val2017.json')
        options |= {
            'model.panoptic_head.num_things_classes': classes,
            'model.panoptic_fusion_head.num_things_classes': classes,
            'model.test_cfg.max_per_image': 10,
            f'{pipeline}.3.scale': (SIDE, SIDE),
            f'{pipeline}.3.ratio_range': (0.8, 1.5),
            f'{pipeline}.4.crop_size': (SIDE, SIDE),
            f'{pipeline}.6.size': (SIDE, SIDE),
            'val_dataloader.dataset.pipeline.1.scale': (SIDE, SIDE),
            'test_dataloader.dataset.pipeline.1.scale': (SIDE, SIDE),
            'val_evaluator.ann_file': annotations,
            'test_evaluator.ann_file': annotations,
        }
    cfg.merge_from_dict(options)
    return cfg


@pytest.mark.parametrize(
    'task, kind',
    [
        pytest.param('semantic', 'eomt', marks=pytest.mark.slow),
        pytest.param('semantic', 'pmt', marks=pytest.mark.slow),
        ('instance', 'eomt'),
        ('instance', 'pmt'),
    ],
)
def test_a_recipe_trains_and_validates(
    task: str, kind: str, data: Path, tmp_path: Path
) -> None:
    cfg = shrunk(task, data, tmp_path, kind)
    cfg.dump(tmp_path / 'config.py')
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        runner = Runner.from_cfg(cfg)
        runner.train()
    scalars = runner.message_hub.log_scalars
    assert np.isfinite(scalars['train/loss'].data[0]).all()
    assert [scalars[f'train/mask_prob_{block}'].data[0][-1] for block in (0, 1)] == [
        0,
        pytest.approx(0.5**0.9),
    ]
    checkpoint = torch.load(tmp_path / 'run' / 'iter_2.pth', weights_only=False)
    assert not any('mask_probs' in key for key in checkpoint['state_dict'])
    if task == 'semantic':
        results = tmp_path / 'results'
        sweep = command('eval_resolutions')
        arguments = [
            '--sizes',
            '64',
            '128',
            '--scaling',
            'none',
            'by_parts',
            '--slide',
            'scale',
        ]
        files = [str(tmp_path / 'config.py'), str(tmp_path / 'run' / 'iter_2.pth')]
        assert not sweep([*files, *arguments, '--work-dir', str(results)])
        test = command('test')
        assert not test([*files, '--tta', '--work-dir', str(results)])


def test_an_annealing_of_other_blocks_is_named() -> None:
    hook = MaskAnnealingHook(start=[0], end=[1])
    with pytest.raises(ValueError, match='start and end for 1 blocks, queries join'):
        hook.before_train(SimpleNamespace(model=build_model('instance')))


def test_weights_of_classes_follow_their_number() -> None:
    assert class_weights([1.0] * 80 + [0.1], 3) == [1.0, 1.0, 1.0, 0.1]
    assert class_weights([2.0, 1.0, 0.1], 2) == [2.0, 1.0, 0.1]


def test_a_converted_file_is_what_the_model_loads(tmp_path: Path) -> None:
    model = build_model('instance')
    arch = dict(
        RoPEViT.ARCHS['dinov3_base'], embed_dims=32, depth=4, num_heads=2, qkv_bias='qv'
    )
    cfg = load(TASKS['instance'])
    cfg.model.backbone = dict(type='RoPEViT', arch=arch)
    cfg.model.panoptic_head.update(SMALL_HEAD, num_things_classes=6)
    cfg.model.panoptic_fusion_head.num_things_classes = 6
    cfg.dump(tmp_path / 'config.py')
    published = theirs(num_queries=SMALL_HEAD['num_queries']).state_dict()
    source = save(in_the_authors_names(published), tmp_path, 'published.pth')
    convert = command('convert_checkpoint')
    assert not convert(
        [source, str(tmp_path / 'ours.pth'), '--config', str(tmp_path / 'config.py')]
    )
    weights = torch.load(tmp_path / 'ours.pth', weights_only=True)['state_dict']
    assert weights.keys() - model.state_dict().keys() == {
        key for key in weights if 'reg_token' in key or '_bias' in key
    }
    expected = published['query.weight']
    assert torch.equal(weights['panoptic_head.eomt.query.weight'], expected)
