"""EoMT and PMT as files, beside what mmseg and mmdet predict with it."""

from pathlib import Path

import pytest
import torch
from mmengine.config import ConfigDict
from torch import Tensor, nn

from helpers.eomt import build_model
from helpers.exported import (
    assert_same,
    assert_segmented,
    pixels,
    sizes_from,
    strong,
)
from helpers.exported_models import eomt_segmentor
from rope_dense.export import export
from rope_dense.export.graphs import graph_of


@torch.no_grad()
def test_graphs_segment_as_mmseg() -> None:
    model = eomt_segmentor()
    graph = graph_of(model)
    for batch, *size in sizes_from(graph.min_side):
        image = pixels(batch, 3, *size)
        assert_segmented(model, list(graph(image)), image)


def predicted(model: nn.Module, image: Tensor) -> list[Tensor]:
    """What mmdet's head hands on to its fusion head, as probabilities."""
    data = model.data_preprocessor(dict(inputs=list(image)), False)
    samples = [ConfigDict(metainfo=dict(batch_input_shape=image.shape[2:]))]
    classes, masks = model.panoptic_head.predict(
        model.extract_feat(data['inputs']), samples
    )
    return [classes.softmax(-1), masks.sigmoid()]


@torch.no_grad()
def test_graphs_predict_as_mmdet() -> None:
    model = strong(build_model('panoptic', 'pmt'))
    graph = graph_of(model)
    assert graph.task == 'masks' and [*graph.outputs] == ['classes', 'masks']
    for batch, *size in sizes_from(graph.min_side):
        image = pixels(batch, 3, *size)
        assert_same(graph(image), predicted(model, image))


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
