"""Write a model to a file that runs without this package, and without OpenMMLab."""

import errno
import json
import logging
import math
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental import _config as symbolic_config

from ..backbones.base import Backbone, backbone_of
from ..rope.grid import build_scaling
from ..utils.disk import named_disk_errors
from ..utils.results import Results
from ..utils.sizes import ImageSize
from ..utils.validation import checked_integer, checked_number, checked_size, refuse
from ..version import __version__
from .client import Resize
from .graphs import Graph, graph_of

Dynamic = Literal['dynamic']
DTYPES = {
    torch.float32: 'fp32',
    torch.float16: 'fp16',
    torch.bfloat16: 'bf16',
    torch.int8: 'int8',
}
OPSET, OLDEST_OPSET = 20, 17
MEANING = dict(  # of outputs. B images of H x W pixels, K classes, M detections, Q queries
    map='features [B, C, h, w]',
    features='the map that all tasks share, [B, C, h, w]',
    scores='of detections [B, M], highest first, 0 without one; of classes [B, K], no softmax',
    boxes='[B, M, 4] left, top, right, bottom in pixels; [B, M, 5] cx, cy, w, h, clockwise angle',
    corners='[B, M, 4, 2] (x, y) around each box',
    labels='places in the list of classes [B, M], -1 without a detection; of pixels [B, H, W]',
    logits='[B, K, H, W]',
    classes='probabilities [B, Q, K + 1], the last of no object',
    masks='[B, M or Q, H, W] bool, probabilities or logits (DEIM; if not resized, a quarter)',
    depth='[B, 1, H, W] in metres',
)
METADATA = 'rope_dense'  # the key of the metadata in an ONNX file
METADATA_FILE = f'{METADATA}.json'  # and its name in a .pt2 file


