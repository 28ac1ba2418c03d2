"""Operators that are written to ONNX by our own table, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx_ir
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from helpers.exported import assert_plain, assert_same, onnx, run, session
from rope_dense.export import exporter, onnx_file


class Program(nn.Module):
    """Images [B, 3, H, W] to tensors."""

    def __init__(self, compute: Callable[[Tensor], tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return self.compute(image)


def written(
    compute: Callable[[Tensor], tuple[Tensor, ...]], path: Path, number: int
) -> None:
    dims = {
        axis: torch.export.Dim(name, min=16)
        for axis, name in ((2, 'height'), (3, 'width'))
    }
    dims[0] = torch.export.Dim('batch')
    with exporter.quiet_tracing():
        exported = torch.export.export(
            compute if isinstance(compute, nn.Module) else Program(compute).eval(),
            (torch.randn(2, 3, 24, 40),),
            dynamic_shapes=(dims,),
            strict=False,
            prefer_deferred_runtime_asserts_over_guards=True,
        )
    exporter.drop_assumptions(exported)
    with exporter.quiet_tracing():
        names = tuple(f'out{index}' for index in range(number))
        graph: Any = SimpleNamespace(outputs=names, resize=None)
        onnx_file.write_program(
            exported, path, graph, dict(opset=20, backbone_dtype='fp32')
        )


def numbers(x: Tensor) -> tuple[Tensor, ...]:
    height, width = x.shape[2:]
    order = torch.stack([torch.arange(width) * 7 % 5 * width, torch.arange(width)]).sum(
        0
    )
    inside = (x > 0) & (x < 1) | (x > 2)
    lowest = torch.zeros_like(x).masked_fill_(inside, -3.0)
    floats = (
        torch.arange(height, dtype=torch.float32),
        torch.arange(0.5, 2, 0.25) + x[0, 0, 0, 0],
    )
    steps = torch.arange(3, width), torch.arange(1, 2 * width, 2)
    some = (
        1 - x,
        x.square(),
        x.clip(-0.5, 0.5),
        x.half(),
        inside,
        lowest,
        order.argsort(),
        order.clamp(2, 30) + order.clamp(max=9),
        (order - 20) // 7,
    )
    return *some, *floats, *steps, F.dropout(x, 0.5, training=False) + 1


def shapes(x: Tensor) -> tuple[Tensor, ...]:
    height, width = x.shape[2:]
    grid = torch.broadcast_tensors(x[:, :1], x[:, :, :1])
    parts = x.flatten(2).split([width, height * width - width], -1)
    folded = x.flatten(0, 1).unflatten(1, (-1, 1)), x.flatten(1, 2), x.flatten()
    return (
        *grid,
        *parts,
        *folded,
        x.swapaxes(1, 3),
        x[0, 0].T,
        x.new_full((), 4.0) + x.mean(),
    )


WEIGHT, BIAS, SCALE = torch.randn(3, 2, 4, 4), torch.randn(3, 3), torch.rand(3) + 0.5
MASK = torch.tensor([[True, False, True], [True] * 3, [False, True, False]])


def layers(x: Tensor) -> tuple[Tensor, ...]:
    rows = x.transpose(1, 2)  # [B, H, 3, W], attention among 3
    attended = (
        F.scaled_dot_product_attention(
            rows[..., :8], rows[..., 8:16], rows, attn_mask=chosen
        )
        for chosen in (None, MASK, BIAS)
    )
    return (
        F.batch_norm(x, SCALE, SCALE + 1, SCALE - 0.2, SCALE * 2, eps=1e-3),
        F.rms_norm(x.transpose(1, 3), (3,), SCALE),
        F.conv_transpose2d(
            x, WEIGHT, stride=2, padding=1, dilation=2, output_padding=1
        ),
        *attended,
    )


TABLE = torch.randn(1, 4, 7, 9)


def samples(x: Tensor) -> tuple[Tensor, ...]:
    """Inside and outside of maps, one of one place; tables that grow and shrink."""
    height, width = x.shape[2:]
    grid = 3 * x[:, :2, :9].permute(0, 2, 3, 1)
    single = x[:, :, :1, :1]
    grown = F.interpolate(TABLE, (height, width), mode='bicubic')
    return (
        F.grid_sample(x, grid),
        F.grid_sample(single, grid, align_corners=False),
        F.grid_sample(x, grid / 3, align_corners=True),
        grown,
        F.interpolate(TABLE, (height // 4, width // 8), mode='bicubic'),
        F.interpolate(x[:, :, :1], (width, height), mode='bicubic'),
    )


@pytest.mark.parametrize('compute', [numbers, shapes, layers, samples])
@torch.no_grad()
def test_operators_compute_the_same(
    compute: Callable[[Tensor], tuple[Tensor, ...]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At another size than the traced one, and without a decomposition."""

    def refuse(*arguments: object) -> None:
        raise AssertionError('decomposed')

    monkeypatch.setattr(torch.export.ExportedProgram, 'run_decompositions', refuse)
    path, image = tmp_path / 'operators.onnx', torch.randn(3, 3, 17, 26)
    expected = compute(image)
    written(compute, path, len(expected))
    assert_plain(path)
    assert_same(
        [x.float() for x in run(session(path), image)], [x.float() for x in expected]
    )


