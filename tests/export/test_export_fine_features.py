"""Features finer than a patch: the graph of a file beside mmseg, and a file of one size."""

from pathlib import Path

import pytest
import torch

from helpers.exported import assert_plain, assert_segmented, pixels, run, session
from helpers.exported_models import fine_features
from rope_dense.export import export
from rope_dense.export.graphs import graph_of


@pytest.mark.parametrize('scale_factor', [4, 2.5])
@torch.no_grad()
def test_graphs_segment_as_mmseg(scale_factor: float) -> None:
    """Also images with fewer than 9 patches a side, and with pixels beyond the last patch."""
    model = fine_features(scale_factor)
    graph = graph_of(model)
    for height, width in ((99, 120), (40, 163)):
        image = pixels(2, 3, height, width)
        assert_segmented(model, list(graph(image)), image)


@pytest.mark.slow
@torch.no_grad()
def test_a_file_of_one_size(tmp_path: Path) -> None:
    model, path = fine_features(2.5), tmp_path / 'model.onnx'
    export(model, path, size=(40, 163))
    assert_plain(path)
    image = pixels(2, 3, 40, 163)
    assert_segmented(model, run(session(path), image), image)