def export(
    model: nn.Module,
    path: str | Path,
    *,
    size: ImageSize | Dynamic = 'dynamic',
    batch: int | Dynamic = 'dynamic',
    dtype: torch.dtype = torch.float32,
    classes: Sequence[str] | None = None,
    colours: Sequence[Sequence[int]] | None = None,
    resize: dict | None = None,
    resize_inside: bool = False,
    rgb: bool = False,
    top: int | None = None,
    score: float | None = None,
    opset: int = OPSET,
) -> dict:
    """Export a backbone of rope_dense, or a classifier, segmentor or detector with one.

    The file has the input ``image`` and the outputs that the metadata names: maps of a backbone;
    ``scores`` of a classifier; ``logits`` and ``labels`` of a segmentor; ``scores``, ``boxes`` and
    ``labels`` of a detector. It is traced with ``torch.export`` and contains plain operators only:
    rotations are real products of angles that are computed from the size of each image. Checked in
    tests/export/ against the models in PyTorch, at sizes that were not traced.

    Args:
        model: it is not changed.
        path: file to write: NAME.pt2, or NAME.onnx, for which the extra ``rope_dense[export]`` has
            to be installed. Weights above 2 GB go to NAME.onnx.data, the metadata to NAME.json.
        size: (height, width) of the images in pixels, or 'dynamic'.
        batch: images at a time, or 'dynamic'.
        dtype: precision of the backbone, of a ``DEIM`` also of its neck, encoder, decoder layers
            and masks. What stays in float32 is in the metadata, ``float32_parts``. int8: of the
            weights of matrix products, in ONNX; they are computed from float32.
        classes: names of the classes, for the metadata.
        colours: of the classes, (red, green, blue) each, for the metadata.
        resize: of the test pipeline, for the metadata: ``scale``, (width, height) in pixels, and
            ``keep_ratio``, with which the scale bounds both sides.
        resize_inside: resize images of any size so in the file, and give boxes, masks and maps in
            pixels of the input. In ONNX.
        rgb: channels come as red, green, blue.
        top: detections of an image at most.
        score: leave out detections below it.
        opset: of ONNX.

    Returns:
        The metadata, which the file contains too.

    Raises:
        ValueError: an argument that is not allowed, or that does not fit the model.
    """
    path = Path(path)
    check_export_path(path)
    if path.suffix != '.onnx' and (resize_inside or dtype == torch.int8):
        option = 'resize_inside (--resize)' if resize_inside else 'int8'
        raise ValueError(f'{path}: {option} needs NAME.onnx')
    if dtype == torch.int8 and not find_spec('onnxruntime'):
        raise ValueError(
            f"{path}: int8 needs onnxruntime: pip install 'rope_dense[export]'"
        )
    if resize_inside and (resize is None or size != 'dynamic'):
        raise ValueError(
            'resize_inside (--resize) takes the size of a test pipeline: leave out size'
        )
    resized = resize if resize_inside else None
    options = dict(rgb=rgb, top=top, score=score, resized=resized)
    graph = graph_for(model, options, torch.float32 if dtype == torch.int8 else dtype)
    if getattr(backbone_of(model), 'ground_distance', None):
        raise ValueError(
            'ground_distance: a model with positions in metres cannot be exported, as a file takes '
            'images without their distances; train without own.ground_distance'
        )
    if path.suffix[1:] not in graph.formats:
        names = ' or '.join(f'NAME.{suffix}' for suffix in graph.formats)
        refuse('path', str(path), f'{names} for {type(model).__name__}')
    if size != 'dynamic':
        size = checked_image_size(graph, size)
    elif graph.resize is None or graph.resize.keep_ratio:
        check_dynamic(backbone_of(model))
    if batch != 'dynamic':
        batch = checked_integer('batch', batch, 1)
    checked_integer('opset', opset, OLDEST_OPSET)
    number = graph.num_classes
    if classes is not None and len(classes) != number:
        allowed = f'{number} names' if number else 'None for a backbone'
        refuse('classes', list(classes), allowed)
    if backbone_of(model).has_fixed_size:  # what it remembers becomes a constant
        with torch.no_grad():
            graph(graph.example(1, *size))
    metadata = file_metadata(graph, size, batch, classes) | options
    rows = [list(map(int, colour)) for colour in colours or ()]
    metadata['colours'] = rows or None
    metadata['resize'] = None if resize_inside else resize
    metadata['backbone_dtype'] = DTYPES[dtype]
    metadata['opset'] = opset if path.suffix == '.onnx' else None
    file, about, weights = export_files(path)
    with Results(path.parent, path.name) as results:
        check_space(model, path)
        with results.fresh() as folder:
            exported = trace(graph, size, batch)
            FORMATS[path.suffix].write(exported, folder / file.name, graph, metadata)
            (folder / about.name).write_text(json.dumps(metadata, indent=2) + '\n')
            has_weights = (folder / weights.name).exists()
        if not has_weights:  # but an earlier, larger model had them
            results.remove(weights)
    return metadata


def check_space(model: nn.Module, path: Path) -> None:
    """Raise OSError where the weights have no space: torch ends the process on a full disk."""
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    with named_disk_errors(path):
        if shutil.disk_usage(path.parent).free < size:
            raise OSError(errno.ENOSPC, f'{size / 1e9:.1f} GB are needed')


def graph_for(
    model: nn.Module, options: dict, dtype: torch.dtype = torch.float32
) -> Graph:
    """The graph of a model with options as in the metadata; ValueError for one not allowed."""
    graph = graph_of(model, dtype)
    top = options['top']
    score = options['score']
    resized = options['resized']
    is_backbone = graph.task == 'backbone'
    is_oriented = any(name.endswith('corners') for name in graph.outputs)
    unfit = None
    if options['rgb'] and (is_backbone or graph.preprocess.any_channels):
        unfit = 'rgb'
    elif resized and (is_backbone or is_oriented):
        unfit = 'resizing inside'
    elif (top, score) != (None, None) and not graph.detections:
        unfit = 'top and score'
    if unfit:
        raise ValueError(f'{type(model).__name__} cannot be exported with {unfit}')
    if options['rgb']:
        graph.preprocess.order = 'RGB'
        graph.preprocess.flip = not graph.preprocess.flip
    for part in graph.modules():
        if isinstance(part, Graph) and top is not None:
            part.top = checked_integer('top', top, 1)
    if score is not None:
        score = checked_number('score', score, 0, below=1)
        graph.threshold = torch.full((1, 1), score)
    if resized:
        graph.resize = Resize(**resized, shortest=graph.min_side)
        if not graph.resize.keep_ratio:
            checked_image_size(graph, graph.resize.size(1, 1))
    return graph


