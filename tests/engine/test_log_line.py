"""Lines that a training writes, and the values that its file has."""

import math
from types import SimpleNamespace

import pytest
from mmengine.logging import MessageHub

from rope_dense.engine.progress_hook import (
    ShortLogProcessor,
    figures_line_text,
    figures_table_text,
)

MAIN = [
    'loss',
    'loss_mal',
    'loss_bbox',
    'decode.loss_ce',
    'aux.loss_ce',
    'decode.acc_seg',
]
OF_LAYERS = [
    'd0.loss_mal',
    'dn_d3.loss_bbox',
    'dn_pre.loss_giou',
    'pre.loss_mal',
    'enc.loss_mal',
]
OF_LAYERS += ['enc_loss_cls', 'dn_loss_cls', 'd1.dn_loss_iou', 'decode.d7.loss_mask']


@pytest.mark.parametrize('names', [MAIN, MAIN + OF_LAYERS])
def test_losses_of_layers_are_in_the_file_alone(names: list[str]) -> None:
    hub = MessageHub(f'log_line_{len(names)}')
    for name in (*names, 'lr', 'time', 'data_time'):
        hub.update_scalar(f'train/{name}', 0.25)
    hub.update_info('eta', 60)
    runner = SimpleNamespace(
        iter=9, max_iters=90, _train_loop=object(), message_hub=hub
    )
    processor = ShortLogProcessor(window_size=10, by_epoch=False)
    values, line = processor.get_log_after_iter(runner, 9, 'train')
    assert {*names, 'lr', 'time'} <= values.keys()
    shown = [item.partition(':')[0] for item in line.split('  ')]
    assert [name for name in names if name in shown] == MAIN
    assert 'eta: 0:01:00' in line and 'lr: 2.5000e-01' in line
    assert ('(and 9 losses in scalars.json)' in line) == (names != MAIN)


def test_figures_of_an_evaluation() -> None:
    metrics = {
        'coco/bbox_mAP': 0.4123,
        'coco/bbox_mAP_50': 0.6,
        'coco/bbox_mAP_l': -1.0,
    }
    assert figures_line_text('epoch 3', metrics, True) == (
        'epoch 3: boxes  mAP 0.412  AP50 0.600  large -  (best so far)'
    )
    metrics |= {'coco/segm_mAP': 0.3, 'coco/traffic light_precision': 0.5}
    lines = figures_line_text('iteration 7', metrics, False).splitlines()
    assert lines[1:] == ['iteration 7: masks  mAP 0.300']
    cells = [line.split() for line in figures_table_text(metrics).splitlines()]
    assert cells == [
        ['mAP', 'AP50', 'large'],
        ['boxes', '0.412', '0.600', '-'],
        ['masks', '0.300'],
    ]
    assert figures_line_text(
        'epoch 1', dict(aAcc=81.2, mIoU=math.nan, classes=['a']), False
    ) == ('epoch 1: aAcc 81.20  mIoU -')
    assert (
        figures_line_text('epoch 1', {}, False)
        == 'epoch 1: no figures (the log file says why)'
    )
