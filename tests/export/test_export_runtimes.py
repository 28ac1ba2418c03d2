"""A file of each kind of model in ONNX Runtime and OpenVINO."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from helpers.exported import assert_plain, strong
from helpers.exported_models import KINDS, differences
from helpers.reference import relative_error
from rope_dense.backbones import RoPEViT
from rope_dense.export import export

# What these have, files of others have: their graphs are compared with their models alone.
ELSEWHERE = {
    'Faster R-CNN': 'Mask R-CNN',
    'DINO on Swin': 'DINO on ViT, RoPESwin; at one size in test_export_models.py',
    'DEIM on Swin': 'DEIM, RoPESwin',
    'SharedBackbone': 'test_export_shared.py, test_export_client.py',
}


@pytest.mark.slow
@pytest.mark.parametrize('kind', [kind for kind in KINDS if kind not in ELSEWHERE])
def test_two_programs_compute_what_the_model_does(kind: str, tmp_path: Path) -> None:
    pytest.importorskip('openvino', reason="pip install 'rope_dense[export-check]'")
    model, path = KINDS[kind](tmp_path), tmp_path / 'model.onnx'
    metadata = export(model, path)
    assert_plain(path)
    worst = differences(model, path, metadata)
    assert [name.rpartition(' ')[0] for name in worst] == ['ONNX Runtime', 'OpenVINO']
    # Mask2Former attends where a mask is above one half, which rounding decides for some.
    assert max(worst.values()) < (0.1 if 'Mask2Former' in kind else 1e-4), worst


def test_openvino_errs_after_an_image_of_one_token(tmp_path: Path) -> None:
    """docs/export.md warns of it, ``differences`` avoids it: both can go when this fails."""
    openvino = pytest.importorskip('openvino')
    path = tmp_path / 'model.onnx'
    arch = dict(embed_dims=32, depth=2, num_heads=2)
    model = strong(RoPEViT(arch, with_cls_token=False)).eval()
    export(model, path)
    images = [torch.randn(1, 3, side, side) for side in (16, 48, 64)]
    with torch.no_grad():
        expected = model(images[-1])[0]

    def error_after(first: Tensor) -> float:
        settings = dict(INFERENCE_PRECISION_HINT='f32')
        compiled = openvino.Core().compile_model(path, 'CPU', settings)
        compiled([first.numpy()])
        found = torch.from_numpy(compiled([images[-1].numpy()])[0])
        return relative_error(found, expected)

    assert error_after(images[1]) < 1e-4
    assert not error_after(images[0]) < 1e-4  # NaN
