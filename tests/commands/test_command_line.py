"""Arguments of the tools: read before anything heavy is imported."""

import subprocess
import sys
from typing import get_args

import pytest

import rope_dense_command
from helpers.tool_names import TOOL_NAMES, TOOLS
from rope_dense.backbones.layers import TableResize
from rope_dense.checkpoints.models import DETECTORS
from rope_dense.checkpoints.publishers import TARGETS
from rope_dense.datasets.generated.files import FORMATS, ShapesSettings
from rope_dense.datasets.generated.shapes import COLORS
from rope_dense.export.exporter import DTYPES, PACKAGES
from rope_dense.project.load import read_options
from rope_dense.research import position_figures
from rope_dense_command import import_early


@pytest.mark.parametrize('tool', TOOL_NAMES)
def test_help_and_mistakes_are_answered_without_torch(tool: str) -> None:
    for argument, code in (('--help', 0), ('--no-such-option', 2)):
        program = (
            'import runpy, sys\n'
            'sys.modules.update(torch=None, numpy=None, mmengine=None)\n'
            f'sys.argv = [{tool!r}, {argument!r}]\n'
            f"runpy.run_path({str(TOOLS / tool)!r}, run_name='__main__')"
        )
        result = subprocess.run([sys.executable, '-c', program], capture_output=True, text=True)
        assert result.returncode == code, result.stderr
        assert 'usage: ' in result.stdout + result.stderr


def test_choices_are_those_of_the_package() -> None:
    """The tools repeat them, so that they need not import the package for --help."""

    convert = import_early('convert_checkpoint')
    assert set(convert.LAYOUTS) == {*TARGETS, *convert.DETECTORS}
    assert set(convert.DETECTORS) <= set(DETECTORS)
    export = import_early('export')
    assert set(export.FORMATS) == set(PACKAGES)
    assert set(export.PRECISIONS) == set(DTYPES.values())
    figures = position_figures.OF_FREQUENCIES | position_figures.OF_ATTENTION
    assert (*figures,) == import_early('analyze_positions').FIGURES
    classify = import_early('eval_classification').parse_args
    for resize in get_args(TableResize):
        assert classify(['x.pth', 'folder', '--rpb-resize', resize]).rpb_resize == resize
    shapes, given = import_early('make_shapes').parse_args, ['out', '--layout', *FORMATS]
    for colors in COLORS:
        args = shapes([*given, '--colors', colors])
        settings = (args.train, args.val, args.size, args.seed, colors, tuple(args.layout))
        assert ShapesSettings(*settings) == ShapesSettings(colors=colors)


def test_the_list_of_commands_is_that_of_tools() -> None:
    """Without torch, and with a line each, as the console script gives it."""
    program = (
        'import sys\nsys.modules.update(torch=None, numpy=None, mmengine=None)\n'
        "sys.argv = ['rope-dense', '--help']\nimport rope_dense_command\n"
        'sys.exit(rope_dense_command.main())'
    )
    run = [sys.executable, '-c', program]
    result = subprocess.run(run, cwd=TOOLS.parent, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    rows = [line.split(maxsplit=1) for line in result.stdout.splitlines()[2:]]
    assert sorted(name.replace('-', '_') + '.py' for name, _ in rows) == TOOL_NAMES


def test_a_command_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr('sys.argv', ['rope-dense', 'make-shapes', '--help'])
    with pytest.raises(SystemExit, match='0'):
        rope_dense_command.main()
    assert capsys.readouterr().out.startswith('usage: rope-dense make-shapes ')
    monkeypatch.setattr('sys.argv', ['rope-dense', 'no-such'])
    assert rope_dense_command.main() == 2


def test_values_of_options_are_read_as_mmengine_reads_them() -> None:
    pairs = ['a.b=3', 'c=[1,(2,3)]', 'd=x', 'e=True', 'f=a,b', 'a.b=4']
    expected = {'a.b': 4, 'c': [1, (2, 3)], 'd': 'x', 'e': True, 'f': ['a', 'b']}
    assert read_options(pairs) == expected
    assert read_options([]) == {}
