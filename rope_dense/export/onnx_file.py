"""Write a traced program to an ONNX file that other people's programs can read."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import patch

import onnx
import onnx.version_converter
import onnx_ir as ir
import torch
from onnx_ir.passes import common
from onnxscript import optimizer
from torch.export import ExportedProgram
from torch.onnx import OnnxExporterError, ONNXProgram

from .client import write_resize, write_threshold
from .graphs import Graph
from .translations import TABLE

AXES = dict(  # of inputs, that can be dynamic
    image={0: 'batch', 2: 'height', 3: 'width'},
    resized={0: 'batch', 2: 'resized_height', 3: 'resized_width'},  # see client.py
)
TRANSLATED = 18  # the oldest opset that torch writes
LARGEST_CONSTANT = 1024  # numbers; ONNX Runtime computes larger ones when it loads a file
# Operators of the standard that few programs have: of sequences, of optional values, of subgraphs.
REFUSED = ('Sequence', 'SplitToSequence', 'ConcatFromSequence', 'Optional', 'If', 'Loop', 'Scan')


def write(exported: ExportedProgram, path: Path, graph: Graph, metadata: dict) -> None:
    """Write the program of a graph, with standard operators and without paths of this machine.

    Raises:
        ValueError: it needs operators that ONNX, or most programs that run it, do not have.
    """
    opset = metadata['opset']
    program = translated(exported, graph, max(opset, TRANSLATED))
    model = program.model
    if graph.resize is not None:
        write_resize(model.graph, graph.resize)
    if metadata['score'] is not None:
        write_threshold(model.graph, graph.detections, metadata['score'])
    name_axes(model.graph)
    described = [(out.name, out.type, out.shape) for out in model.graph.outputs]
    simplify(model)
    for out, (name, kind, shape) in zip(model.graph.outputs, described, strict=True):
        out.name, out.type, out.shape = name, kind, shape  # a pass may have put another value there
    forget_shapes(model.graph)
    check_operators(model)
    model.metadata_props['rope_dense'] = json.dumps(metadata)
    program.save(path)
    if opset < TRANSLATED:
        convert(path, opset)
    if metadata['backbone_dtype'] == 'int8':
        quantize(path)
    check_file(path)


def translated(exported: ExportedProgram, graph: Graph, opset: int) -> ONNXProgram:
    """The operators of a program in ONNX; decomposed only if one has no translation."""
    names = list(AXES)[: len(exported.graph_signature.user_inputs)]
    images = exported.graph.find_nodes(op='placeholder')[-len(names) :]
    dynamic = tuple(
        {a: text for a, text in AXES[name].items() if not isinstance(x.meta['val'].shape[a], int)}
        for name, x in zip(names, images, strict=True)
    )

    def export() -> ONNXProgram:
        program = torch.onnx.export(
            exported,
            dynamo=True,
            input_names=names,
            output_names=graph.outputs,
            dynamic_shapes=dynamic if any(dynamic) else None,
            optimize=False,
            verbose=False,
            custom_translation_table=TABLE,
            opset_version=opset,
        )
        assert program is not None  # as dynamo=True
        return program

    try:
        with patch.object(exported, 'run_decompositions', lambda *_, **settings: exported):
            return export()
    except OnnxExporterError:
        pass
    try:
        return export()
    except OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise ValueError(f'the model cannot be written to ONNX: {cause}') from error


def name_axes(graph: ir.Graph) -> None:
    """Name the axes of outputs whose size is a formula; an axis of several outputs has one name."""
    names = {name: name for axes in AXES.values() for name in axes.values()}
    for out in graph.outputs:
        assert out.shape is not None
        own = {1: 'detections'}
        if out.shape.rank() == 4:
            own |= {2: f'{out.name}_height', 3: f'{out.name}_width'}
        for axis, side in enumerate(out.shape):
            if not isinstance(side, int):
                out.shape[axis] = names.setdefault(str(side), own.get(axis, f'{out.name}_{axis}'))


def simplify(model: ir.Model) -> None:
    """Fold constants, and remove what is unused or there twice.

    Without onnxscript's rewriting rules, of which ONNX Runtime has its own: they take most of the
    time of its ``optimize``.
    """
    for _ in range(2):
        optimizer.fold_constants(model, output_size_limit=LARGEST_CONSTANT)
        common.RemoveUnusedNodesPass()(model)
    for node in model.graph.all_nodes():
        make_scalar(node)
    for step in (
        common.RemoveUnusedFunctionsPass(),
        common.RemoveUnusedOpsetsPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.LiftSubgraphInitializersToMainGraphPass(),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.IdentityEliminationPass(),
        common.RemoveUnusedNodesPass(),
        common.OutputFixPass(),
        common.NameFixPass(),
        common.ClearMetadataAndDocStringPass(),
    ):
        step(model)


def make_scalar(node: ir.Node) -> None:
    """Write Expand and Reshape to an empty shape, of which OpenVINO makes [1], as other nodes."""
    kinds = {'Expand': 'Identity', 'Reshape': 'Squeeze'}
    if node.op_type in kinds and node.inputs[1] is not None:
        shape = ir.convenience.get_const_tensor(node.inputs[1])
        if shape is not None and shape.size == 0:
            node.op_type = kinds[node.op_type]
            node.attributes.clear()
            node.resize_inputs(1)


def forget_shapes(graph: ir.Graph) -> None:
    """Leave types and shapes of inner values to the programs that read the file.

    They infer them anyway, and symbols of dynamic sizes contradict a size that a program fixes.
    """
    inner = [value for node in graph.all_nodes() for value in node.outputs]
    for value in (*inner, *graph.initializers.values()):
        value.metadata_props.clear()
        if not value.is_graph_output():
            value.type = value.shape = None


def check_operators(model: ir.Model) -> None:
    """Raise ValueError for operators that few programs have."""
    nodes = model.graph.all_nodes()
    refused = {x.op_type for x in nodes if x.domain or x.op_type.startswith(REFUSED)}
    if refused:
        raise ValueError(
            f'the model needs {", ".join(sorted(refused))} in ONNX, which few programs can run: '
            'export it to NAME.pt2'
        )


def convert(path: Path, opset: int) -> None:
    """Convert a file to an older opset; raises ValueError if onnx cannot."""
    try:
        model = onnx.version_converter.convert_version(onnx.load(path), opset)
    except (RuntimeError, onnx.version_converter.ConvertError) as error:
        reason = str(error).rpartition('failed: ')[2]
        raise ValueError(f'opset {opset}: onnx cannot convert the model: {reason}') from error
    save_again(model, path)


def quantize(path: Path) -> None:
    """Give the matrix products of a file weights of 8 bits, and inputs rounded as they come."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(path)
    types = dict(DefaultTensorType=onnx.TensorProto.FLOAT)
    quantize_dynamic(model, path, ['MatMul'], weight_type=QuantType.QInt8, extra_options=types)
    save_again(onnx.load(path), path)


def save_again(model: onnx.ModelProto, path: Path) -> None:
    """Write a model that onnx or ONNX Runtime has changed, as others are: see ``forget_shapes``."""
    del model.graph.value_info[:]
    used = {node.domain for node in model.graph.node}
    for place in reversed(range(len(model.opset_import))):
        if model.opset_import[place].domain not in used:
            del model.opset_import[place]
    onnx.save(model, path)


def check_file(path: Path) -> None:
    """Raise ValueError unless onnx's own checker finds the file valid."""
    try:
        onnx.checker.check_model(path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f'{path.name} is no valid ONNX file: {error}') from error