def export_files(path: Path) -> tuple[Path, Path, Path]:
    """The file of a model, its metadata, and the weights that are too many for one file."""
    return path, path.with_suffix('.json'), path.with_name(f'{path.name}.data')


def check_export_path(path: Path) -> None:
    """Raise ValueError unless such files can be written here, and replace none of the user's."""
    if path.suffix not in FORMATS:
        names = ' or '.join(f'NAME{suffix}' for suffix in FORMATS)
        raise ValueError(
            f'{path}: give {names} (TorchScript would fix the size of images)'
        )
    missing = [x for x in FORMATS[path.suffix].packages if not find_spec(x)]
    if missing:
        raise ValueError(
            f"{path} needs {' and '.join(missing)}: pip install 'rope_dense[export]'"
        )
    Results(path.parent, path.name).check(export_files(path))


def checked_image_size(graph: Graph, size: ImageSize) -> ImageSize:
    """``size`` in its final form; ValueError if the model cannot take it."""
    least = graph.patch_size if graph.is_special else graph.min_side
    return checked_size('size', size, least)


def check_dynamic(backbone: Backbone) -> None:
    """Raise ValueError if the backbone can be exported at a fixed size only."""
    advice = 'or export at a fixed size'
    if backbone.has_windows and backbone.window_size == 'auto':
        raise ValueError(
            "size 'dynamic': windows that follow the image (window_size='auto') have a size of "
            f'their own for each; set window_size to a number of tokens, {advice}'
        )
    if backbone.has_fixed_size:
        raise ValueError(
            f"size 'dynamic': {type(backbone).__name__} has what PositionalDebias removes for one "
            'size: export at a fixed size'
        )
    scaling = build_scaling(backbone.rope_scaling, backbone.pretrain_grid)
    if scaling is None or scaling.temperature is None:
        return
    if scaling.factor is None:
        raise ValueError(
            "size 'dynamic': the temperature of rope_scaling follows the image; set its factor, "
            f'{advice}'
        )


def file_metadata(
    graph: Graph,
    size: ImageSize | Dynamic,
    batch: int | Dynamic,
    classes: Sequence[str] | None,
) -> dict:
    """The metadata, of what JSON has."""
    meaning = {}
    for name in graph.outputs:
        kind = name.rpartition('_')[2].rstrip('0123456789')
        meaning[name] = MEANING[kind]
    smallest = [1 if graph.resize else graph.min_side] * 2
    given: object = size
    if size != 'dynamic':
        given = smallest = list(size)
    parts = ['all']
    if graph.dtype != torch.float32:
        parts = list(graph.float32_parts)
    return dict(
        task=graph.task,
        input=dict(name='image', **graph.description()),
        outputs=list(graph.outputs),
        meaning=meaning,
        classes=None if classes is None else list(classes),
        num_classes=graph.num_classes,
        patch_size=graph.patch_size,
        batch=batch,
        size=given,
        smallest_size=smallest,
        multiple_of=1,  # what a file would take that did not pad
        backbone_dtype=DTYPES[graph.dtype],
        float32_parts=parts,
        rope_dense=__version__,
        torch=torch.__version__,
        **graph.details(),
    )


