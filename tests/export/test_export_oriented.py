"""Oriented DEIM as a file, beside the model and OpenCV's corners of a rotated box."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.exported import alone_in_order, assert_plain, pixels
from helpers.exported_models import oriented, program_of
from rope_dense.export import export
from rope_dense.export.graphs import graph_of
from rope_dense.models.deim.oriented_boxes import from_rotated

SIZES = ((1, 64, 64), (2, 97, 160), (3, 192, 75), (1, 131, 224))  # none is traced


def assert_same_boxes(actual: Tensor, expected: Tensor, size: tuple[int, int]) -> None:
    """In numbers without a border, so that -90 degrees is 90 degrees: within 1e-3 each."""
    scale = actual.new_tensor([2 / sum(size)] * 4 + [1])
    pair = (from_rotated(x * scale) for x in (actual, expected))
    torch.testing.assert_close(*pair, atol=1e-3, rtol=1e-3)


@torch.no_grad()
def test_graphs_detect_as_the_model() -> None:
    """Files are in test_export_runtimes.py."""
    model = oriented()
    graph = graph_of(model)
    assert [*graph.outputs] == ['scores', 'boxes', 'labels', 'corners']
    assert graph.task == 'detection'
    for batch, height, width in SIZES:
        image = pixels(batch, 3, height, width)
        inputs = model.data_preprocessor(dict(inputs=list(image)), False)['inputs']
        expected, expected_labels, expected_boxes = model(inputs, mode='tensor')
        scores, boxes, labels, corners = graph(image)
        assert expected.std() > 0.01 and expected_boxes[..., :4].std() > 5
        assert expected_boxes[..., 4].abs().max() > 0.1
        assert (scores - expected).abs().max() <= 1e-4
        alone = alone_in_order(expected)
        assert torch.equal(labels[alone], expected_labels[alone])
        assert boxes.shape == (batch, 30, 5) and corners.shape == (batch, 30, 4, 2)
        pair = boxes[alone], expected_boxes[alone]
        assert_same_boxes(*pair, (height, width))
        for box, points in zip(boxes.flatten(0, 1), corners.flatten(0, 1), strict=True):
            cx, cy, w, h, angle = box.tolist()
            around = cv2.boxPoints(((cx, cy), (w, h), np.rad2deg(angle)))
            distances = torch.cdist(torch.from_numpy(around), points)
            assert distances.amin(0).max() < 0.05
            assert distances.amin(1).max() < 0.05


@pytest.mark.slow
@torch.no_grad()
def test_a_file_leaves_out_duplicates(tmp_path: Path) -> None:
    model, path = oriented(), tmp_path / 'oriented.onnx'
    model.bbox_head.nms_iou = 0.01
    metadata = export(model, path, size=(96, 160), batch=1)
    assert metadata['angle_version'] == 'le90'
    assert_plain(path)
    image = pixels(1, 3, 96, 160)
    inputs = model.data_preprocessor(dict(inputs=list(image)), False)['inputs']
    expected, *_ = model(inputs, mode='tensor')
    assert 0 < (expected == 0).sum() < expected.numel()
    scores, *_ = program_of(path)(image)
    assert (scores - expected).abs().max() <= 1e-4
