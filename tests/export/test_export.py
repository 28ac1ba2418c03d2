"""What every exported file has, parts that are replaced to export, and requests that cannot be."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mmcv.ops import MultiScaleDeformableAttention
from torch import nn

from helpers.exported import assert_same, strong
from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.export import export, exporter
from rope_dense.export.deformable import MMCVDeformableAttention
from rope_dense.export.exporter import METADATA_FILE, file_metadata
from rope_dense.export.graphs import Graph, graph_of
from rope_dense.export.parts import MeanPool
from rope_dense.export.trained import size_advice_text
from rope_dense.utils.results import Results

TINY = dict(embed_dims=16, depth=2, num_heads=2)


# Files


@pytest.mark.slow
def test_a_traced_file_runs_without_this_package(tmp_path: Path) -> None:
    """In a new process that can import nothing but torch."""
    model, path = strong(RoPEViT(TINY)), tmp_path / 'backbone.pt2'
    metadata = export(model, path)
    images = [
        torch.randn(1, 3, 65, 80),
        torch.randn(3, 3, 48, 113),
        torch.randn(2, 3, 97, 64),
    ]
    torch.save(images, tmp_path / 'images.pth')
    code = f"""
import json, sys, torch
files = {{{METADATA_FILE!r}: ''}}
model = torch.export.load('backbone.pt2', extra_files=files).module()
maps = [model(image) for image in torch.load('images.pth')]
torch.save([list(of_image) for of_image in maps], 'maps.pth')
assert not [name for name in sys.modules if name.startswith(('rope_dense', 'mm'))
            and name not in ('mmap', 'mmapfile')]
