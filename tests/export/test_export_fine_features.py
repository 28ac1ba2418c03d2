from pathlib import Path

import pytest
import torch

from helpers.exported import assert_plain, assert_segmented, pixels, run, session
from helpers.exported_models import fine_features
from rope_dense.export import export


@pytest.mark.slow
@pytest.mark.parametrize('scale_factor, size', [(4, 'dynamic'), (2.5, (40, 163))])
def test_a_segmentor_with_fine_features(
    scale_factor: float, size: str | tuple[int, int], tmp_path: Path
) -> None:
    """Also images with fewer than 9 patches a side, and with pixels beyond the last patch."""
    model, path = fine_features(scale_factor), tmp_path / 'model.onnx'
    export(model, path, size=size)
    assert_plain(path)
    exported = session(path)
    for height, width in [(99, 120), (40, 163)] if size == 'dynamic' else [size]:
        image = pixels(2, 3, height, width)
        with torch.no_grad():
            assert_segmented(model, run(exported, image), image)
