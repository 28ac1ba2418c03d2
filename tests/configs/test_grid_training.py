"""The smallest and the largest config of each folder, shrunk: loss, gradients, prediction."""

from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.dataset import pseudo_collate
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import DATASETS, MODELS, init_default_scope

from helpers.grid import Leaf
from helpers.small_configs import make_data, small_config

LEAVES = [
    Leaf('dino_vitdet', 'b', 'rope-axial'),
    Leaf('dino_vitdet', 'l', 'ape'),  # absolute and relative position
    Leaf('dino_swin', 't', 'rope-axial'),
    Leaf('dino_swin', 'b', 'rope-mixed-rpb'),
    Leaf('upernet_vit', 'b', 'rope-axial'),
    Leaf('upernet_vit', 'l', 'rope-mixed-ape'),
    Leaf('mask2former_swin', 's', 'rope-axial'),
    Leaf('mask2former_swin', 'b', 'rope-mixed-rpb'),
]

CASES = [  # every other one, so one of each experiment
    pytest.param(leaf, marks=pytest.mark.slow) if index % 2 else leaf
    for index, leaf in enumerate(LEAVES)
]


@pytest.fixture(scope='module')
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('data'))


@pytest.mark.parametrize('leaf', CASES, ids=lambda leaf: leaf.name)
def test_one_step_and_one_prediction(leaf: Leaf, images: Path, tmp_path: Path) -> None:
    flagship = f'{leaf.experiment}_rope_mixed'
    cfg = Config.fromfile(small_config(flagship, images, tmp_path, leaf.path))
    init_default_scope(cfg.default_scope)
    model = revert_sync_batchnorm(MODELS.build(cfg.model))
    model.init_weights()
    dataset = DATASETS.build(cfg.train_dataloader.dataset)
    batch = model.data_preprocessor(
        pseudo_collate([dataset[0], dataset[1]]), training=True
    )
    loss, parts = model.train().parse_losses(model(**batch, mode='loss'))
    assert loss.isfinite() and any(
        name.endswith('loss_cls') or 'ce' in name for name in parts
    )
    loss.backward()
    assert not [name for name, param in model.named_parameters() if param.grad is None]
    assert all(param.grad.isfinite().all() for param in model.parameters())
    test_image = DATASETS.build(cfg.val_dataloader.dataset)[0]
    with torch.no_grad():
        (result,) = model.eval().test_step(pseudo_collate([test_image]))
    if leaf.experiment.startswith('dino'):
        assert result.pred_instances.bboxes.shape == (10, 4)
    else:
        assert result.pred_sem_seg.shape == result.ori_shape
