"""Comparison of an exported file with its model."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from .graphs import Graph, graph_of


def check_file(path: Path, model: nn.Module, metadata: dict) -> str:
    """Run a file once, on noise; returns its difference to the model, or why it was not run.

    Args:
        model: in float32, whatever the file is in.
        metadata: what ``export`` returned.
    """
    if path.suffix == '.onnx' and not find_spec('onnxruntime'):
        return 'Not compared with the model: onnxruntime is not installed'
    if path.suffix == '.onnx' and metadata['backbone_dtype'] == 'bf16':
        return 'Not compared with the model: ONNX Runtime has no bfloat16 on a CPU'
    graph = graph_of(model)
    batch = 1 if metadata['batch'] == 'dynamic' else metadata['batch']
    size = graph.generic if metadata['size'] == 'dynamic' else metadata['size']
    image = graph.example(batch, *size)
    difference = largest_difference(path, graph, image)
    shape = ' x '.join(map(str, image.shape))
    return (
        f'Largest difference from the model in fp32 for {shape}: {difference:.1e} of the largest '
        'value'
    )


def largest_difference(path: Path, graph: Graph, image: Tensor) -> float:
    """The largest difference of two outputs, relative to the largest number of the output.

    An output of zeros, as of a detector that finds nothing, has the difference as it is.
    """
    with torch.no_grad():
        expected = dict(zip(graph.outputs, graph(image), strict=True))
    actual = dict(zip(graph.outputs, run_file(path, image), strict=True))
    differences = [(actual[name] - expected[name]).abs().max() for name in graph.compared]
    largest = [expected[name].abs().max() for name in graph.compared]
    scales = [float(value) or 1.0 for value in largest]
    return max(float(a) / b for a, b in zip(differences, scales, strict=True))


def run_file(path: Path, image: Tensor) -> list[Tensor]:
    """Outputs of an exported file, computed on the CPU.

    ONNX Runtime runs ONNX files with all its optimisations, PyTorch the others.
    """
    if path.suffix == '.pt2':
        return list(torch.export.load(path).module()(image))
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=['CPUExecutionProvider'])
    return [torch.from_numpy(out) for out in session.run(None, {'image': image.numpy()})]
