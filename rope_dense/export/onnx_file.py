"""Write a traced program to an ONNX file that other people's programs can read."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import onnx
import onnx_ir as ir
import torch
from onnx_ir.passes import common
from onnxscript import optimizer, version_converter
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node
from torch.onnx import OnnxExporterError, ONNXProgram

from .client import Resize
from .graphs import Graph
from .translations import TABLE

TRANSLATED = 18  # the oldest opset that torch writes
# Numbers; ONNX Runtime computes larger ones when it loads a file.
LARGEST_CONSTANT = 1024
# Operators of the standard that few programs have: of sequences, of optional values, of subgraphs.
REFUSED = (
    'Sequence',
    'SplitToSequence',
    'ConcatFromSequence',
    'Optional',
    'If',
    'Loop',
    'Scan',
)
VARIADIC = ('Concat', 'Max', 'Mean', 'Min', 'Sum')


def write_program(
    exported: ExportedProgram, path: Path, graph: Graph, metadata: dict
) -> None:
    """Write the program of a graph, with standard operators and without paths of this machine.

    Raises:
        ValueError: it needs operators that ONNX, or most programs that run it, do not have.
    """
    opset = metadata['opset']
    program = to_onnx(exported, graph, max(opset, TRANSLATED))
    model = program.model
    name_axes(model.graph)
    if graph.resize is not None:
        write_resize(model.graph, graph.resize)
    described = [(out.name, out.type, out.shape) for out in model.graph.outputs]
    simplify_model(model)
    measure_floats(model.graph)
    if opset < TRANSLATED:
        version_converter.convert_version(model, opset, fallback=True)
    # A pass may have put other values there.
    for out, (name, kind, shape) in zip(model.graph.outputs, described, strict=True):
        out.name = name
        out.type = kind
        out.shape = shape
    forget_shapes(model)
    model.metadata_props['rope_dense'] = json.dumps(metadata)
    program.save(path)
    if metadata['backbone_dtype'] == 'int8':
        quantize_weights(path)
    check_onnx(model, path, opset)


def to_onnx(exported: ExportedProgram, graph: Graph, opset: int) -> ONNXProgram:
    """The operators of a program in ONNX; decomposed only if one has no translation."""
    for attempt in (as_traced(exported), nullcontext()):
        try:
            with attempt:
                program = torch.onnx.export(
                    exported,
                    dynamo=True,
                    output_names=graph.outputs,
                    optimize=False,
                    verbose=False,
                    custom_translation_table=TABLE,
                    opset_version=opset,
                )
            assert program is not None  # as dynamo=True
            return program
        except OnnxExporterError as error:
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
    raise ValueError(f'the model cannot be written to ONNX: {cause}') from cause


@contextmanager
def as_traced(exported: ExportedProgram) -> Iterator[None]:
    """Within this context torch does not decompose a program, and takes its values as traced.

    To insert casts it would compute the shape of each value once more, a fifth of an export.
    """
    compute = Interpreter.run_node

    def value(interpreter: Interpreter, node: Node) -> Any:
        if 'val' in node.meta:
            return node.meta['val']
        return compute(interpreter, node)

    whole = patch.object(exported, 'run_decompositions', return_value=exported)
    with whole, patch.object(Interpreter, 'run_node', value):
        yield


def name_axes(graph: ir.Graph) -> None:
    """Name the dynamic axes of images and results; each size has one name, of its first axis."""
    names: dict[str, str] = {}
    for value in (*graph.inputs, *graph.outputs):
        prefix = '' if value.name == 'image' else f'{value.name}_'
        own = 'batch', 'detections', f'{prefix}height', f'{prefix}width'
        assert value.shape is not None
        for axis, side in enumerate(value.shape):
            if not isinstance(side, int):
                value.shape[axis] = names.setdefault(str(side), own[axis])


def write_resize(graph: ir.Graph, resize: Resize) -> None:
    """Compute the second input of a graph from its first, as ``Resize``."""
    tape = ir.tape.Tape()

    def op(
        kind: str, *inputs: ir.Value | list[int] | None, **attributes: Any
    ) -> ir.Value:
        values = []
        for x in inputs:
            if isinstance(x, list):
                x = tape.op('Constant', (), dict(value_ints=x))
            values.append(x)
        return tape.op(kind, values, attributes)

    image, resized = graph.inputs
    size: ir.Value | list[int] = [resize.scale[1], resize.scale[0]]
    x = op('Cast', image, to=1)
    if resize.ratio is not None:
        given = op('Shape', x, start=2, end=4)
        times, parts = resize.whole_ratio()
        long = op('ReduceMax', given, keepdims=1)
        least = op('Div', op('Add', op('Mul', long, [parts]), [times - 1]), [times])
        more = op('Sub', op('Max', least, given), given)
        none = op('Constant', value_ints=[0] * 6)
        x = op('Pad', x, op('Concat', none, more, axis=0), mode='edge')
    if resize.keep_ratio:
        sides = op('Shape', x, start=2, end=4)
        fitted = []
        limits = {'ReduceMin': min(resize.scale), 'ReduceMax': max(resize.scale)}
        for kind, limit in limits.items():
            of = op(kind, sides, keepdims=1)
            doubled = op('Add', op('Mul', sides, [2 * limit]), of)
            fitted.append(op('Div', doubled, op('Mul', of, [2])))
        size = op('Max', op('Min', *fitted), [resize.shortest])
    if resize.antialias:  # a product for each axis: few programs have it in Resize
        before = op('Shape', x, start=2, end=4)
        after = op('Constant', value_ints=size) if isinstance(size, list) else size
        rows = pixel_shares(op, op('Gather', before, [0]), op('Gather', after, [0]))
        columns = pixel_shares(op, op('Gather', before, [1]), op('Gather', after, [1]))
        x = op('MatMul', op('MatMul', rows, x), op('Transpose', columns))
    else:
        shape = op('Concat', op('Shape', image, end=2), size, axis=0)
        x = op('Resize', x, None, None, shape, mode='linear')
    ir.convenience.replace_all_uses_with(resized, x)
    graph.insert_before(graph[0], tape.nodes)
    graph.inputs.remove(resized)


def pixel_shares(
    op: Callable[..., ir.Value], before: ir.Value, after: ir.Value
) -> ir.Value:
    """The share [after, before] of each pixel of a line in the pixels of a resized line.

    Triangles as of Pillow's BILINEAR, as wide as two pixels of the coarser line. Both numbers of
    pixels are [1].
    """
    half = op('Constant', value_floats=[0.5])
    one = op('Constant', value_floats=[1.0])
    centres = []
    for number in (after, before):
        first = op('Constant', value_int=0)
        each = op('Constant', value_int=1)
        places = op('Range', first, op('Squeeze', number), each)
        centres.append(op('Add', op('Cast', places, to=1), half))
    step = op('Div', op('Cast', before, to=1), op('Cast', after, to=1))
    scaled = op('Unsqueeze', op('Mul', centres[0], step), [1])
    distance = op('Abs', op('Sub', scaled, centres[1]))
    share = op('Div', distance, op('Max', step, one))
    near = op('Relu', op('Sub', one, share))
    return op('Div', near, op('ReduceSum', near, [1], keepdims=1))


def simplify_model(model: ir.Model) -> None:
    """Fold constants, and remove what is unused or there twice.

    Without onnxscript's rewriting rules, of which ONNX Runtime has its own: they take most of the
    time of its ``optimize``.
    """
    for node in model.graph:
        # Of one input, which few programs take.
        if node.op_type in VARIADIC and len(node.inputs) == 1:
            node.op_type = 'Identity'
            node.attributes.clear()
    for _ in range(2):
        optimizer.fold_constants(model, output_size_limit=LARGEST_CONSTANT)
        common.RemoveUnusedNodesPass()(model)
    ir.passes.Sequential(
        common.RemoveUnusedFunctionsPass(),
        common.RemoveUnusedOpsetsPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.IdentityEliminationPass(),
        common.RemoveUnusedNodesPass(),
        common.OutputFixPass(),
        common.NameFixPass(),
        common.ClearMetadataAndDocStringPass(),
    )(model)


def measure_floats(graph: ir.Graph) -> None:
    """Take the size of images from what they are cast to: few programs compute with uint8."""
    image = graph.inputs[0]
    users = [node for node, _ in image.uses()]
    casts = [node for node in users if node.op_type == 'Cast']
    for node in users:
        if casts and node.op_type == 'Shape':
            node.replace_input_with(0, casts[0].outputs[0])
    graph.sort()


def forget_shapes(model: ir.Model) -> None:
    """Leave types and shapes of inner values to the programs that read the file.

    They infer them anyway, and symbols of dynamic sizes contradict a size that a program fixes.
    """
    values = list(model.graph.initializers.values())
    for node in model.graph:
        values += node.outputs
    for value in values:
        value.metadata_props.clear()
        if not value.is_graph_output():
            value.type = value.shape = None


def quantize_weights(path: Path) -> None:
    """Give the matrix products of a file weights of 8 bits, and inputs rounded as they come."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    types = dict(DefaultTensorType=onnx.TensorProto.FLOAT)
    quantize_dynamic(
        onnx.load(path),
        path,
        ['MatMul'],
        weight_type=QuantType.QInt8,
        extra_options=types,
    )
    model = ir.load(path)
    forget_shapes(model)
    ir.save(common.RemoveUnusedOpsetsPass()(model).model, path)


def check_onnx(model: ir.Model, path: Path, opset: int) -> None:
    """Raise ValueError unless a file is valid, and has the operators that most programs have."""
    nodes = model.graph.all_nodes()
    refused = {x.op_type for x in nodes if x.domain or x.op_type.startswith(REFUSED)}
    if refused:
        names = ', '.join(sorted(refused))
        raise ValueError(f'the model needs {names} in ONNX, which few programs can run')
    if model.opset_imports[''] != opset:
        advice = f'{TRANSLATED} needs no conversion'
        raise ValueError(f'opset {opset}: onnx cannot convert the model; {advice}')
    try:
        onnx.checker.check_model(path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f'{path.name} is no valid ONNX file: {error}') from error
