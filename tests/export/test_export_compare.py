"""Comparison of an exported file with its model."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_translations import written
from torch import Tensor, nn

from helpers.exported import pixels, strong
from helpers.exported_models import classifier, mask2former
from rope_dense.commands.arguments import ToolParser
from rope_dense.export import compare, export, exporter
from rope_dense.export.compare import compare_file, input_shapes, largest_difference
from rope_dense.export.graphs import Graph, graph_of
from rope_dense.utils.errors import UsageError
from rope_dense_command import import_command


class Detector:
    """What is known of a detector with a map of depth."""

    outputs = ('scores', 'boxes', 'labels', 'depth')
    detections = (['scores', 'boxes', 'labels'],)
    generic = (64, 96)


def found(**changes: Tensor) -> list[Tensor]:
    """Three detections in each of two images, the last two with nearly equal scores."""
    outputs = dict(
        scores=torch.tensor([[0.8, 0.4, 0.4001], [0.5, 0.0, 0.0]]),
        boxes=torch.arange(24.0).view(2, 3, 4),
        labels=torch.arange(6).view(2, 3),
        depth=torch.zeros(2, 1, 4, 5),
    )
    return list((outputs | changes).values())


def test_detections_may_change_places_if_their_scores_are_nearly_equal() -> None:
    def difference(**changes: Tensor) -> float:
        return largest_difference(Detector(), found(**changes), found())

    scores, boxes, labels, depth = found()
    assert difference() == 0
    assert difference(depth=depth + 0.25) == 0.25  # of zeros as it is
    assert difference(scores=scores * 1.5) == pytest.approx(0.5)
    changed = boxes[:, [0, 2, 1]]
    assert difference(boxes=changed, labels=labels[:, [0, 2, 1]]) < 2e-4
    assert difference(boxes=boxes[:, [1, 0, 2]]) > 0.1
    assert difference(labels=labels[:, [1, 0, 2]]) > 0.5
    assert difference(scores=scores[:0]) == torch.inf  # of no image
    fewer = dict(scores=scores[:, :2], boxes=boxes[:, :2], labels=labels[:, :2])
    assert difference(**fewer) == pytest.approx(0.4001 / 0.8)
    assert largest_difference(Detector(), found(), found(**fewer)) > 0.5
    none = dict(scores=scores[:, :0], boxes=boxes[:, :0], labels=labels[:, :0])
    assert difference(**none) == 1
    assert largest_difference(Detector(), found(**none), found(**none)) == 0
    lost = scores * torch.tensor([1.0, 1.0, 0.0])  # a detection without a score
    assert difference(scores=lost) == pytest.approx(0.4001 / 0.8)
    faint = scores.where(scores > 0.4, 1e-6)
    moved = boxes.where(scores[..., None] > 0.4, 99.0)
    assert difference(scores=faint, boxes=moved) == pytest.approx(0.5, abs=1e-3)
    assert (
        difference(boxes=boxes * torch.nan) == difference(depth=depth / 0) == torch.inf
    )


def test_three_sizes_and_two_batches_are_compared() -> None:
    chosen = input_shapes(Detector(), dict(size='dynamic', batch='dynamic'))
    assert len({size for _, *size in chosen for size in [tuple(size)]}) == 3
    assert {batch for batch, *_ in chosen} == {1, 2}
    assert input_shapes(Detector(), dict(size=[80, 64], batch='dynamic')) == [
        (1, 80, 64),
        (2, 80, 64),
    ]
    assert input_shapes(Detector(), dict(size=[80, 64], batch=4)) == [(4, 80, 64)]


def test_a_wrong_file_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each program has a number in each line; one that differs must not be used."""
    model, path = strong(classifier()), tmp_path / 'classifier.pt2'
    metadata = export(model, path)
    lines = list(compare_file(path, model, metadata))
    assert graph_of(model).tolerance == 0.01
    assert len(lines) == 3 and all('in PyTorch 2.' in line for line in lines)
    graph = graph_of(model)
    picture = pixels(3, 90, 100)
    kinds = [line.split()[8] for line in compare_file(path, model, metadata, [picture])]
    assert kinds == ['noise'] * 3 + ['image']
    programs = dict(
        good=lambda x: list(graph(x)), bad=lambda x: [2 * out for out in graph(x)]
    )
    monkeypatch.setattr(compare, 'runners', lambda path, **_: programs)
    lines = compare_file(path, model, metadata)
    said = [next(lines) for _ in range(3)]
    assert all('0.0e+00 in good, 1.0e+00 in bad' in line for line in said)
    with pytest.raises(UsageError, match='do not use the file in bad'):
        next(lines)
    monkeypatch.setattr(Graph, 'tolerance', 1.1)
    assert len(list(compare_file(path, model, metadata))) == 3
    monkeypatch.setattr(compare, 'runners', lambda path, **_: dict(stops=pixels))
    with pytest.raises(UsageError, match='no program here can run the file'):
        list(compare_file(path, model, metadata | dict(backbone_dtype='fp16')))
    assert graph(pixels(1, 3, 32, 32))[0].shape == (1, 5)


