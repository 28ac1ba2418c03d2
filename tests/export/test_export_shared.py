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

pytestmark = pytest.mark.slow  # tests/commands/test_several_tasks.py has a quick one


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


@pytest.mark.parametrize(
    'first, suffix', [('depth', 'pt2'), ('masks', 'onnx'), ('boxes', 'onnx')]
)
@torch.no_grad()
def test_one_file_gives_what_each_model_gives(
    first: str, suffix: str, tasks: dict[str, dict], tmp_path: Path
) -> None:
    """At sizes that were not traced, for any number of images."""
    model = SharedBackbone(
        {name: tasks[name] for name in (first, 'classes')}, features=True
    )
    path = tmp_path / f'all.{suffix}'
    metadata = export(model, path)
    of_first = dict(
        boxes=['boxes_scores', 'boxes_boxes', 'boxes_labels'],
        masks=['masks_classes', 'masks_masks'],
        depth=['depth_depth'],
    )
    shared = ['classes_logits', 'classes_labels', 'features']
    assert metadata['outputs'] == of_first[first] + shared
    assert metadata['tasks']['classes'] == dict(
        task='segmentation',
        outputs=['classes_logits', 'classes_labels'],
        num_classes=3,
        classes=['a', 'b', 'c'],
    )
    assert metadata['task'] == 'several' and metadata['multiple_of'] == 1
    if suffix == 'onnx':
        assert_plain(path)
        shapes = [tuple(weight.dims) for weight in onnx.load(path).graph.initializer]
        mlps = (2 * small.C, small.C), (small.C, 2 * small.C)
        assert sum(map(shapes.count, mlps)) == 2 * len(model.backbone.blocks)  # once
    alone = {name: small.alone(tasks[name]) for name in (first, 'classes')}
    same = assert_detected if first == 'boxes' else assert_same
    run_file = program_of(path)
    for size in (
        (1, 32, 64),
        (2, 96, 32),
    ):  # the models alone pad others to other multiples
        image = pixels(size[0], 3, *size[1:])
        *found, logits, labels, features = run_file(image)
        same(found, outputs(first, alone[first], image))
        assert_segmented(alone['classes'], [logits, labels], image)
        inputs = model.data_preprocessor(dict(inputs=list(image)))['inputs']
        assert_same([features], [model(inputs)['features']])
    image = pixels(3, 3, metadata['smallest_size'][0], 300)
    *found, logits, _, features = run_file(image)
    *expected, expected_logits, _, expected_features = graph_of(model)(image)
    same(found, expected)
    assert_same([logits, features], [expected_logits, expected_features])


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
