"""Turn a traced program into an ONNX model that other people's programs can read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import onnx
import onnx_ir as ir
import torch
from onnx_ir.passes import common
from onnxscript import optimizer
from torch.export import ExportedProgram
from torch.fx import Node
from torch.onnx import OnnxExporterError, ONNXProgram

from .translations import TABLE

INPUT_AXES = {0: 'batch', 2: 'height', 3: 'width'}  # of images, that can be dynamic
LARGEST_CONSTANT = 1024  # numbers; ONNX Runtime computes larger ones when it loads a file
# Operators of the standard that few programs have: of sequences, of optional values, of subgraphs.
REFUSED = ('Sequence', 'SplitToSequence', 'ConcatFromSequence', 'Optional', 'If', 'Loop', 'Scan')


def write(
    exported: ExportedProgram,
    path: Path,
    outputs: Sequence[str],
    metadata: Mapping[str, str],
    opset: int,
) -> None:
    """Write a program of images, with standard operators and without paths of this machine.

    Raises:
        ValueError: it needs operators that ONNX, or most programs that run it, do not have.
    """
    program = translated(exported, outputs, opset)
    model = program.model
    name_axes(model.graph)
    described = [(out.name, out.type, out.shape) for out in model.graph.outputs]
    simplify(model)
    for out, (name, kind, shape) in zip(model.graph.outputs, described, strict=True):
        out.name, out.type, out.shape = name, kind, shape  # a pass may have put another value there
    forget_shapes(model.graph)
    check_operators(model)
    model.metadata_props.update(metadata)
    program.save(path)
    check_file(path)


def translated(exported: ExportedProgram, outputs: Sequence[str], opset: int) -> ONNXProgram:
    """The operators of a program in ONNX, each translated as it is if there is a translation."""
    shape = exported.graph.find_nodes(op='placeholder')[-1].meta['val'].shape  # of the images
    dynamic = {axis: name for axis, name in INPUT_AXES.items() if not isinstance(shape[axis], int)}

    def export() -> ONNXProgram:
        program = torch.onnx.export(
            exported,
            dynamo=True,
            input_names=['image'],
            output_names=outputs,
            dynamic_shapes=(dynamic,) if dynamic else None,
            optimize=False,
            verbose=False,
            custom_translation_table=TABLE,
            opset_version=opset,
        )
        assert program is not None  # as dynamo=True
        return program

    try:
        if not any(map(changes_others, exported.graph.nodes)):
            with undecomposed(exported):
                return export()
    except OnnxExporterError:  # an operator without a translation
        pass
    try:
        return export()
    except OnnxExporterError as error:
        raise ValueError(f'the model cannot be written to ONNX: {error}') from error


@contextmanager
def undecomposed(exported: ExportedProgram) -> Iterator[None]:
    """Within this context, a program is its own decomposition."""
    exported.run_decompositions = lambda *args, **settings: exported  # type: ignore[method-assign]
    try:
        yield
    finally:
        del exported.run_decompositions


def changes_others(node: Node) -> bool:
    """Whether an operation changes, in place, a tensor that others read, too."""
    if not (schema := getattr(node.target, '_schema', None)) or not schema.is_mutable:
        return False
    changed = node.args[0]
    assert isinstance(changed, Node)
    made_by = getattr(changed.target, '_schema', None)
    return len(changed.users) > 1 or not made_by or any(x.alias_info for x in made_by.returns)


def name_axes(graph: ir.Graph) -> None:
    """Name the axes of outputs whose size is a formula; an axis of several outputs has one name."""
    names = {name: name for name in INPUT_AXES.values()}
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
    refused = {
        node.op_type
        for node in model.graph.all_nodes()
        if node.domain or node.op_type.startswith(REFUSED)
    }
    if refused:
        raise ValueError(
            f'the model needs {", ".join(sorted(refused))} in ONNX, which few programs can run: '
            'export it to NAME.pt2'
        )


def check_file(path: Path) -> None:
    """Raise ValueError unless onnx's own checker finds the file valid."""
    try:
        onnx.checker.check_model(path, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f'{path.name} is no valid ONNX file: {error}') from error
