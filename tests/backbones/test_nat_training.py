"""RoPENAT as the backbone of UperNet learns generated shapes from scratch: the loss falls by half.

An architecture with its depths, dilations and heads, of 8 channels each: that takes seconds.
"""

import copy

import numpy as np
import pytest
import torch
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, init_default_scope
from mmengine.structures import PixelData
from torch import Tensor

from helpers.grid import CONFIGS, read
from rope_dense.backbones import RoPENAT
from rope_dense.data.generated.shapes import make_scene, render

LOG_AXIAL = dict(type='LogAxialRoPE', k_rope=2)
POSITIONS = {  # of the smallest architecture of each family
    'nat_mini': dict(rope=LOG_AXIAL, attention=None),
    'dinat_s_tiny': dict(rope=None, attention=dict(type='TableBias')),
}
SIDE, STEPS = 64, 25


def pictures(number: int) -> tuple[Tensor, Tensor]:
    """Images [B, 3, SIDE, SIDE] of uint8 and their labels [B, SIDE, SIDE], 0 for the background."""
    images, labels = [], torch.zeros(number, SIDE, SIDE, dtype=torch.int64)
    for index in range(number):
        scene = make_scene(0, 'train', index)
        image, visible = render(scene, SIDE, SIDE)
        images.append(torch.from_numpy(image).permute(2, 0, 1))
        for shape, mask in zip(scene.shapes, visible, strict=True):
            labels[index][torch.from_numpy(mask)] = shape.label + 1
    return torch.stack(images), labels


@pytest.mark.slow
@pytest.mark.parametrize('arch', POSITIONS)
def test_the_loss_falls_by_half(arch: str) -> None:
    from mmseg.structures import SegDataSample

    cfg = copy.deepcopy(
        read(CONFIGS / 'nat' / 'upernet_nat-mini_rpb_8xb2-160k_ade20k-512x512.py')
    )
    init_default_scope(cfg.default_scope)
    settings = RoPENAT.ARCHS[arch]
    channels = 8 * settings['num_heads'][0]
    cfg.model.backbone = dict(
        type='RoPENAT',
        arch=dict(settings, embed_dims=channels),
        drop_path_rate=0.0,
        **POSITIONS[arch],
    )
    cfg.model.data_preprocessor.size = (SIDE, SIDE)
    widths = [channels * 2**stage for stage in range(4)]
    cfg.model.decode_head.update(
        in_channels=widths, channels=32, num_classes=7, dropout_ratio=0.0
    )
    cfg.model.auxiliary_head.update(in_channels=widths[2], channels=16, num_classes=7)
    model = revert_sync_batchnorm(MODELS.build(cfg.model)).train()
    images, labels = pictures(4)
    samples = [
        SegDataSample(gt_sem_seg=PixelData(data=label[None])) for label in labels
    ]
    batch = dict(inputs=list(images), data_samples=samples)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    losses = []
    for _ in range(STEPS):
        data = model.data_preprocessor(batch, training=True)
        loss, _ = model.parse_losses(model(**data, mode='loss'))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-3:]) < 0.5 * losses[0], losses
