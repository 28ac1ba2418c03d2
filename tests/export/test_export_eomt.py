"""EoMT and PMT as files, beside what mmseg and mmdet predict with it."""

from pathlib import Path

import pytest
import torch
from mmengine.config import ConfigDict
from torch import Tensor, nn

from helpers.eomt import build_model
from helpers.exported import (
    assert_plain,
    assert_same,
    assert_segmented,
    pixels,
    run,
    session,
    sizes_from,
    strong,
)
from helpers.exported_models import eomt_segmentor
from rope_dense.export import export


@pytest.mark.slow
@torch.no_grad()
def test_segmentor(tmp_path: Path) -> None:
    model, path = eomt_segmentor(), tmp_path / 'eomt.onnx'
    metadata = export(model, path, classes=['a', 'b', 'c'])
    assert metadata['task'] == 'segmentation' and metadata['smallest_size'] == [16, 16]
    assert_plain(path)
    runtime = session(path)
    for batch, *size in sizes_from(metadata):
        image = pixels(batch, 3, *size)
        assert_segmented(model, run(runtime, image), image)


def predicted(model: nn.Module, image: Tensor) -> list[Tensor]:
    """What mmdet's head hands on to its fusion head, as probabilities."""
    data = model.data_preprocessor(dict(inputs=list(image)), False)
    samples = [ConfigDict(metainfo=dict(batch_input_shape=image.shape[2:]))]
    classes, masks = model.panoptic_head.predict(
        model.extract_feat(data['inputs']), samples
    )
    return [classes.softmax(-1), masks.sigmoid()]


@pytest.mark.slow
@torch.no_grad()
def test_detector(tmp_path: Path) -> None:
    model, path = strong(build_model('panoptic', 'pmt')), tmp_path / 'pmt.onnx'
    metadata = export(model, path)
    assert metadata['task'] == 'masks' and metadata['outputs'] == ['classes', 'masks']
    assert_plain(path)
    runtime = session(path)
    for batch, *size in sizes_from(metadata):
        image = pixels(batch, 3, *size)
        assert_same(run(runtime, image), predicted(model, image))


@pytest.mark.parametrize(
    'task, kind',
    [
        ('semantic', 'eomt'),
        pytest.param('panoptic', 'eomt', marks=pytest.mark.slow),
        pytest.param('semantic', 'pmt', marks=pytest.mark.slow),
    ],
)
@torch.no_grad()
def test_a_backbone_in_half_precision(task: str, kind: str, tmp_path: Path) -> None:
    model, path = strong(build_model(task, kind)), tmp_path / 'eomt.pt2'
    export(model, path, size=(64, 96), batch=1, dtype=torch.bfloat16)
    image = pixels(1, 3, 64, 96)
    first, second = torch.export.load(path).module()(image)
    assert first.dtype == torch.float32
    model.test_cfg = ConfigDict(mode='whole')
    if task == 'semantic':
        data = model.data_preprocessor(dict(inputs=list(image)), False)
        expected = model.encode_decode(data['inputs'], [dict(img_shape=(64, 96))])
        assert (first - expected).abs().max() < 0.05 * expected.abs().max()
    else:
        for actual, wanted in zip(
            (first, second), predicted(model, image), strict=True
        ):
            assert (actual - wanted).abs().max() < 0.05
