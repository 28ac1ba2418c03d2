"""DEIM as a file, beside what it predicts in mmdet."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.exported import assert_plain, detected, onnx, pixels
from helpers.exported_models import deim, ecdet, masked, on_swin, program_of, shallow
from rope_dense.export import export
from rope_dense.export.graphs import graph_of
from rope_dense.models.deim.detector import DEIM

# Batch, height, width; 128 x 160, two images, is what is traced.
# From one patch, with fewer tokens than queries, on.
SMALL_SIZES = ((1, 16, 16), (3, 17, 300), (2, 31, 37))
SIZES = ((1, 64, 64), (2, 96, 160), (3, 192, 64), (1, 224, 224))
ODD_SIZES = ((1, 97, 97), (2, 70, 203), (3, 131, 84), (1, 65, 65))
# In names of parameters of models whose layer 0 or 1 counts.
UNUSED = (
    ('denoising', '.bn.', 'layers.1.', 'branches.1.', 'quality.1.'),
    (
        'denoising',
        '.bn.',
        'layers.2.',
        'branches.2.',
        'quality.2.',
        'quality.0.',
        'cls_branches.0',
    ),
)


def assert_alike(actual: list[Tensor], expected: list[Tensor]) -> None:
    """Scores within 1e-4, boxes within 0.1 pixels, the same labels."""
    for some, others in zip(actual, expected, strict=True):
        assert some.shape == others.shape and some.dtype == others.dtype
    scores, boxes, labels = expected
    assert (
        scores.std() > 0.01
        and boxes.std() > boxes.max() / 20
        and len(labels.unique()) > 1
    )
    assert (actual[0] - scores).abs().max() <= 1e-4
    assert (actual[1] - boxes).abs().max() <= 0.1
    assert torch.equal(actual[2], labels)


def assert_suppressed(found: list[Tensor], model: DEIM, image: Tensor) -> None:
    """Alike, and the model left some out, but not most."""
    data = model.data_preprocessor(dict(inputs=list(image), data_samples=[]), False)
    scores, labels, boxes = model(data['inputs'], mode='tensor')
    kept = scores > 0
    assert 0 < (~kept).sum() < scores.numel() / 2
    assert torch.equal(found[0] > 0, kept)
    assert_alike([x[kept] for x in found], [x[kept] for x in (scores, boxes, labels)])


def assert_near(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    """Scores within 2e-3, and 9 of 10 boxes within 0.2 pixels of one of the same label.

    Detections whose scores are nearly equal may swap.
    """
    assert (actual[0] - expected[0]).abs().max() <= 2e-3
    for _, boxes, labels, _, others, other_labels in zip(
        *actual[:3], *expected, strict=True
    ):
        distances = (boxes[:, None] - others).abs().amax(-1)
        distances = distances.masked_fill(labels[:, None] != other_labels, torch.inf)
        assert distances.amin(0).quantile(0.9) <= 0.2


@torch.no_grad()
def test_a_file_is_right_at_every_size_and_has_what_it_needs(tmp_path: Path) -> None:
    model, path = shallow(), tmp_path / 'deim.onnx'
    model.bbox_head.nms_iou = 0.1
    metadata = export(model, path, classes=list('abcdefg'))
    assert metadata['task'] == 'detection' and metadata['outputs'] == [
        'scores',
        'boxes',
        'labels',
    ]
    assert metadata['smallest_size'] == [16, 16] and metadata['classes'] == list(
        'abcdefg'
    )
    assert sorted(file.name for file in tmp_path.glob('[!.]*')) == [
        'deim.json',
        path.name,
    ]
    assert_plain(path)
    run_file = program_of(path)
    for size in (*SMALL_SIZES, *SIZES[:2], ODD_SIZES[0]):
        image = pixels(size[0], 3, *size[1:])
        assert_suppressed(run_file(image), model, image)
    names = [tensor.name for tensor in onnx.load(path).graph.initializer]
    assert any('decoder.layers.0.' in name for name in names)
    assert not [name for name in names if any(part in name for part in UNUSED[0])]


@pytest.mark.slow
def test_numbers_of_candidates_are_constants_at_a_fixed_size(tmp_path: Path) -> None:
    """TensorRT's parser takes no computed K of TopK; at any size it follows the tokens."""
    export(shallow(), tmp_path / 'deim.onnx', size=(96, 64))
    assert_plain(tmp_path / 'deim.onnx')


@pytest.mark.slow
@torch.no_grad()
def test_pt2(tmp_path: Path) -> None:
    model, path = shallow(), tmp_path / 'deim.pt2'
    model.bbox_head.nms_iou = 0.1
    batch, *size = ODD_SIZES[1]
    export(model, path, size=tuple(size), batch=batch)
    image = pixels(batch, 3, *size)
    assert_suppressed(program_of(path)(image), model, image)


def published() -> DEIM:
    """Padded to multiples of 32."""
    return deim('m', divisor=32)


