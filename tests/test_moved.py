"""Configs of earlier versions: the names of modules and types that they have still work."""

from importlib import import_module
from pathlib import Path

import pytest
from mmengine.config import Config
from mmengine.registry import EVALUATOR, METRICS, MODELS, TRANSFORMS, Registry

from rope_dense.moved import MOVED, new_name

PAD = dict(
    type='rope_dense.datasets.transforms.PadBottomRight',
    size_divisor=32,
    _scope_='mmdet',
)


@pytest.mark.parametrize(
    'module, registry, part',
    [
        ('datasets.masks', TRANSFORMS, dict(type='LoadClassMask')),
        ('datasets.depth', TRANSFORMS, dict(type='RandomColourGain')),
        ('datasets.images.bands', TRANSFORMS, dict(type='IgnoreNoData')),
        (
            'datasets.images.deep',
            TRANSFORMS,
            dict(type='LoadDeepImage', max_value=4095),
        ),
        ('datasets.images.plug_ins', TRANSFORMS, dict(type='LoadImageFromFile')),
        ('datasets.unlabelled', METRICS, dict(type='FeatureMetric')),
        ('datasets.dense', TRANSFORMS, dict(type='PhotometricJitter')),
        ('datasets.photometric', TRANSFORMS, dict(type='PhotometricJitter')),
        ('large_images.dataset', TRANSFORMS, dict(type='LoadWindow')),
        ('large_images.evaluation', EVALUATOR, dict(type='TiledEvaluator', metrics=[])),
        ('models.depth_loss', MODELS, dict(type='BatchSiLogLoss')),
        ('datasets.transforms', TRANSFORMS, PAD),
    ],
)
def test_a_stored_config_loads_and_builds(
    module: str, registry: Registry, part: dict, tmp_path: Path
) -> None:
    """As mmengine writes it into the folder of a run."""
    written = dict(
        custom_imports=dict(imports=['rope_dense', f'rope_dense.{module}']), part=part
    )
    Config(written).dump(tmp_path / 'config.py')
    cfg = Config.fromfile(tmp_path / 'config.py')
    built = registry.build(cfg.part)
    assert type(built).__name__ == part['type'].rpartition('.')[2]


@pytest.mark.parametrize(
    'name', sorted(set(MOVED) - {'integrations', 'integrations.detectron2'})
)
def test_an_old_name_is_the_new_module(name: str) -> None:
    moved = import_module(f'rope_dense.{new_name(name)}')
    assert import_module(f'rope_dense.{name}') is moved
    assert moved.__name__ == moved.__spec__.name == f'rope_dense.{new_name(name)}'


def test_mmrotate_by_its_old_name() -> None:
    pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
    moved = import_module('rope_dense.models.mmrotate')
    assert import_module('rope_dense.integrations.mmrotate') is moved


def test_what_left_the_package_says_where_it_is() -> None:
    with pytest.raises(ImportError, match='research, in a clone beside rope_dense'):
        import_module('rope_dense.research')
