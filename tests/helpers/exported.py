"""Exported models beside the models themselves."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from mmdet.structures import DetDataSample
from mmseg.structures import SegDataSample
from torch import Tensor, nn

from helpers.onnx_operators import refused

if TYPE_CHECKING:
    import onnx
    import onnxruntime
else:
    onnx = pytest.importorskip('onnx', reason="pip install 'rope_dense[export]'")
    onnxruntime = pytest.importorskip(
        'onnxruntime', reason="pip install 'rope_dense[export]'"
    )

TOLERANCE = 1e-4
logging.getLogger(
    'torch.__trace'
).disabled = True  # or pytest keeps each comparison of sizes


def strong(model: nn.Module) -> nn.Module:
    """Random weights with which every part, attention and rotation among them, matters."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and 'freqs' not in name:
            nn.init.normal_(parameter, std=parameter[0].numel() ** -0.5)
        elif name.endswith('bias'):
            nn.init.normal_(parameter, std=0.1)
        elif 'freqs' not in name:
            nn.init.uniform_(parameter, 0.5, 1.5)
    for module in model.modules():
        if (
            isinstance(module, nn.modules.batchnorm._BatchNorm)
            and module.track_running_stats
        ):
            assert module.running_mean is not None and module.running_var is not None
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return model.eval()


def pixels(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8)


def sizes_from(least: int) -> list[tuple[int, int, int]]:
    """(batch, height, width): the smallest of a graph, very wide, prime and odd ones."""
    return [(1, least, least), (3, max(17, least), 300), (2, 113, least), (2, 97, 131)]


def session(path: Path) -> onnxruntime.InferenceSession:
    """ONNX Runtime with all its optimisations, in one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    return onnxruntime.InferenceSession(
        path, options, providers=['CPUExecutionProvider']
    )


def run(model: onnxruntime.InferenceSession, image: Tensor) -> list[Tensor]:
    return [torch.from_numpy(out) for out in model.run(None, {'image': image.numpy()})]


def assert_same(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    """Each within ``TOLERANCE`` of its largest value."""
    for a, b in zip(actual, expected, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        assert (a - b).abs().max() <= TOLERANCE * b.abs().max()


def segmented(model: nn.Module, image: Tensor) -> tuple[Tensor, Tensor]:
    """mmseg's prediction for images [B, 3, H, W], each on its own."""
    size, results = tuple(image.shape[2:]), []
    for one in image:
        sample = SegDataSample(metainfo=dict(ori_shape=size, img_shape=size))
        data = model.data_preprocessor(dict(inputs=[one], data_samples=[sample]), False)
        results += model(**data, mode='predict')
    logits = torch.stack([result.seg_logits.data for result in results])
    return logits, torch.stack([result.pred_sem_seg.data[0] for result in results])


def assert_segmented(model: nn.Module, actual: list[Tensor], image: Tensor) -> None:
    logits, labels = actual
    expected, expected_labels = segmented(model, image)
    assert_same([logits], [expected])
    sure = (
        expected.topk(2, 1).values.diff(dim=1)[:, 0].abs() > 1e-3 * expected.abs().max()
    )
    assert sure.any()
    assert torch.equal(labels[sure], expected_labels[sure])


def detected(model: nn.Module, image: Tensor) -> list[Tensor]:
    """mmdet's prediction: scores, boxes and labels."""
    size = tuple(image.shape[2:])
    metainfo = dict(ori_shape=size, img_shape=size, scale_factor=(1.0, 1.0))
    samples = [DetDataSample(metainfo=metainfo) for _ in image]
    data = model.data_preprocessor(
        dict(inputs=list(image), data_samples=samples), False
    )
    found = [sample.pred_instances for sample in model(**data, mode='predict')]
    return [
        torch.stack([one[name] for one in found])
        for name in ('scores', 'bboxes', 'labels')
    ]


def alone_in_order(scores: Tensor) -> Tensor:
    """Which of the scores [B, N], the largest first, differ from those beside them."""
    gap = scores.diff(dim=1).abs() > 1e-4 * scores.max()
    end = torch.ones_like(gap[:, :1])
    alone = torch.cat([end, gap], 1) & torch.cat([gap, ~end], 1)
    assert alone.sum() >= len(scores)
    return alone


def assert_detected(actual: list[Tensor], expected: list[Tensor]) -> None:
    """The same, but for the order of detections with nearly equal scores."""
    assert_same(actual[:1], expected[:1])
    alone = alone_in_order(expected[0])
    assert_same([actual[1][alone]], [expected[1][alone]])
    assert torch.equal(actual[2][alone], expected[2][alone])


SPECIAL = (
    'Sequence',
    'Optional',
    'If',
    'Loop',
    'Scan',
    'String',
)  # in names of operators


def assert_plain(path: Path, opset: int = 20, rare: Sequence[str] = ()) -> None:
    """Operators that programs have, types and names of outputs, no path of this machine.

    ``rare`` are operators, as ``refused`` writes them, that a file has by its options.
    """
    assert refused(onnx.load(path)) == [*rare]
    onnx.checker.check_model(path, full_check=True)
    model = onnx.load(path)
    assert [(one.domain, one.version) for one in model.opset_import] == [('', opset)]
    assert not model.functions and not model.graph.value_info
    types = {
        info.type.tensor_type.elem_type
        for info in (*model.graph.input, *model.graph.output)
    }
    types |= {tensor.data_type for tensor in model.graph.initializer}
    complex_types = {onnx.TensorProto.COMPLEX64, onnx.TensorProto.COMPLEX128}
    assert types and not types & {onnx.TensorProto.UNDEFINED, *complex_types}
    for out in model.graph.output:
        names = [side.dim_param for side in out.type.tensor_type.shape.dim]
        assert all(not name or name.isidentifier() for name in names), names
    for node in model.graph.node:
        assert node.domain == '' and not any(
            part in node.op_type for part in SPECIAL
        ), node
        assert not any(attribute.HasField('g') for attribute in node.attribute)
        if node.op_type in ('Expand', 'Reshape'):
            shapes = [
                tensor
                for tensor in model.graph.initializer
                if tensor.name == node.input[1]
            ]
            assert all(shape.dims != [0] for shape in shapes), node
    text = b''.join(node.SerializeToString() for node in model.graph.node)
    assert b'.py' not in text