class Rows(nn.Module):
    """A detector of the first row of pixels, with a threshold that no noise of it reaches."""

    top = None
    first: Any = Graph.first
    filtered: Any = Graph.filtered

    def __init__(self, score: float) -> None:
        super().__init__()
        self.register_buffer('threshold', torch.full((1, 1), score))

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        scores = image[:, 0, 0].sigmoid()
        boxes = scores[..., None] + image[:, 0, :4].transpose(1, 2)
        labels = (scores * 100).long()
        names = Detector.outputs[:3]
        return tuple(self.filtered(names, scores, boxes, labels))


@pytest.mark.parametrize('format', ['onnx', 'pt2'])
@torch.no_grad()
def test_detections_below_the_threshold_are_compared(
    format: str, tmp_path: Path
) -> None:
    """What is left out of the file of a user is still there to be compared."""
    path = tmp_path / f'rows.{format}'
    model = Rows(0.99).eval()
    if format == 'onnx':
        written(model, path, 3)
    else:
        image = torch.rand(2, 3, 24, 40)
        shapes = ({0: torch.export.Dim('batch'), 3: torch.export.Dim('width')},)
        program = torch.export.export(model, (image,), dynamic_shapes=shapes)
        exporter.write_pt2(program, path, SimpleNamespace(), {})
        # AOTInductor needs it, and the noise that was traced stays here.
        ((example,), _) = torch.export.load(path).example_inputs
        assert example.shape == image.shape and not example.any()
    image = torch.rand(2, 3, 24, 33)
    everything = Rows(0.0)(image)
    for run in compare.runners(path).values():
        assert [x.shape[1] for x in run(image)] == [0] * 3
    for run in compare.runners(path, all_detections=True).values():
        for actual, expected in zip(run(image), everything, strict=True):
            assert torch.allclose(actual.float(), expected.float(), atol=1e-5)
            assert actual.shape[1] == 33


@torch.no_grad()
def test_rows_without_a_detection_have_no_box_and_no_class() -> None:
    image = torch.rand(2, 3, 24, 33)
    image[1, 0, 0, 5] = 9.0
    scores, boxes, labels = Rows(0.99)(image)
    assert scores.shape == (2, 1) and scores[0] == 0 < scores[1]
    assert labels[:, 0].tolist() == [-1, 99]
    assert (boxes[0] == 0).all() and (boxes[1] > 0).all()


def test_masked_attention_may_change_by_rounding(tmp_path: Path) -> None:
    assert graph_of(mask2former(tmp_path)).tolerance == 0.1


def test_a_file_that_nothing_runs_is_refused_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / 'model.onnx'
    with pytest.raises(UsageError, match='no bfloat16 on a CPU: --unchecked'):
        compare.check_comparable(path, 'bf16')
    export_tool = import_command('export')
    given = ['run', str(path), '--dtype', 'bf16']
    with monkeypatch.context() as patched:
        patched.setattr(ToolParser, 'parse', ToolParser.parse_args)  # without files
        assert not export_tool.parse_args(given).unchecked
        assert export_tool.parse_args([*given, '--unchecked']).unchecked
    compare.check_comparable(path, 'fp16')
    compare.check_comparable(path.with_suffix('.pt2'), 'bf16')


def test_pictures_fit_a_file_of_one_size() -> None:
    about = dict(rgb=True, size=[80, 64], smallest_size=[80, 64], batch=2)
    about['input'] = dict(dtype='uint8')
    picture = pixels(3, 70, 90)
    image = compare.as_input(picture, about)
    assert image.shape == (2, 3, 80, 64)
    assert torch.equal(image[1, 0, :70], picture[2, :, :64])
    about |= dict(size='dynamic', batch='dynamic', smallest_size=[16, 16])
    assert compare.as_input(picture, about).shape == (1, 3, 70, 90)
