"""Comparison of an exported file with its model, in the programs that are installed.

Letters: B images, M detections of an image.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from .exporter import graph_for
from .graphs import Graph

Runner = Callable[[Tensor], list[Tensor]]
TOO_MUCH = 1e-2  # in float32, of the largest value


def compare_file(path: Path, model: nn.Module, metadata: dict) -> Iterator[str]:
    """Run a file on noise of several sizes; yields a line of each, or why it was not run.

    The model is in float32, whatever the file is in; ``metadata`` is what ``export`` returned.
    """
    if path.suffix == '.onnx' and metadata['backbone_dtype'] == 'bf16':
        yield 'Not compared with the model: ONNX Runtime has no bfloat16 on a CPU'
        return
    graph = graph_for(model, metadata)
    programs = runners(path)
    wrong = set()
    if not programs:
        yield 'Not compared with the model: onnxruntime is not installed'
    for shape in input_shapes(graph, metadata) if programs else ():
        image = graph.example(*shape)
        found = {}
        with torch.no_grad():
            expected = graph(image)
        for name, run in programs.items():
            try:
                found[name] = largest_difference(graph, run(image), expected)
            except Exception as error:  # of any kind, as programs have
                yield f'{name} cannot run the file: {str(error).strip().splitlines()[-1]}'
                found[name] = torch.inf
            if metadata['backbone_dtype'] == 'fp32' and not found[name] <= TOO_MUCH:
                wrong.add(name)
        size = ' x '.join(map(str, image.shape))
        parts = ', '.join(f'{value:.1e} in {name}' for name, value in found.items())
        if any(map(torch.numel, expected)):
            said = f'Largest difference from the model in fp32 for {size}, of the largest value:'
            yield f'{said} {parts}'
        else:
            yield f'Not compared for {size}: no detection in noise reaches the score'
    for name in sorted(wrong):
        yield f'WARNING: do not use the file in {name}, where it is wrong'


def input_shapes(graph: Graph, metadata: dict) -> list[tuple[int, int, int]]:
    """(batch, height, width) of three sizes and two batches, as far as a file takes them."""
    (height, width), size, batch = graph.generic, metadata['size'], metadata['batch']
    sizes = [(height, width), (height + 9, 2 * width + 5), (2 * height, width + 1)]
    sizes = sizes if size == 'dynamic' else [(size[0], size[1])] * 3
    batches = (1, 2, 1) if batch == 'dynamic' else (batch,) * 3
    found = [(batch, *size) for batch, size in zip(batches, sizes, strict=True)]
    return list(dict.fromkeys(found))


def largest_difference(
    graph: Graph, actual: Sequence[Tensor], expected: Sequence[Tensor]
) -> float:
    """The largest difference of two outputs, relative to the largest number of the output."""
    pairs = zip(actual, expected, strict=True)
    found = dict(zip(graph.outputs, pairs, strict=True))
    detected = []
    for names in graph.detections:
        both = zip(*map(found.pop, names), strict=True)
        detected.append(detected_difference(*both))
    others = []
    for name, pair in found.items():
        if not name.endswith('labels'):
            others.append(relative_difference(*pair))
    return max(others + detected)


def detected_difference(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The same of scores [B, M], and of boxes and labels whose score no other detection has nearly.

    The others may have changed places.
    """
    scores, boxes, labels, *_ = actual
    wanted, wanted_boxes, wanted_labels, *_ = expected
    difference = relative_difference(scores, wanted)
    apart = wanted.diff(dim=1).abs() > max(1e-4, 4 * difference)
    first = torch.ones_like(wanted[:, :1], dtype=torch.bool)
    alone = torch.cat([first, apart], 1) & torch.cat([apart, ~first], 1)
    if difference == torch.inf or not torch.equal(labels[alone], wanted_labels[alone]):
        return torch.inf
    return max(difference, relative_difference(boxes[alone], wanted_boxes[alone]))


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    """The largest difference; of zeros, as a detector that finds nothing has, as it is."""
    if actual.shape != expected.shape or not actual.isfinite().all():
        return torch.inf
    if not expected.numel():
        return 0.0
    largest = float(expected.abs().max())
    return float((actual - expected).abs().max()) / (largest or 1.0)


def runners(path: Path) -> dict[str, Runner]:
    """The programs here that run a file on a CPU, by name; they load it when called."""
    if path.suffix == '.pt2':
        module = torch.export.load(path).module()
        name = f'PyTorch {torch.__version__}'
        return {name: lambda image: [x.detach() for x in module(image)]}
    found: dict[str, Runner] = {}
    if find_spec('onnxruntime'):
        import onnxruntime

        cpu = ['CPUExecutionProvider']
        session = cache(partial(onnxruntime.InferenceSession, path, providers=cpu))
        found[f'ONNX Runtime {onnxruntime.__version__}'] = lambda image: [
            torch.from_numpy(out)
            for out in session().run(None, {'image': image.numpy()})
        ]
    if find_spec('openvino'):
        import openvino

        settings = {'INFERENCE_PRECISION_HINT': 'f32'}
        model = cache(partial(openvino.Core().compile_model, path, 'CPU', settings))
        found[f'OpenVINO {version("openvino")}'] = lambda image: [
            torch.from_numpy(out.copy()) for out in model()(image.numpy()).to_tuple()
        ]
    return found