print(files[{METADATA_FILE!r}])
"""
    environment = {
        name: value for name, value in os.environ.items() if name != 'PYTHONPATH'
    }
    command = [sys.executable, '-W', 'ignore', '-c', code]
    result = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == metadata
    for image, actual in zip(images, torch.load(tmp_path / 'maps.pth'), strict=True):
        assert_same(actual, model(image))
    assert str(Path(exporter.__file__).parents[3]).encode() not in path.read_bytes()


@pytest.mark.parametrize(
    'format', [pytest.param('onnx', marks=pytest.mark.slow), 'pt2']
)
@pytest.mark.parametrize(
    'size', ['dynamic', pytest.param((512, 512), marks=pytest.mark.slow)]
)
def test_a_file_is_as_large_as_its_weights(format: str, size, tmp_path: Path) -> None:
    """No table of positions, and no image, is in it."""
    arch = dict(embed_dims=768, depth=1, num_heads=12)
    model, path = (
        RoPEViT(arch, rope=dict(type='AxialRoPE')),
        tmp_path / f'backbone.{format}',
    )
    export(model, path, size=size)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    assert (
        abs(path.stat().st_size - weights) <= 0.01 * weights
    )  # equal new weights are stored once
    assert sorted(file.name for file in tmp_path.glob('[!.]*')) == [
        'backbone.json',
        path.name,
    ]


def test_metadata() -> None:
    model = RoPEViT(TINY, with_cls_token=False, window_block_indexes=(0,))
    metadata = file_metadata(graph_of(model), 'dynamic', 2, None)
    expected = dict(
        task='backbone', outputs=['map0'], patch_size=16, batch=2, size='dynamic'
    )
    expected |= dict(smallest_size=[16, 16], multiple_of=1, backbone_dtype='fp32')
    assert expected.items() <= metadata.items()
    assert metadata['input']['dtype'] == 'float32'


def test_a_file_for_larger_images_than_the_tests_is_reported() -> None:
    arch = dict(embed_dims=8, depths=(2, 2), num_heads=(1, 2))
    model = RoPESwin(arch, out_indices=(1,), window_size=4, shift_single_window=False)
    metadata = file_metadata(graph_of(model), 'dynamic', 2, None)
    assert metadata['smallest_size'] == [40, 40]
    for scale, said in (([64, 40], ''), ([64, 36], '--size 36x64')):
        advice = size_advice_text(metadata | dict(resize=dict(scale=scale)))
        assert said in advice and bool(said) == bool(advice)


# Parts


@pytest.mark.parametrize('bins', [1, 2, 3, 6, (2, 5), (None, 3)])
def test_pooling_is_that_of_torch(bins) -> None:
    pool = nn.AdaptiveAvgPool2d(bins)
    for size in ((6, 6), (7, 11), (1, 4), (13, 32)):
        x = torch.randn(2, 3, *size, dtype=torch.float64)
        torch.testing.assert_close(MeanPool(pool)(x), pool(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize('coordinates', [2, 4])
def test_deformable_attention_is_that_of_mmcv(coordinates: int) -> None:
    attention = (
        MultiScaleDeformableAttention(32, 4, 3, 2, batch_first=True).double().eval()
    )
    for parameter in attention.parameters():
        nn.init.normal_(parameter, std=0.3)
    sizes = [(5, 7), (3, 4), (2, 1)]
    tokens = sum(height * width for height, width in sizes)
    arguments = dict(
        query=torch.randn(2, 9, 32).double(),
        value=torch.randn(2, tokens, 32).double(),
        query_pos=torch.randn(2, 9, 32).double(),
        reference_points=torch.rand(2, 9, 3, coordinates).double(),
    )
    expected = attention(**arguments, spatial_shapes=torch.tensor(sizes))
    actual = MMCVDeformableAttention(attention)(**arguments, spatial_shapes=sizes)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


# Requests that cannot be


def vit(**settings: object) -> RoPEViT:
    return RoPEViT(TINY, **settings)


WINDOWS = dict(with_cls_token=False, window_block_indexes=(0,))
SCALING = dict(type='linear', temperature='log')
REFUSED = {
    'batch': (vit, dict(batch=0), 'batch must be an integer from 1 up, got 0'),
    'size': (vit, dict(size=(8, 64)), r'size must be an integer from 16 up.*\(8, 64\)'),
    'classes': (vit, dict(classes=['cat']), 'classes must be None for a backbone'),
    'model': (
        lambda: nn.Linear(1, 1),
        {},
        'model must be one of Backbone, .*, it is Linear',
    ),
    'windows': (
        lambda: vit(**WINDOWS, window_size='auto'),
        {},
        "size 'dynamic': windows that follow the image .* export at a fixed size",
    ),
    'swin windows': (
        lambda: RoPESwin(window_size='auto'),
        {},
        "size 'dynamic': windows that follow the image",
    ),
    'metres': (
        lambda: vit(ground_distance=0.3),
        dict(size=(64, 64)),
        'ground_distance: a model with positions in metres cannot be exported',
    ),
    'temperature': (
        lambda: vit(rope_scaling=SCALING),
        {},
        "size 'dynamic': the temperature of rope_scaling .* set its factor",
    ),
}


@pytest.mark.parametrize('case', REFUSED.values(), ids=REFUSED)
def test_wrong_requests_are_refused_before_tracing(
    case: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, arguments, message = case
    monkeypatch.setattr(exporter, 'trace', None)
    with pytest.raises(ValueError, match=message):
        export(make(), tmp_path / 'folder' / 'a.onnx', **arguments)
    assert not list(tmp_path.iterdir())


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r'a.pt: give NAME.onnx or NAME.pt2 \(TorchScript '
    ):
        export(vit(), tmp_path / 'a.pt')
    assert {f'.{name}' for name in Graph.formats} == {*exporter.FORMATS}


def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter, 'find_spec', lambda name: None)
    with pytest.raises(
        ValueError, match=r'needs onnx and onnxscript: pip install .*\[export\]'
    ):
        export(vit(), tmp_path / 'a.onnx')


def test_a_failure_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(exported, path: Path, outputs, metadata) -> None:
        path.write_text('half of it')
        raise RuntimeError('disk full')

    monkeypatch.setitem(exporter.FORMATS, '.pt2', exporter.FileFormat(fail))
    Results(tmp_path, 'a.pt2').write_text(tmp_path / 'a.pt2', 'the one before')
    with pytest.raises(RuntimeError, match='disk full'):
        export(vit(), tmp_path / 'a.pt2')
    assert [file.read_text() for file in tmp_path.glob('[!.]*')] == ['the one before']


def test_the_model_is_not_changed() -> None:
    model = vit().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    graph_of(model, torch.float16)
    assert model.training and all(
        parameter.requires_grad for parameter in model.parameters()
    )
    assert all(
        torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items()
    )
