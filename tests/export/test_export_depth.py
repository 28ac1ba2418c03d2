"""Depth models as files, beside what they predict in mmseg, at sizes that were not traced."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from mmseg.structures import SegDataSample
from torch import Tensor, nn

from helpers.exported import assert_same, pixels
from helpers.exported_models import dpt, linear_depth
from rope_dense.export import export
from rope_dense.export.graphs import graph_of

SIZES = [
    (1, 1, 1),
    (3, 17, 300),
    (2, 113, 16),
    (1, 97, 131),
]  # batch, height, width; padded


def predicted(model: nn.Module, image: Tensor) -> Tensor:
    """mmseg's prediction for images [B, 3, H, W], each on its own."""
    size, depths = tuple(image.shape[2:]), []
    for one in image:
        sample = SegDataSample(metainfo=dict(ori_shape=size, img_shape=size))
        data = model.data_preprocessor(dict(inputs=[one], data_samples=[sample]), False)
        depths += [
            result.pred_depth_map.data for result in model(**data, mode='predict')
        ]
    return torch.stack(depths)


@pytest.mark.parametrize(
    'make',
    [linear_depth, dpt, partial(dpt, bins='mixed')],
    ids=['linear', 'dpt', 'bins'],
)
@torch.no_grad()
def test_graphs_predict_as_mmseg(make: Callable[[], nn.Module]) -> None:
    model = make()
    graph = graph_of(model)
    assert graph.min_side == 1
    for size in SIZES:
        image = pixels(size[0], 3, *size[1:])
        expected = predicted(model, image)
        assert_same([*graph(image)], [expected])
    assert expected.max() > 1.02 * expected.min() > 0


@torch.no_grad()
def test_pt2(tmp_path: Path) -> None:
    """test_export_runtimes.py has ONNX."""
    model, path = linear_depth(), tmp_path / 'depth.pt2'
    metadata = export(model, path)
    assert metadata['task'] == 'depth' and metadata['outputs'] == ['depth']
    assert metadata['num_classes'] is None and metadata['smallest_size'] == [1, 1]
    exported = torch.export.load(path).module()
    for size in SIZES:
        image = pixels(size[0], 3, *size[1:])
        assert_same([*exported(image)], [predicted(model, image)])
