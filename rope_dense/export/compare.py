"""Comparison of an exported file with its model, in the programs that are installed.

Letters: B images, M detections of an image.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..utils.errors import UsageError
from .exporter import graph_for
from .graphs import THRESHOLD, Graph

Runner = Callable[[Tensor], list[Tensor]]
NO_THRESHOLD = np.zeros((1, 1), np.float32)


def check_comparable(path: Path, dtype: str) -> None:
    """Raise UsageError where no program here runs such a file."""
    if path.suffix != '.onnx':
        return
    if dtype == 'bf16':
        reason = 'ONNX Runtime has no bfloat16 on a CPU'
    elif any(map(find_spec, ('onnxruntime', 'openvino'))):
        return
    else:
        reason = "neither onnxruntime (pip install 'rope_dense[export]') nor openvino is here"
    raise UsageError(f'{path} cannot be compared with the model, {reason}: --unchecked')


def compare_file(
    path: Path, model: nn.Module, metadata: dict, pictures: Sequence[Tensor] = ()
) -> Iterator[str]:
    """Run a file on noise of several sizes, and on pictures; yields a line of each.

    The model is in float32, whatever the file is in, and detections below the file's threshold are
    compared, too. ``metadata`` is what ``export`` returned, ``pictures`` [C, H, W] are BGR.

    Raises:
        UsageError: in the end, if no program could run the file, or one is wrong.
    """
    check_comparable(path, metadata['backbone_dtype'])
    graph = graph_for(model, metadata | dict(score=None))
    programs = runners(path, all_detections=True)
    images = [graph.example(*shape) for shape in input_shapes(graph, metadata)]
    images += [as_input(picture, metadata) for picture in pictures]
    wrong = set()
    ran = set()
    for number, image in enumerate(images):
        found = {}
        with torch.no_grad():
            expected = graph(image)
        for name, run in programs.items():
            try:
                found[name] = largest_difference(graph, run(image), expected)
                ran.add(name)
            except Exception as error:  # of any kind, as programs have
                yield f'{name} cannot run the file: {str(error).strip().splitlines()[-1]}'
                found[name] = torch.inf
            is_exact = metadata['backbone_dtype'] == 'fp32'
            if is_exact and not found[name] <= graph.tolerance:
                wrong.add(name)
        kind = 'image' if number >= len(images) - len(pictures) else 'noise'
        size = ' x '.join(map(str, image.shape))
        parts = ', '.join(f'{value:.1e} in {name}' for name, value in found.items())
        said = f'Largest difference from the model in fp32 for {kind} {size}, of the largest value'
        yield f'{said}: {parts}'
    if wrong:
        names = ' and '.join(sorted(wrong))
        raise UsageError(
            f'{path}: do not use the file in {names}, where it is wrong (--unchecked)'
        )
    if not ran:
        raise UsageError(f'{path}: no program here can run the file (--unchecked)')


def as_input(picture: Tensor, metadata: dict) -> Tensor:
    """Images [B, C, H, W] that a file takes, of one picture; cut or padded where it has to be."""
    image = picture[None].to(getattr(torch, metadata['input']['dtype']))
    if metadata['rgb']:
        image = image.flip(1)
    height, width = metadata['smallest_size']
    if metadata['size'] == 'dynamic':
        height = max(height, image.shape[2])
        width = max(width, image.shape[3])
    image = F.pad(image, (0, width - image.shape[3], 0, height - image.shape[2]))
    batch = 1 if metadata['batch'] == 'dynamic' else metadata['batch']
    return image.repeat(batch, 1, 1, 1)


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
    """The largest difference of a detection from what is nearest to it in the other output.

    That is a detection with its label, scores and boxes relative to the largest, or none, which
    has the score 0. So detections may change places, or be lost where they have hardly a score.
    """
    scores, boxes, labels, *_ = actual
    wanted, wanted_boxes, wanted_labels, *_ = expected
    is_finite = scores.isfinite().all() and boxes.isfinite().all()
    if len(scores) != len(wanted) or not is_finite:
        return torch.inf
    scores = scores[:, :, None] / largest(wanted)  # [B, M, 1]
    wanted = wanted[:, None] / largest(wanted)  # [B, 1, N]
    moved = (boxes[:, :, None] - wanted_boxes[:, None]).abs().amax(-1)  # [B, M, N]
    distance = (scores - wanted).abs().maximum(moved / largest(wanted_boxes))
    other = labels[:, :, None] != wanted_labels[:, None]
    distance = distance.masked_fill(other, torch.inf)
    found = torch.cat([distance, scores], 2).amin(2)
    missing = torch.cat([distance, wanted], 1).amin(1)
    return float(F.pad(torch.cat([found, missing], 1), (0, 1)).max())


def largest(x: Tensor) -> float:
    """The largest number, of zeros and of none 1."""
    return float(x.abs().max()) or 1.0 if x.numel() else 1.0


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    """The largest difference; of zeros, as a detector that finds nothing has, as it is."""
    if actual.shape != expected.shape or not actual.isfinite().all():
        return torch.inf
    if not expected.numel():
        return 0.0
    return float((actual - expected).abs().max()) / largest(expected)


def runners(path: Path, all_detections: bool = False) -> dict[str, Runner]:
    """The programs here that run a file on a CPU, by name; they load it when called.

    ``all_detections`` sets the threshold of the scores in the file to 0.
    """
    if path.suffix == '.pt2':
        module = torch.export.load(path).module()
        for buffer, value in module.named_buffers():
            if all_detections and buffer == THRESHOLD:
                value.zero_()
        name = f'PyTorch {torch.__version__}'
        return {name: lambda image: [x.detach() for x in module(image)]}
    found: dict[str, Runner] = {}
    if find_spec('onnxruntime'):
        import onnxruntime

        session = cache(partial(onnx_session, path, all_detections))
        found[f'ONNX Runtime {onnxruntime.__version__}'] = lambda image: [
            torch.from_numpy(out)
            for out in session().run(None, {'image': image.numpy()})
        ]
    if find_spec('openvino'):
        model = cache(partial(openvino_model, path, all_detections))
        found[f'OpenVINO {version("openvino")}'] = lambda image: [
            torch.from_numpy(out.copy()) for out in model()(image.numpy()).to_tuple()
        ]
    return found


def onnx_session(path: Path, all_detections: bool = False) -> Any:
    """A file in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if all_detections:
        zero = onnxruntime.OrtValue.ortvalue_from_numpy(NO_THRESHOLD)
        options.add_initializer(THRESHOLD, zero)
    cpu = ['CPUExecutionProvider']
    return onnxruntime.InferenceSession(path, options, providers=cpu)


def openvino_model(path: Path, all_detections: bool = False) -> Any:
    """A file in OpenVINO, in float32."""
    import openvino
    from openvino.opset13 import constant

    core = openvino.Core()
    model = core.read_model(path)
    for node in model.get_ops():
        if all_detections and node.get_friendly_name() == THRESHOLD:
            node.output(0).replace(constant(NO_THRESHOLD).output(0))
    return core.compile_model(model, 'CPU', {'INFERENCE_PRECISION_HINT': 'f32'})
