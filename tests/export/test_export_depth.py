"""Depth models as files, beside what they predict in mmseg, at sizes that were not traced."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from mmseg.structures import SegDataSample
from torch import Tensor, nn

from helpers.exported import assert_plain, assert_same, pixels, run, session
from helpers.exported_models import dpt, linear_depth
from rope_dense.export import export

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


@pytest.mark.slow
@pytest.mark.parametrize('make', [linear_depth, dpt])
@torch.no_grad()
def test_onnx(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    model, path = make(), tmp_path / 'depth.onnx'
    metadata = export(model, path)
    assert metadata['task'] == 'depth' and metadata['outputs'] == ['depth']
    assert metadata['num_classes'] is None and metadata['smallest_size'] == [1, 1]
    assert_plain(path)
    runtime = session(path)
    for size in SIZES:
        image = pixels(size[0], 3, *size[1:])
        expected = predicted(model, image)
        assert_same(run(runtime, image), [expected])
    assert expected.max() > 1.02 * expected.min() > 0


@pytest.mark.parametrize(
    'make',
    [linear_depth, pytest.param(partial(dpt, bins='mixed'), marks=pytest.mark.slow)],
)
@torch.no_grad()
def test_pt2(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    model, path = make(), tmp_path / 'depth.pt2'
    export(model, path)
    exported = torch.export.load(path).module()
    for size in SIZES:
        image = pixels(size[0], 3, *size[1:])
        assert_same([*exported(image)], [predicted(model, image)])
