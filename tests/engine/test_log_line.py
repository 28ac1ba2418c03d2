"""Lines that a training writes, and the values that its file has."""

import json
import logging
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from mmengine.evaluator import Evaluator
from mmengine.logging import MessageHub

from rope_dense.engine.progress_hook import (
    ProgressHook,
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


@pytest.mark.parametrize('mode', ['val', 'test'])
def test_r22_zeros_where_no_box_is_found(mode: str, tmp_path: Path) -> None:
    """mmdet's metric has no figure then, and a training had no best checkpoint."""
    metrics = pytest.importorskip('mmdet.evaluation.metrics')
    box = dict(id=1, image_id=1, category_id=1, bbox=[1, 1, 9, 9], area=81, iscrowd=0)
    content = dict(
        images=[dict(id=1, file_name='a.png', height=20, width=20)],
        annotations=[box],
        categories=[dict(id=1, name='a')],
    )
    (tmp_path / 'a.json').write_text(json.dumps(content))
    metric = metrics.CocoMetric(str(tmp_path / 'a.json'))
    evaluator = Evaluator([metric])
    evaluator.dataset_meta = dict(classes=('a',))
    nothing = dict(
        bboxes=torch.zeros(0, 4),
        scores=torch.zeros(0),
        labels=torch.zeros(0, dtype=torch.long),
    )
    sample = dict(img_id=1, ori_shape=(20, 20), pred_instances=nothing)
    runner = SimpleNamespace(
        logger=logging.getLogger('none'),
        message_hub=MessageHub(f'no_box_{mode}'),
        **{f'{mode}_loop': SimpleNamespace(evaluator=evaluator)},
    )
    getattr(ProgressHook(), f'before_{mode}_epoch')(runner)
    metric.process({}, [sample])
    found = evaluator.evaluate(1)
    names = ('mAP', 'mAP_50', 'mAP_75', 'mAP_s', 'mAP_m', 'mAP_l')
    assert found == {f'coco/bbox_{name}': 0 for name in names}
    right = dict(
        bboxes=torch.tensor([[1.0, 1.0, 10.0, 10.0]]),
        scores=torch.ones(1),
        labels=torch.zeros(1, dtype=torch.long),
    )
    metric.process({}, [dict(sample, pred_instances=right)])
    assert evaluator.evaluate(1)['coco/bbox_mAP'] == 1