def trace(
    graph: Graph, size: ImageSize | Dynamic, batch: int | Dynamic
) -> ExportedProgram:
    """The operations of a graph. Sizes are checked, see ``checked_image_size``."""
    number = 2 if batch == 'dynamic' else batch  # one image is a special case
    dims: dict[int, Dim] = {0: Dim('batch')} if batch == 'dynamic' else {}
    images = []
    shapes = []
    if graph.resize is not None:  # see client.py
        images.append(graph.example(number, 50, 90))
        shapes.append(dims | {2: Dim('height'), 3: Dim('width')})
        if not graph.resize.keep_ratio:
            size = graph.resize.size(1, 1)
    if size == 'dynamic':
        inner = 'resized_' * len(images)
        for axis, name in ((2, f'{inner}height'), (3, f'{inner}width')):
            dims = dims | {axis: Dim(name, min=graph.min_side)}
        # Any generic image will do, as long as no two of its sides are alike.
        step = math.lcm(32, graph.divisor)
        height = (max(graph.generic) // step + 2) * step
        size = height, height + step
    image = graph.example(number, *size)
    images.append(image.float() if images else image)
    with quiet_tracing():
        exported = torch.export.export(
            graph,
            tuple(images),
            dynamic_shapes=(*shapes, dims),
            strict=False,
            # Else each comparison of sizes that torch cannot prove is refused, true or not.
            prefer_deferred_runtime_asserts_over_guards=True,
        )
    drop_assumptions(exported)
    return exported


def drop_assumptions(exported: ExportedProgram) -> None:
    """Remove what torch has assumed of sizes, such as that no side of a map is 1, and in-place ops.

    Torch picks strides by that, and the operations are the same. Checked in tests/export/ at sizes
    that violate the assumptions.
    """
    aten = torch.ops.aten
    find = partial(exported.graph.find_nodes, op='call_function')
    for target in (aten._assert_scalar.default, aten._assert_tensor_metadata.default):
        for node in find(target=target):
            exported.graph.erase_node(node)
    # Of nn.MultiheadAttention, on a new mask.
    for node in find(target=aten.masked_fill_.Scalar):
        mask = node.args[0]
        if mask.target == aten.zeros_like.default and len(mask.users) == 1:
            node.target = aten.masked_fill.Scalar
    exported.graph.eliminate_dead_code()
    exported.graph_module.recompile()


def write_pt2(
    exported: ExportedProgram, path: Path, graph: Graph, metadata: dict
) -> None:
    """Write an archive of torch.export, without the paths of this machine."""
    images, settings = exported.example_inputs
    # AOTInductor needs an example; this one is stored as one number.
    zeros = (image.new_zeros(()).expand(image.shape) for image in images)
    exported.example_inputs = (*zeros,), settings
    for node in exported.graph.nodes:
        for name in ('stack_trace', 'nn_module_stack', 'torch_fn', 'from_node'):
            node.meta.pop(name, None)
    torch.export.save(exported, path, extra_files={METADATA_FILE: json.dumps(metadata)})


def write_onnx(
    exported: ExportedProgram, path: Path, graph: Graph, metadata: dict
) -> None:
    """Write an ONNX file."""
    from . import onnx_file

    with quiet_tracing():
        onnx_file.write_program(exported, path, graph, metadata)


class FileFormat(NamedTuple):
    """A format of files: what writes it, and the packages which that needs."""

    write: Callable[[ExportedProgram, Path, Graph, dict], None]
    packages: tuple[str, ...] = ()


FORMATS = {
    '.onnx': FileFormat(write_onnx, ('onnx', 'onnxscript')),
    '.pt2': FileFormat(write_pt2),
}


@contextmanager
def quiet_tracing() -> Iterator[None]:
    """Within this context torch traces in less time, and neither torch nor onnxscript warns.

    Torch would of its own code and of an absent torchvision.
    """
    level = logging.root.manager.disable
    # No special cases of sides of 0 and 1, which take half of the time.
    oblivious = symbolic_config.patch(  # type: ignore[attr-defined]  # a method that torch adds
        backed_size_oblivious=True
    )
    # Sizes are symbols, and to compare and rebuild them takes longer than an operation.
    uncached = torch._dynamo.config.patch(fake_tensor_cache_enabled=False)
    with warnings.catch_warnings(), torch.no_grad(), oblivious, uncached:
        warnings.filterwarnings('ignore', category=FutureWarning, message='.*LeafSpec')
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(level)
