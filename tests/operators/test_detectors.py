"""Whole detectors have the same losses, gradients and predictions with either operators."""

from __future__ import annotations

import mmcv.ops.multi_scale_deform_attn as attention
import pytest
from torch import Tensor, nn

from helpers.exported import strong
from helpers.operators import assert_same, compiled_operators, results, use_pytorch
from helpers.stock_heads import SMALL, batch, load, small

RCNN = 'mask-rcnn_vit-b_rope-mixed_8xb8-184k_coco'
pytestmark = pytest.mark.usefixtures('surroundings')


CASES = {
    'Faster R-CNN': RCNN,
    'Mask R-CNN': RCNN,
    'Cascade R-CNN': f'cascade-{RCNN}',
    'RetinaNet': 'retinanet_swin-t_rope-mixed_8xb2-12e_coco',
    'DDQ': 'ddq-detr-4scale_swin-t_rope-mixed_8xb2-12e_coco',  # a subclass of DINO
    'Mask2Former': 'mask2former_swin-t_rope-mixed_8xb2-lsj-50e_coco-instance',
}


def build(case: str) -> nn.Module:
    """A small detector; Faster R-CNN is Mask R-CNN without masks, and with soft NMS."""
    cfg, overrides = load(CASES[case]), SMALL[CASES[case]]
    if case == 'Faster R-CNN':
        cfg.model.type = 'FasterRCNN'
        del cfg.model.roi_head.mask_head, cfg.model.roi_head.mask_roi_extractor
        cfg.model.test_cfg.rcnn.nms = dict(
            type='soft_nms', iou_threshold=0.5, min_score=0.05
        )
        overrides = {
            key: value for key, value in overrides.items() if '.mask_' not in key
        }
    return strong(small(cfg, overrides))


def attend_as_on_a_gpu(
    value: Tensor, sizes: Tensor, points: Tensor, weights: Tensor
) -> Tensor:
    """Deformable attention by the operator, which mmcv does not call on a CPU."""
    return attention.MultiScaleDeformableAttnFunction.apply(
        value, sizes, sizes, points, weights, 64
    )


@pytest.mark.parametrize('case', CASES)
def test_results_do_not_depend_on_the_operators(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_operators()
    model, data = build(case), batch('mmdet')
    expected = results(model, data)
    use_pytorch(monkeypatch)
    monkeypatch.setattr(
        attention, 'multi_scale_deformable_attn_pytorch', attend_as_on_a_gpu
    )
    actual = results(model, data)
    assert len(expected['scores of 0']) > 3
    assert_same(actual, expected)
