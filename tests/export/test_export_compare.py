"""Comparison of an exported file with its model."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from helpers.exported import pixels, strong
from helpers.exported_models import classifier
from rope_dense.export import compare, export
from rope_dense.export.compare import compare_file, input_shapes, largest_difference
from rope_dense.export.graphs import graph_of


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
    assert difference(boxes=changed, labels=labels[:, [0, 2, 1]]) == 0
    assert difference(boxes=boxes[:, [1, 0, 2]]) > 0.1
    assert difference(labels=labels[:, [1, 0, 2]]) == torch.inf
    assert difference(scores=scores[:, :2]) == torch.inf
    assert difference(scores=scores[:0, :0]) == torch.inf  # nothing at all
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
    assert len(lines) == 3 and all('in PyTorch 2.' in line for line in lines)
    graph = graph_of(model)
    programs = dict(
        good=lambda x: list(graph(x)), bad=lambda x: [2 * out for out in graph(x)]
    )
    monkeypatch.setattr(compare, 'runners', lambda path: programs)
    *lines, warning = compare_file(path, model, metadata)
    assert all('0.0e+00 in good, 1.0e+00 in bad' in line for line in lines)
    assert 'do not use the file in bad' in warning
    assert graph(pixels(1, 3, 32, 32))[0].shape == (1, 5)
