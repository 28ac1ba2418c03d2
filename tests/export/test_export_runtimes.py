"""A file of each kind of model in ONNX Runtime and OpenVINO."""

from pathlib import Path

import pytest

from helpers.exported import assert_plain
from helpers.exported_models import KINDS, differences
from rope_dense.export import export


@pytest.mark.slow
@pytest.mark.parametrize('kind', KINDS)
def test_two_programs_compute_what_the_model_does(kind: str, tmp_path: Path) -> None:
    pytest.importorskip('openvino', reason="pip install 'rope_dense[export-check]'")
    model, path = KINDS[kind](tmp_path), tmp_path / 'model.onnx'
    metadata = export(model, path)
    assert_plain(path)
    worst = differences(model, path, metadata)
    assert [name.rpartition(' ')[0] for name in worst] == ['ONNX Runtime', 'OpenVINO']
    # Mask2Former attends where a mask is above one half, which rounding decides for some.
    assert max(worst.values()) < (0.1 if 'Mask2Former' in kind else 1e-4), worst