def repeated(x: Tensor) -> tuple[Tensor, ...]:
    """Samples and limits that share numbers, and slices of which some are of whole axes."""
    grid = x[:, :2, :9].permute(0, 2, 3, 1)
    sample = partial(F.grid_sample, x, align_corners=False)
    sampled = sample(grid) + sample(grid.flip(-1))
    limited = x.clamp(0.0, 1.0) + (x * 2).clamp(0.0, 1.0) + x.clamp(0, x.shape[2])
    return sampled, limited, x[:, :2, :, 0::2], x[:, :2, :, 1::2]


@torch.no_grad()
def test_tools_that_change_files_keep_them_right(tmp_path: Path) -> None:
    """Half precision by ONNX Runtime's converter, whose casts of a number have one name."""
    float16 = pytest.importorskip('onnxruntime.transformers.float16')
    path, image = tmp_path / 'operators.onnx', torch.randn(2, 3, 17, 26)
    expected = repeated(image)
    written(repeated, path, len(expected))
    model = onnx.load(path)
    kinds = [node.op_type for node in model.graph.node]
    assert_plain(path)
    assert kinds.count('Clip') == 3
    half = float16.convert_float_to_float16(model, keep_io_types=True)
    onnx.save(half, path)
    for actual, wanted in zip(run(session(path), image), expected, strict=True):
        assert (actual - wanted).abs().max() < 0.02


@torch.no_grad()
def test_reshapes_can_be_joined(tmp_path: Path) -> None:
    """As onnxoptimizer does: none copies a side of the one before it, by 0."""

    def compute(x: Tensor) -> tuple[Tensor, ...]:
        rows = x.permute(0, 2, 3, 1).flatten(0, 2)  # [B H W, 3]
        joined = rows @ rows.new_ones(3, 12)
        return (joined.unflatten(0, (-1, 2)).unflatten(-1, (-1, 4)),)

    path, image = tmp_path / 'operators.onnx', torch.randn(2, 3, 17, 26)
    written(compute, path, 1)
    assert_same(run(session(path), image), compute(image))
    model = onnx.load(path)
    last = model.graph.node[-1]
    assert last.op_type == 'Reshape'
    (shape,) = [x for x in model.graph.initializer if x.name == last.input[1]]
    assert onnx.numpy_helper.to_array(shape).tolist() == [-1, 2, 3, 4]


@torch.no_grad()
def test_other_operators_are_decomposed(tmp_path: Path) -> None:
    """One without a translation, and a change in place of what is read later."""

    def compute(x: Tensor) -> tuple[Tensor, ...]:
        changed = x + 1
        changed[:, 1] *= 2
        return torch.logaddexp(x, x * 2), changed, F.hardswish(x)

    path, image = tmp_path / 'operators.onnx', torch.randn(1, 3, 19, 20)
    written(compute, path, 3)
    assert_same(run(session(path), image), compute(image))


def test_shapes_are_inferred_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While tracing, without a cache of sizes: what ONNX has to add alone is computed later."""
    computed = []
    call = torch.fx.Interpreter.call_function

    def counted(interpreter: torch.fx.Interpreter, target: Any, *given: Any) -> Any:
        computed.append(target)
        return call(interpreter, target, *given)

    monkeypatch.setattr(torch.fx.Interpreter, 'call_function', counted)
    with exporter.quiet_tracing():
        assert not FakeTensorMode().cache_enabled
    written(numbers, tmp_path / 'operators.onnx', 14)
    aten = torch.ops.aten
    assert {*computed} <= {aten._to_copy.default, aten.scalar_tensor.default}


def test_files_that_few_programs_can_run_are_refused(tmp_path: Path) -> None:
    def branches(x: Tensor) -> tuple[Tensor, ...]:
        return (torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,)),)

    with pytest.raises(
        ValueError, match='needs If in ONNX, which few programs can run'
    ):
        written(branches, tmp_path / 'a.onnx', 1)
    model = onnx.helper.make_graph(
        [onnx.helper.make_node('Relu', ['image'], ['out'])],
        'graph',
        [onnx.helper.make_tensor_value_info('image', onnx.TensorProto.FLOAT, [1])],
        [onnx.ValueInfoProto(name='out')],  # without a type
    )
    proto = onnx.helper.make_model(model)
    opset = proto.opset_import[0].version
    onnx.save(proto, tmp_path / 'b.onnx')
    with pytest.raises(ValueError, match=r'b\.onnx is no valid ONNX file: .*type'):
        onnx_file.check_onnx(onnx_ir.from_proto(proto), tmp_path / 'b.onnx', opset)
