"""Arguments of the tools: read before anything heavy is imported."""

import runpy
import subprocess
import sys
from typing import get_args

import pytest

from helpers.tool_names import TOOL_NAMES, TOOLS
from rope_dense.backbones.layers import TableResize
from rope_dense.checkpoints.models import DETECTORS
from rope_dense.checkpoints.publishers import TARGETS
from rope_dense.cli.config import read_options
from rope_dense.datasets.layouts import LAYOUTS, ShapesSettings
from rope_dense.datasets.shapes import COLORS
from rope_dense.export.exporter import DTYPES, PACKAGES


@pytest.mark.parametrize('tool', TOOL_NAMES)
def test_help_and_mistakes_are_answered_without_torch(tool: str) -> None:
    for argument, code in (('--help', 0), ('--no-such-option', 2)):
        program = (
            'import runpy, sys\n'
            'sys.modules.update(torch=None, numpy=None, mmengine=None, rope_dense=None)\n'
            f'sys.path[0] = {str(TOOLS)!r}\n'
            f'sys.argv = [{tool!r}, {argument!r}]\n'
            f"runpy.run_path({str(TOOLS / tool)!r}, run_name='__main__')"
        )
        result = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
        assert result.returncode == code, result.stderr
        assert 'usage: ' in result.stdout + result.stderr


def test_a_pattern_that_matches_two_checkpoints(capsys: pytest.CaptureFixture) -> None:
    """README.md gives `best_*.pth`, which is more than one file where trainings share a folder."""
    parse = runpy.run_path(str(TOOLS / 'predict.py'))['parse_args']
    with pytest.raises(SystemExit):
        parse(['config.py', 'best_1.pth', 'best_2.pth', 'pictures'])
    said = capsys.readouterr().err
    assert 'unrecognized arguments: pictures (2 checkpoints: best_1.pth, best_2.pth)' in said


def test_choices_are_those_of_the_package() -> None:
    """The tools repeat them, so that they need not import the package for --help."""

    def tool(name: str) -> dict:
        return runpy.run_path(str(TOOLS / f'{name}.py'))

    convert = tool('convert_checkpoint')
    assert set(convert['LAYOUTS']) == {*TARGETS, *convert['DETECTORS']}
    assert set(convert['DETECTORS']) <= set(DETECTORS)
    export = tool('export')
    assert set(export['FORMATS']) == set(PACKAGES)
    assert set(export['PRECISIONS']) == set(DTYPES.values())
    figures = tool('analyze_positions')
    assert figures['FIGURES'] == (*figures['OF_FREQUENCIES'], *figures['OF_ATTENTION'])
    classify = tool('eval_classification')['parse_args']
    for resize in get_args(TableResize):
        assert classify(['x.pth', 'folder', '--rpb-resize', resize]).rpb_resize == resize
    shapes, given = tool('make_shapes')['parse_args'], ['out', '--layout', *LAYOUTS, '--colors']
    for colors in COLORS:
        args = shapes([*given, colors])
        settings = (args.train, args.val, args.size, args.seed, colors, tuple(args.layout))
        assert ShapesSettings(*settings) == ShapesSettings(colors=colors)


def test_values_of_options_are_read_as_mmengine_reads_them() -> None:
    pairs = ['a.b=3', 'c=[1,(2,3)]', 'd=x', 'e=True', 'f=a,b', 'a.b=4']
    expected = {'a.b': 4, 'c': [1, (2, 3)], 'd': 'x', 'e': True, 'f': ['a', 'b']}
    assert read_options(pairs) == expected
    assert read_options([]) == {}
