"""mmrotate's detectors on our backbones, against its own Swin with the same weights."""

import copy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from mmdet.models.backbones.swin import SwinTransformer, swin_converter
from mmengine.registry import MODELS
from torch import nn

from helpers.oriented import SWIN, batch, load, small
from rope_dense.models import mmrotate as integration
from rope_dense.models.mmrotate import NEEDED

ROOT = Path(__file__).resolve().parents[2]
NAMES = tuple(
    f'{head}_swin-t_rope-mixed_1xb2-12e_dota'
    for head in ('oriented-rcnn', 'rotated-retinanet')
)


def pair(name: str) -> tuple[nn.Module, nn.Module]:
    """The detector on our Swin with a bias table and on mmdet's, with the same weights."""
    cfg = load(name)
    cfg.model.backbone.update(rope=None, attention=dict(type='TableBias'))
    ours = small(cfg, name)
    with torch.no_grad():
        for param in ours.parameters():
            param.add_(torch.randn_like(param) * 0.02)
    theirs = copy.deepcopy(ours)
    indices = tuple(cfg.model.backbone.out_indices)
    theirs.backbone = SwinTransformer(
        **SWIN, window_size=7, drop_path_rate=0.0, out_indices=indices
    )
    weights = {
        key.removeprefix('backbone.'): value
        for key, value in swin_converter(ours.backbone.state_dict()).items()
    }
    loaded = theirs.backbone.load_state_dict(weights, strict=False)
    assert {key.rpartition('.')[2] for key in loaded.missing_keys} == {
        'relative_position_index'
    }
    assert not loaded.unexpected_keys
    return ours, theirs


@pytest.mark.parametrize('name', NAMES)
def test_losses_and_boxes_equal_those_on_mmdet_s_swin(name: str) -> None:
    """As it trains (the same proposals are drawn) and as it predicts."""
    results = []
    for model in pair(name):
        torch.manual_seed(3)
        data = model.data_preprocessor(batch(), training=True)
        losses = model.train()(**data, mode='loss')
        total, logged = model.parse_losses(losses)
        total.backward()
        gradient = model.neck.lateral_convs[0].conv.weight.grad
        with torch.no_grad():
            found = model.eval()(**model.data_preprocessor(batch()), mode='predict')
        boxes = [x.pred_instances for x in found]
        results.append((logged, gradient, boxes))
    (logged, gradient, boxes), (expected, expected_gradient, expected_boxes) = results
    assert logged.keys() == expected.keys() and len(logged) > 2
    for key, value in logged.items():
        torch.testing.assert_close(value, expected[key], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-4, atol=1e-5)
    assert sum(map(len, boxes)) > 0
    for one, other in zip(boxes, expected_boxes, strict=True):
        assert values(one.bboxes).shape[1] == 5
        torch.testing.assert_close(one.scores, other.scores, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(
            values(one.bboxes), values(other.bboxes), rtol=1e-5, atol=1e-3
        )


def values(boxes: object) -> torch.Tensor:
    return getattr(boxes, 'tensor', boxes)


def test_nothing_is_taken_for_torchvision() -> None:
    assert 'torchvision' not in sys.modules or find_spec('torchvision')
    assert MODELS.get('mmrotate.H2RBoxV2Detector') is not None


def test_h2rbox_says_what_it_needs() -> None:
    if find_spec('torchvision'):
        pytest.skip('torchvision is installed')
    from mmrotate.models.detectors.h2rbox_v2 import transforms

    with pytest.raises(ImportError, match='needs torchvision, which is not installed'):
        _ = transforms.functional


@pytest.mark.parametrize('package', ['mmrotate', 'faster_coco_eval'])
def test_a_missing_package_is_one_line(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        integration,
        'find_spec',
        lambda name: None if name == package else find_spec(name),
    )
    with pytest.raises(
        ImportError, match=rf'^oriented boxes need .*{NEEDED[package]}.*\]\)$'
    ):
        integration.import_mmrotate()


@pytest.mark.slow
def test_rope_dense_alone_imports_no_mmrotate() -> None:
    code = 'import sys, rope_dense; print("mmrotate" in sys.modules)'
    done = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stdout.strip() == 'False', done.stderr
