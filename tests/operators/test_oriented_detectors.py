"""Oriented detectors have the same losses, gradients and predictions with either operators."""

from __future__ import annotations

import sys

import pytest

from helpers.exported import strong
from helpers.operators import (
    assert_same,
    compiled_operators,
    results,
    untied,
    use_pytorch,
)
from helpers.oriented import batch, load, small


@pytest.mark.parametrize('method', ['oriented-rcnn', 'rotated-retinanet'])
@pytest.mark.usefixtures('surroundings')
def test_results_do_not_depend_on_the_operators(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nms_rotated = compiled_operators().nms_rotated
    monkeypatch.setattr(
        sys.modules['mmcv.ops.nms'].ext_module,
        'nms_rotated',
        lambda boxes, scores, *others: nms_rotated(boxes, untied(scores), *others),
    )
    name = f'{method}_swin-t_rope-mixed_1xb2-12e_dota'
    cfg, data = load(name), batch()
    if method == 'rotated-retinanet':
        cfg.model.test_cfg.nms_pre = 100  # compiled operators are slow
    model = strong(small(cfg, name))
    expected = results(model, data)
    use_pytorch(monkeypatch)
    assert len(expected['scores of 0']) > 3
    assert_same(results(model, data), expected)
