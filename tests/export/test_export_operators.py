"""Operators of files, beside the lists of programs that run them."""

from pathlib import Path

import pytest
from onnx import TensorProto, helper

from helpers.exported import assert_plain
from helpers.exported_models import shallow, strong, windowed
from helpers.onnx_operators import refused
from rope_dense.export import export


@pytest.mark.parametrize(
    'kind, inputs, type_name, attributes, says',
    [
        ('GridSample', 'xg', 'FLOAT', {}, ['GridSample of FLOAT']),
        ('Max', 'x', 'FLOAT', {}, ['Max of one input']),
        ('Max', 'xg', 'FLOAT', {}, []),
        ('Equal', 'xg', 'BOOL', {}, ['Equal of BOOL']),
        ('Clip', 'x', 'INT64', {}, ['Clip of INT64']),
        ('Shape', 'x', 'UINT8', {}, ['Shape of UINT8']),
        ('NonZero', 'x', 'BOOL', {}, ['NonZero of BOOL']),
        ('Resize', 'x', 'FLOAT', dict(mode='cubic'), ['Resize with mode cubic']),
        ('ReduceSum', 'xg', 'FLOAT', {}, ['ReduceSum with computed axes']),
    ],
)
def test_what_programs_refuse_is_found(
    kind: str, inputs: str, type_name: str, attributes: dict, says: list[str]
) -> None:
    number = TensorProto.DataType.Value(type_name)
    values = [helper.make_tensor_value_info(x, number, [1, 1, 2, 2]) for x in inputs]
    node = helper.make_node(kind, list(inputs), ['out'], **attributes)
    graph = helper.make_graph([node], 'graph', values, [])
    assert refused(helper.make_model(graph)) == says


def test_a_position_table_has_no_cubic_resize(tmp_path: Path) -> None:
    """At dynamic sizes; windows are planned without a comparison of truths."""
    path = tmp_path / 'model.onnx'
    export(strong(windowed(use_ape=True)), path)
    assert_plain(path)


@pytest.mark.slow
def test_a_detector_with_a_threshold(tmp_path: Path) -> None:
    """Resized inside, with sizes of images of uint8."""
    path = tmp_path / 'model.onnx'
    resize = dict(scale=(320, 240), keep_ratio=True)
    export(shallow(), path, score=0.3, resize=resize, resize_inside=True)
    assert_plain(path)