@pytest.mark.parametrize('make', [shallow, deim, ecdet, on_swin, published])
@torch.no_grad()
def test_graphs_detect_as_mmdet(make: Any) -> None:
    """With fused convolutions."""
    model = make()
    graph = graph_of(model)
    assert not [name for name, _ in graph.named_modules() if name.endswith('conv1x1')]
    for batch, height, width in (*SMALL_SIZES, *SIZES, *ODD_SIZES):
        image = pixels(batch, 3, height, width)
        assert_alike(list(graph(image)), detected(model, image))


@pytest.mark.parametrize('last', [0, 1])
@torch.no_grad()
def test_what_only_training_needs_is_left_out(last: int) -> None:
    model = shallow(last)
    graph, image = graph_of(model), pixels(1, 3, 64, 96)
    names = [name for name, _ in graph.named_parameters()]
    assert any(f'decoder.layers.{last}.' in name for name in names)
    for part in UNUSED[last]:
        assert any(part in name for name, _ in model.named_parameters())
        assert not any(part in name for name in names)
    graph(image)
    for parameter in graph.parameters():
        parameter.requires_grad_()
    with torch.enable_grad():
        scores, boxes, _ = graph(image)
        (scores.sum() + boxes.sum()).backward()
    # Which tokens are chosen, and where distances count from, have no gradient.
    needed = [
        p
        for name, p in graph.named_parameters()
        if not re.search('selection.cls|pre_', name)
    ]
    assert all(parameter.grad is not None for parameter in needed)


@pytest.mark.parametrize('in_boxes', [False, True])
@torch.no_grad()
def test_masks_are_those_of_the_detections(in_boxes: bool) -> None:
    model = masked()
    model.bbox_head.mask_head.in_boxes = in_boxes
    graph = graph_of(model)
    assert [*graph.outputs] == ['scores', 'boxes', 'labels', 'masks']
    names = [name for name, _ in graph.named_parameters() if 'mask_head.blocks' in name]
    assert names and all('blocks.0' in name for name in names)
    for size in (SIZES[1], SIZES[2], *ODD_SIZES[:2]):
        image = pixels(size[0], 3, *size[1:])
        *detections, masks = graph(image)
        assert_alike(detections, detected(model, image))
        padded = model.data_preprocessor(dict(inputs=list(image)), False)['inputs']
        expected = model(padded, mode='tensor')[3]
        assert masks.shape == expected.shape and expected.std() > 0.1
        assert (masks - expected).abs().max() <= 1e-3


@pytest.mark.slow
@torch.no_grad()
def test_masks_that_end_at_their_boxes(tmp_path: Path) -> None:
    """A file of others is in test_export_runtimes.py."""
    model, path = masked(), tmp_path / 'deim.onnx'
    model.bbox_head.mask_head.in_boxes = True
    batch, *size = ODD_SIZES[1]
    export(model, path, size=tuple(size), batch=batch)
    assert_plain(path)
    image = pixels(batch, 3, *size)
    *_, masks = program_of(path)(image)
    padded = model.data_preprocessor(dict(inputs=list(image)), False)['inputs']
    assert (masks - model(padded, mode='tensor')[3]).abs().max() <= 1e-3


def with_all_tokens(model: DEIM) -> DEIM:
    """A model with a query for each token of 64 x 64 pixels, so that none replaces another."""
    model.bbox_head.num_queries = model.bbox_head.selection.num_queries = 64 + 16 + 4
    return model


FLOAT32 = re.compile(
    r'preprocess|freqs|selection|query_pos|pre_bbox|branches|quality|bins|norm\d?\.part'
    r'|sampling_offsets|point_scale'
)


@pytest.mark.parametrize('make', [deim, ecdet, on_swin, masked])
@torch.no_grad()
def test_half_precision_keeps_sensitive_parts_in_float32(make: Any) -> None:
    model = with_all_tokens(make())
    graph = graph_of(model, torch.float16)
    for name, tensor in (*graph.named_parameters(), *graph.named_buffers()):
        expected = torch.float32 if FLOAT32.search(name) else torch.float16
        assert tensor.dtype == expected, name
    image = pixels(3, 3, 64, 64)
    actual = graph(image)
    assert {out.dtype for out in actual} == {torch.float32, torch.int64}
    assert_near(actual, detected(model, image))


@pytest.mark.slow
@torch.no_grad()
def test_a_file_in_half_precision(tmp_path: Path) -> None:
    model, path = with_all_tokens(shallow(1)), tmp_path / 'deim.onnx'
    metadata = export(model, path, size=(64, 64), dtype=torch.float16)
    assert 'distributions and boxes' in metadata['float32_parts']
    run_file = program_of(path)
    for batch in (1, 2, 3):
        image = pixels(batch, 3, 64, 64)
        assert_near(run_file(image), detected(model, image))
    weights = onnx.load(path).graph.initializer
    half = {
        tensor.name
        for tensor in weights
        if tensor.data_type == onnx.TensorProto.FLOAT16
    }
    assert any('neck' in name for name in half) and any(
        'encoder' in name for name in half
    )
    assert not [name for name in half if FLOAT32.search(name)]
