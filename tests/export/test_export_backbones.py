"""Backbones in the formats of torch.export and ONNX, at sizes that were not traced."""

import json
from pathlib import Path

import pytest
import torch

from helpers.exported import assert_plain, assert_same, run, session, strong
from helpers.exported_models import MIXED, NAT, nat, swin, vit, windowed
from rope_dense.backbones import RoPEViT
from rope_dense.backbones.base import Backbone
from rope_dense.export import export
from rope_dense.export.exporter import METADATA, trace
from rope_dense.export.graphs import graph_of

AXIAL = dict(type='AxialRoPE')
# Batch, height, width; one patch, odd, prime and very wide.
SIZES = ((1, 8, 8), (3, 17, 300), (2, 113, 8), (1, 224, 112), (2, 97, 131))


NAT_S = dict(NAT, overlapping=False)


def family(name: str, **settings: object) -> Backbone:
    """A published family of ViTs at a toy size."""
    sizes = dict(embed_dims=16, depth=2, num_heads=2, patch_size=8, img_size=64)
    return RoPEViT(
        dict(RoPEViT.ARCHS[name], **sizes), **dict(final_norm=True) | settings
    )


BY_PARTS = dict(type='by_parts')
TRACED = {
    'no rope': lambda: vit(rope=None),
    'learned axial': lambda: vit(rope=dict(AXIAL, learned=True)),
    'mixed with a position embedding': lambda: vit(rope=MIXED, use_ape=True),
    'scaled by parts': lambda: vit(rope=MIXED, img_size=64, rope_scaling=BY_PARTS),
    'dinov3 with swiglu': lambda: family('dinov3_small_plus'),
    'eva02 with norms': lambda: family('eva02_clip_base'),
    'perception encoder': lambda: family('pe_core_base'),
    'rope_reg': lambda: family('rope_reg4_betwixt'),
    'eva02 in windows': lambda: family(
        'eva02_base', with_cls_token=False, window_size=3, window_block_indexes=(0,)
    ),
    'unequal windows, masked': lambda: windowed(window_size=(3, 4), mask_padding=True),
    'relative position': lambda: windowed(
        rope=None, attention=dict(type='DecomposedBias', img_size=64)
    ),
    'swin with bias': lambda: swin(rope=None, attention=dict(type='TableBias')),
    'swin log-axial': lambda: swin(rope=dict(type='LogAxialRoPE', k_rope=1)),
    'swin, masked': lambda: swin(rope=MIXED, mask_padding=True),
    'swin of whole maps': lambda: swin(rope=MIXED, window_size=None),
    'nat without overlap, with bias': lambda: nat(
        rope=MIXED, attention=dict(type='TableBias'), arch=NAT_S
    ),
}
IN_ONNX = {  # beside those of test_export_runtimes.py
    'dinov3': lambda: family('dinov3_small'),
    'eva02': lambda: family('eva02_base'),
    'sapiens2': lambda: family('sapiens2_01b'),
    'v-jepa': lambda: family('vjepa2_1_base', out_indices=(0, 1), final_norm='default'),
    'rice': lambda: family('rice_large'),
    'qwen3': lambda: family('qwen3_88m'),
    'pe-lang': lambda: family('pe_lang_large'),
    'log-axial with bias': lambda: windowed(
        rope=dict(type='LogAxialRoPE'),
        attention=dict(type='TableBias', resize='zeros'),
        patch_norm=True,
    ),
    'resformer': lambda: family('resformer_small'),
    'sine': lambda: vit(rope=None, use_ape='sine'),
}


def names_of(models: dict, *fast: str) -> list:
    """Names of models, of which ``fast`` are not slow: one of each class, if it takes seconds."""
    return [
        pytest.param(name, marks=() if name in fast else pytest.mark.slow)
        for name in models
    ]


@pytest.mark.parametrize('name', names_of(TRACED, 'eva02 in windows'))
@torch.no_grad()
def test_one_trace_is_right_at_every_size(name: str) -> None:
    model = strong(TRACED[name]())
    exported = trace(graph_of(model), 'dynamic', 'dynamic')
    names = [
        str(node.target) for node in exported.graph.nodes if node.op == 'call_function'
    ]
    assert not [name for name in names if 'complex' in name or 'rope_dense' in name]
    operators = [name.split('.')[1] for name in names if name.startswith('aten.')]
    in_place = [name for name in operators if name.endswith('_') and name[0] != '_']
    assert operators and not in_place
    traced = exported.module()
    for batch, height, width in SIZES:
        image = torch.randn(batch, 3, height, width)
        assert_same(traced(image), model(image))


@pytest.mark.parametrize('name', names_of(IN_ONNX, 'dinov3'))
@torch.no_grad()
def test_onnx_runtime_agrees_at_every_size(name: str, tmp_path: Path) -> None:
    model, path = strong(IN_ONNX[name]()), tmp_path / 'backbone.onnx'
    metadata = export(model, path)
    assert_plain(path)
    runtime = session(path)
    assert [out.name for out in runtime.get_outputs()] == metadata['outputs']
    assert runtime.get_inputs()[0].shape == ['batch', 3, 'height', 'width']
    stored = runtime.get_modelmeta().custom_metadata_map
    assert json.loads(stored[METADATA]) == metadata
    for batch, height, width in SIZES:
        image = torch.randn(batch, 3, height, width)
        assert_same(run(runtime, image), model(image))
    assert max(metadata['smallest_size']) <= 8


@pytest.mark.parametrize(
    'make',
    [windowed, *(pytest.param(make, marks=pytest.mark.slow) for make in (vit, swin))],
)
@torch.no_grad()
def test_windows_that_follow_the_image_at_a_fixed_size(
    make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, path = strong(make(rope=MIXED)), tmp_path / 'backbone.onnx'
    model.set_window_size('auto')
    export(model, path, size=(117, 168), batch=1)
    assert not caplog.messages  # nor of norms of constants, such as prefix tokens
    image = torch.randn(1, 3, 117, 168)
    assert_same(run(session(path), image), model(image))


@pytest.mark.parametrize(
    'dtype', [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.slow)]
)
@torch.no_grad()
def test_half_precision_keeps_angles_in_float32(dtype: torch.dtype) -> None:
    model = strong(vit(rope=MIXED))
    graph = graph_of(model, dtype)
    assert {p.dtype for name, p in graph.named_parameters() if 'freqs' in name} == {
        torch.float32
    }
    assert {p.dtype for name, p in graph.named_parameters() if 'freqs' not in name} == {
        dtype
    }
    traced = trace(graph, 'dynamic', 'dynamic').module()
    image = torch.randn(3, 3, 117, 168)
    for actual, expected in zip(traced(image), model(image), strict=True):
        assert actual.dtype == torch.float32
        assert (actual - expected).norm() < 4 * torch.finfo(dtype).eps * expected.norm()
    assert all(p.dtype == torch.float32 for p in model.parameters())
