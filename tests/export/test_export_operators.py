"""Operators of files, beside the lists of programs that run them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from onnx import TensorProto, helper

from helpers.exported import assert_plain, assert_same, onnx, run, session
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


@pytest.fixture(scope='module')
def windows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backbone with windows and a position table."""
    path = tmp_path_factory.mktemp('windows') / 'model.onnx'
    export(strong(windowed(use_ape=True)), path)
    return path


@pytest.fixture(scope='module')
def boxes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector, resized inside, with sizes of images of uint8."""
    path = tmp_path_factory.mktemp('boxes') / 'model.onnx'
    resize = dict(scale=(320, 240), keep_ratio=True)
    export(shallow(), path, score=0.3, resize=resize, resize_inside=True)
    return path


def test_a_position_table_has_no_cubic_resize(windows: Path) -> None:
    """At dynamic sizes; windows are planned without a comparison of truths."""
    assert_plain(windows)


@pytest.mark.parametrize(
    'name', ['windows', pytest.param('boxes', marks=pytest.mark.slow)]
)
def test_mnn_converts_a_file(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """It refuses sampling of mode linear, and a maximum of one input, as it stops then."""
    pytest.importorskip('MNN', reason='pip install MNN')
    out = tmp_path / 'model.mnn'
    given = ['--modelFile', str(request.getfixturevalue(name)), '--MNNModel', str(out)]
    # Not by MNN.tools.mnnconvert, which installs a package that reports its use.
    convert = 'import sys, _tools; _tools.mnnconvert(sys.argv)'
    program = [sys.executable, '-c', convert, '-f', 'ONNX', '--bizCode', 'a']
    done = subprocess.run(
        [*program, *given], capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert 'Converted Success' in said and out.is_file(), said
    assert not re.findall("Don't support|Not support", said), said


def test_reshapes_in_a_row_are_joined_rightly_by_onnxoptimizer(
    windows: Path, tmp_path: Path
) -> None:
    optimizer = pytest.importorskip('onnxoptimizer', reason='pip install onnxoptimizer')
    path = tmp_path / 'model.onnx'
    onnx.save(optimizer.optimize(onnx.load(windows)), path)
    image = torch.randn(2, 3, 97, 131)
    assert_same(run(session(path), image), run(session(windows), image))
