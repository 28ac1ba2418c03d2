"""Several heads on one backbone as one file, beside each model alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from helpers import shared_backbone as small
from helpers.exported import (
    assert_detected,
    assert_plain,
    assert_same,
    assert_segmented,
    detected,
    onnx,
    pixels,
)
from helpers.exported_models import program_of
from rope_dense.export import export
from rope_dense.export.compare import compare_file
from rope_dense.export.graphs import graph_of
from rope_dense.models.shared_backbone import SharedBackbone


@pytest.fixture(scope='module')
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    folder = tmp_path_factory.mktemp('shared')
    return small.save(folder, **{name: make() for name, make in small.ALL.items()})


def outputs(name: str, model: Any, image: Tensor) -> list[Tensor]:
    """What a model gives alone for images, in the order of its file."""
    if name == 'boxes':
        return detected(model, image)
    inputs = model.data_preprocessor(dict(inputs=list(image)))['inputs']
    if name == 'depth':
        return [F.interpolate(model(inputs), image.shape[2:], mode='bilinear')]
    (classes,), (masks,) = model.panoptic_head(model.extract_feat(inputs))
    masks = F.interpolate(masks, image.shape[2:], mode='bilinear', align_corners=False)
    return [classes.softmax(-1), masks.sigmoid()]


SHARED = ['classes_logits', 'classes_labels', 'features']
OUTPUTS = dict(
    boxes=['boxes_scores', 'boxes_boxes', 'boxes_labels'],
    masks=['masks_classes', 'masks_masks'],
    depth=['depth_depth'],
)


def of_two(tasks: dict[str, dict], first: str) -> SharedBackbone:
    """A task and classes, and the features."""
    return SharedBackbone(
        {name: tasks[name] for name in (first, 'classes')}, features=True
    )


@pytest.mark.parametrize('first', OUTPUTS)
@torch.no_grad()
def test_one_graph_gives_what_each_model_gives(
    first: str, tasks: dict[str, dict]
) -> None:
    model = of_two(tasks, first)
    graph = graph_of(model)
    assert [*graph.outputs] == OUTPUTS[first] + SHARED and graph.task == 'several'
    alone = {name: small.alone(tasks[name]) for name in (first, 'classes')}
    same = assert_detected if first == 'boxes' else assert_same
    for size in (
        (1, 32, 64),
        (2, 96, 32),
    ):  # the models alone pad others to other multiples
        image = pixels(size[0], 3, *size[1:])
        *found, logits, labels, features = graph(image)
        same(found, outputs(first, alone[first], image))
        assert_segmented(alone['classes'], [logits, labels], image)
        inputs = model.data_preprocessor(dict(inputs=list(image)))['inputs']
        assert_same([features], [model(inputs)['features']])


@pytest.mark.slow
@torch.no_grad()
def test_one_file(tasks: dict[str, dict], tmp_path: Path) -> None:
    """test_export_runtimes.py has one of other tasks."""
    model = of_two(tasks, 'masks')
    path = tmp_path / 'all.onnx'
    metadata = export(model, path)
    assert metadata['outputs'] == OUTPUTS['masks'] + SHARED
    assert metadata['tasks']['classes'] == dict(
        task='segmentation',
        outputs=['classes_logits', 'classes_labels'],
        num_classes=3,
        classes=['a', 'b', 'c'],
    )
    assert metadata['task'] == 'several' and metadata['multiple_of'] == 1
    assert_plain(path)
    shapes = [tuple(weight.dims) for weight in onnx.load(path).graph.initializer]
    mlps = (2 * small.C, small.C), (small.C, 2 * small.C)
    assert sum(map(shapes.count, mlps)) == 2 * len(model.backbone.blocks)  # once
    image = pixels(3, 3, metadata['smallest_size'][0], 300)
    classes, masks, logits, _, features = program_of(path)(image)
    expected = graph_of(model)(image)
    assert_same([classes, masks, logits, features], [*expected[:3], expected[-1]])


@pytest.mark.slow
@torch.no_grad()
def test_half_precision_at_a_fixed_size(tasks: dict[str, dict], tmp_path: Path) -> None:
    model = SharedBackbone(
        {name: tasks[name] for name in ('masks', 'classes')}, features=True
    )
    path = tmp_path / 'half.onnx'
    half = export(model, path, size=(64, 96), batch=1, dtype=torch.float16)
    assert 'necks and heads' in half['float32_parts']
    (line,) = compare_file(path, model, half)
    assert 1e-6 < float(line.rpartition(': ')[2].split()[0]) < 0.05
