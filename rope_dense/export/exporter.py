"""Write a model to a file that runs without this package, and without OpenMMLab."""

from __future__ import annotations

import json
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch._dynamo import config as dynamo_config
from torch.export import Dim, ExportedProgram
from torch.fx.experimental import _config as symbolic_config

from ..backbones.base import Backbone, backbone_of
from ..rope.grid import build_scaling
from ..utils.atomic_write import atomic_files
from ..utils.sizes import ImageSize
from ..utils.validation import check_integer, check_size, refuse
from ..version import __version__
from .graphs import Graph, graph_of
from .rois import translations

Dynamic = Literal['dynamic']
PACKAGES = {'.onnx': ('onnx', 'onnxscript'), '.pt2': ()}  # that writing a format needs, by suffix
DTYPES = {torch.float32: 'fp32', torch.float16: 'fp16', torch.bfloat16: 'bf16'}
TABLE = 1024  # numbers; ONNX Runtime computes larger constants when it loads a file
LOGGERS = 'torch.onnx._internal.exporter._registration', 'onnxscript.optimizer'  # warn of their own
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
            to be installed. Weights above 2 GB go to NAME.onnx.data.
        size: (height, width) of the images in pixels, or 'dynamic'.
        batch: images at a time, or 'dynamic'.
        dtype: precision of the backbone, of a ``DEIM`` also of its neck, encoder, decoder layers
            and masks. What stays in float32 is in the metadata, ``float32_parts``.
        classes: names of the classes, for the metadata.
        colours: of the classes, (red, green, blue) each, for the metadata.
        resize: of the test pipeline, for the metadata: ``scale``, (width, height) in pixels, and
            ``keep_ratio``, with which the scale bounds both sides.

    Returns:
        The metadata, which the file contains too.

    Raises:
        ValueError: an argument that is not allowed, or that does not fit the model.
    """
    path = Path(path)
    check_path(path)
    graph = graph_of(model, dtype)
    if path.suffix[1:] not in graph.formats:
        names = ' or '.join(f'NAME.{suffix}' for suffix in graph.formats)
        refuse('path', str(path), f'{names} for {type(model).__name__}')
    if size == 'dynamic':
        check_dynamic(backbone_of(model))
    else:
        size = check_image(graph, size)
    if batch != 'dynamic':
        batch = check_integer('batch', batch, 1)
    if classes is not None and len(classes) != graph.num_classes:
        allowed = f'{graph.num_classes} names' if graph.num_classes else 'None for a backbone'
        refuse('classes', list(classes), allowed)
    if backbone_of(model).has_fixed_size:
        with torch.no_grad():
            graph(graph.example(1, *size))  # which remembers what becomes a constant of the file
    metadata = file_metadata(graph, size, batch, classes)
    metadata['colours'] = None if colours is None else [list(map(int, rgb)) for rgb in colours]
    metadata['resize'] = resize
    exported = trace(graph, size, batch)
    write = {'.onnx': write_onnx, '.pt2': write_pt2}[path.suffix]
    with atomic_files(path.parent) as folder:  # weights, NAME.onnx.data, are moved before NAME.onnx
        write(exported, folder / path.name, graph.outputs, metadata)
    return metadata


def check_path(path: Path) -> None:
    """Raise ValueError unless such a file can be written on this machine."""
    if path.suffix not in PACKAGES:
        advice = 'TorchScript fixes the size of images, and is no format here'
        refuse('path', str(path), f'NAME.onnx or NAME.pt2 ({advice})')
    if missing := [name for name in PACKAGES[path.suffix] if not find_spec(name)]:
        raise ValueError(f"{path} needs {' and '.join(missing)}: pip install 'rope_dense[export]'")


def check_image(graph: Graph, size: ImageSize) -> ImageSize:
    """``size`` in its final form.

    Raises:
        ValueError: the model cannot take it.
    """
    return check_size('size', size, graph.patch_size if graph.is_special else graph.least)


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
    if scaling is not None and scaling.temperature is not None and scaling.factor is None:
        raise ValueError(
            "size 'dynamic': the temperature of rope_scaling follows the image; set its factor, "
            f'{advice}'
        )


def file_metadata(
    graph: Graph, size: ImageSize | Dynamic, batch: int | Dynamic, classes: Sequence[str] | None
) -> dict:
    """The metadata, of what JSON has."""
    dynamic = size == 'dynamic'
    return dict(
        task=graph.task,
        input=dict(name='image', **graph.description()),
        outputs=list(graph.outputs),
        classes=None if classes is None else list(classes),
        num_classes=graph.num_classes,
        patch_size=graph.patch_size,
        batch=batch,
        size=size if dynamic else list(size),
        smallest_size=[graph.least] * 2 if dynamic else list(size),
        multiple_of=1,  # what a file would take that did not pad
        backbone_dtype=DTYPES[graph.dtype],
        float32_parts=['all'] if graph.dtype == torch.float32 else list(graph.float32_parts),
        rope_dense=__version__,
        torch=torch.__version__,
        **graph.details(),
    )


def trace(graph: Graph, size: ImageSize | Dynamic, batch: int | Dynamic) -> ExportedProgram:
    """The operations of a graph. Sizes are checked, see ``check_image``."""
    dims: dict[int, Dim] = {}
    if batch == 'dynamic':
        dims[0] = Dim('batch')
    if size == 'dynamic':
        for axis, name in ((2, 'height'), (3, 'width')):
            dims[axis] = Dim(name, min=graph.least)
        # Any generic image will do, as long as no two of its sides are alike.
        step = math.lcm(32, graph.divisor)
        height = (max(graph.generic) // step + 2) * step
        size = height, height + step
    image = graph.example(2 if batch == 'dynamic' else batch, *size)  # one image is a special case
    # No special cases of sides of 0 and 1, which take half of the time.
    oblivious = symbolic_config.patch(  # type: ignore[attr-defined]  # a method that torch adds
        backed_size_oblivious=True
    )
    with torch.no_grad(), oblivious, quiet():
        exported = torch.export.export(
            graph,
            (image,),
            dynamic_shapes=(dims,),
            strict=False,
            # Else each comparison of sizes that torch cannot prove is refused, true or not.
            prefer_deferred_runtime_asserts_over_guards=True,
        )
    drop_assertions(exported)
    return exported


def drop_assertions(exported: ExportedProgram) -> None:
    """Remove what torch has assumed of sizes, such as that no side of a map is 1.

    It picks strides by that, and the operations are the same. Checked in tests/export/ at sizes
    that violate the assumptions.
    """
    for node in exported.graph.find_nodes(
        op='call_function', target=torch.ops.aten._assert_scalar.default
    ):
        exported.graph.erase_node(node)
    exported.graph.eliminate_dead_code()
    exported.graph_module.recompile()


def write_pt2(
    exported: ExportedProgram, path: Path, outputs: Sequence[str], metadata: dict
) -> None:
    """Write an archive of torch.export, without the traced image and the paths of this machine."""
    exported.example_inputs = None
    for node in exported.graph.nodes:
        for name in ('stack_trace', 'nn_module_stack', 'torch_fn', 'from_node'):
            node.meta.pop(name, None)
    torch.export.save(exported, path, extra_files={METADATA_FILE: json.dumps(metadata)})


def write_onnx(
    exported: ExportedProgram, path: Path, outputs: Sequence[str], metadata: dict
) -> None:
    """Write an ONNX file of standard operators, without paths of this machine."""
    shape = exported.graph.find_nodes(op='placeholder')[-1].meta['val'].shape  # of the image
    names = {0: 'batch', 2: 'height', 3: 'width'}
    dynamic = {axis: name for axis, name in names.items() if not isinstance(shape[axis], int)}
    # The trace has no assertions on sizes; to derive them anew takes a third of the time.
    without_assertions = dynamo_config.patch(do_not_emit_runtime_asserts=True)
    with quiet(), without_assertions:
        program = torch.onnx.export(
            exported,
            dynamo=True,
            input_names=['image'],
            output_names=outputs,
            dynamic_shapes=(dynamic,) if dynamic else None,
            optimize=False,
            verbose=False,
            custom_translation_table=translations(),
        )
        assert program is not None  # as dynamo=True
        simplify(program.model)
    program.model.metadata_props[METADATA] = json.dumps(metadata)
    program.save(path)


def simplify(model: Any) -> None:
    """Fold constants of an ONNX model, and remove what is unused or there twice.

    Without onnxscript's rewriting rules, of which ONNX Runtime has its own: they take most of the
    time of its ``optimize``.
    """
    from onnx_ir.passes import common
    from onnxscript import optimizer

    for _ in range(2):
        optimizer.fold_constants(model, output_size_limit=TABLE)
        common.RemoveUnusedNodesPass()(model)
    for step in (
        common.RemoveUnusedFunctionsPass(),
        common.RemoveUnusedOpsetsPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.LiftSubgraphInitializersToMainGraphPass(),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.OutputFixPass(),
        common.NameFixPass(),
        common.ClearMetadataAndDocStringPass(),
    ):
        step(model)


@contextmanager
def quiet() -> Iterator[None]:
    """Within this context, torch and onnxscript do not warn of their own code and torchvision."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', category=FutureWarning, message='.*LeafSpec')
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
