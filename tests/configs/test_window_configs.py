"""The configs of DINO-Swin with larger windows: configs/dino_swin/windows."""

import copy

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

from helpers.grid import CONFIGS, Leaf, read

FOLDER = CONFIGS / 'dino_swin' / 'windows'
LEAVES = [
    (size, variant, window)
    for size in 'tsb'
    for variant in ('rope-mixed', 'rpb')
    for window in (12, 14)
]
every_leaf = pytest.mark.parametrize('size, variant, window', LEAVES)


def load(size: str, variant: str, window: int) -> Config:
    cfg = read(FOLDER / f'dino_swin-{size}_{variant}_window{window}_8xb2-90k_coco.py')
    return copy.deepcopy(cfg)


def test_each_leaf_is_there_and_in_the_table() -> None:
    files = {path.name for path in FOLDER.glob('*.py')}
    assert len(files) == len(LEAVES) == 12
    table = (FOLDER / 'README.md').read_text()
    assert all(f']({name})' in table for name in files)
    assert all(len(path.read_text().splitlines()) <= 8 for path in FOLDER.glob('*.py'))


@every_leaf
def test_a_leaf_differs_in_its_window_only(size: str, variant: str, window: int) -> None:
    cfg, parent = load(size, variant, window), Leaf('dino_swin', size, variant).load()
    backbone = cfg.model.backbone
    assert (backbone.pop('window_size'), parent.model.backbone.pop('window_size')) == (window, 7)
    assert backbone.pop('pretrain_window_size', 7) == (window if variant == 'rpb' else 7)
    assert cfg.model == parent.model and cfg.optim_wrapper == parent.optim_wrapper
    assert cfg.param_scheduler == parent.param_scheduler and cfg.train_cfg == parent.train_cfg


@every_leaf
def test_a_leaf_builds_and_runs(size: str, variant: str, window: int) -> None:
    cfg = load(size, variant, window)
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        model = MODELS.build(cfg.model)
    tables = [p for name, p in model.named_parameters() if name.endswith('bias_table')]
    assert {len(table) for table in tables} == (
        {(2 * window - 1) ** 2} if variant == 'rpb' else set()
    )
    arch = dict(embed_dims=16, depths=(2, 2, 2, 2), num_heads=(1, 2, 4, 8))
    backbone = MODELS.build(dict(cfg.model.backbone, arch=arch, init_cfg=None)).eval()
    with torch.no_grad():
        maps = backbone(torch.randn(1, 3, 120, 136))
    assert [list(x.shape) for x in maps] == [[1, 32, 15, 17], [1, 64, 8, 9], [1, 128, 4, 5]]
