"""The linear recipe on a frozen random backbone, shrunk, with the training tool: it learns, and the
backbone stays as it was."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config

from helpers.foundation import FOLDER
from helpers.small_configs import make_data
from rope_dense.backbones import RoPEViT
from rope_dense.data.generated import SEGMENTATION_METAINFO
from rope_dense_command import command

pytestmark = pytest.mark.usefixtures('surroundings')

# With DINOv3's first LayerScale, blocks do nearly nothing.
ARCH = dict(
    RoPEViT.ARCHS['dinov3_base'],
    embed_dims=128,
    depth=2,
    num_heads=2,
    layer_scale_init_value=1.0,
)
ITERATIONS, SIZE = 40, (128, 192)  # height, width
RUN = {
    'train_cfg.max_iters': ITERATIONS,
    'default_hooks.checkpoint.interval': ITERATIONS,
    'default_hooks.logger.interval': 1,
    'log_processor.window_size': 1,
    'optim_wrapper.optimizer.lr': 1e-2,  # for 40 iterations instead of 40000
    'param_scheduler.0.end': 5,
    'param_scheduler.1.T_max': ITERATIONS,
    'param_scheduler.1.end': ITERATIONS,
    'model.data_preprocessor.size': SIZE,
    'model.decode_head.in_channels': 128,
    'train_dataloader.num_workers': 0,
    # Of so few images no augmentation, or there is little to learn in so short a time.
    'train_dataloader.dataset.pipeline': [
        dict(type='LoadImageFromFile'),
        dict(type='LoadAnnotations'),
        dict(type='Resize', scale=SIZE[::-1], keep_ratio=False),
        dict(type='PackSegInputs'),
    ],
}
# Training alone.
NOT_RUN = [
    f'{loop}_{part}'
    for loop in ('val', 'test')
    for part in ('cfg', 'dataloader', 'evaluator')
]


@pytest.fixture
def shapes(tmp_path: Path) -> dict:
    """The data set of generated shapes, and a head for it."""
    return {
        'train_dataloader.dataset.type': 'BaseSegDataset',
        'train_dataloader.dataset.data_root': str(
            make_data(tmp_path / 'shapes') / 'ade'
        ),
        'train_dataloader.dataset.metainfo': dict(SEGMENTATION_METAINFO),
        'train_dataloader.dataset.reduce_zero_label': True,
        'model.decode_head.num_classes': 7,
    }


def test_the_head_learns_and_the_backbone_stays(shapes: dict, tmp_path: Path) -> None:
    before = RoPEViT(ARCH).state_dict()
    torch.save(before, tmp_path / 'backbone.pth')
    cfg = Config.fromfile(FOLDER / 'linear_dinov3-b_8xb2-40k_ade20k-512x512.py')
    cfg.merge_from_dict(RUN | shapes | dict.fromkeys(NOT_RUN))
    cfg.model.backbone.update(arch=ARCH)
    cfg.model.backbone.init_cfg.checkpoint = str(tmp_path / 'backbone.pth')
    # mmengine keeps loggers and visualizers by name.
    cfg.merge_from_dict(
        {'experiment_name': 'linear_shapes', 'visualizer.name': 'linear_shapes'}
    )
    cfg.dump(tmp_path / 'config.py')
    main, work_dir = command('train'), tmp_path / 'work'
    assert main([str(tmp_path / 'config.py'), '--work-dir', str(work_dir)]) == 0

    losses = logged_losses(work_dir)
    assert len(losses) == ITERATIONS and np.isfinite(losses).all()
    assert np.mean(losses[-3:]) < np.mean(losses[:3]) / 2
    saved = torch.load(work_dir / f'iter_{ITERATIONS}.pth', weights_only=False)[
        'state_dict'
    ]
    after = {
        key[9:]: value for key, value in saved.items() if key.startswith('backbone.')
    }
    assert after.keys() == before.keys()
    assert all(torch.equal(after[key], before[key]) for key in before)


def logged_losses(work_dir: Path) -> list[float]:
    (log,) = work_dir.glob('*/vis_data/scalars.json')
    records = [json.loads(line) for line in log.read_text().splitlines()]
    return [record['loss'] for record in records if 'loss' in record]
