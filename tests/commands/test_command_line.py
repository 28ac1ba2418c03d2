"""Arguments of the tools: read before anything heavy is imported."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import rope_dense_command
from research import position_figures
from rope_dense.backbones.layers import TableResize
from rope_dense.checkpoints.detectors import PUBLISHED_MODELS
from rope_dense.checkpoints.publishers import TARGETS
from rope_dense.data.generated import write_shapes
from rope_dense.data.generated.shape_files import FORMATS, ShapesSettings
from rope_dense.data.generated.shapes import COLORS
from rope_dense.data.labels.folders import FORMATS as LABELS
from rope_dense.export.exporter import DTYPES
from rope_dense.project.convert_checkpoint import DETECTORS
from rope_dense.project.load import read_options
from rope_dense_command import COMMANDS, RESEARCH, import_command


def test_help_and_mistakes_are_answered_without_torch() -> None:
    """Wrong options and missing files, too; one process, as its start is most of the time."""
    program = """
import contextlib, io, sys
sys.modules.update(torch=None, numpy=None, mmengine=None)
from rope_dense_command import PACKAGES, command
for name in PACKAGES:
    for argument, code in (('--help', 0), ('--no-such-option', 2)):
        text = io.StringIO()
        try:
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                command(name)([argument])
        except SystemExit as end:
            assert end.code == code, name
        assert 'usage: ' in text.getvalue(), name
files = 'missing.py', 'missing.pth'
for name, given in dict(
    train=files[:1], print_recipe=files[:1], browse_data=files[:1], benchmark=files[:1],
    test=files, report=files, export=(*files, 'a.onnx'), predict=(*files, 'a.jpg'),
    predict_large=(*files, 'a.tif'), push_to_hub=(*files, 'a/b'),
    eval_resolutions=(*files, '--sizes', '64'),
).items():
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        assert command(name)(given) == 2
    assert text.getvalue().startswith('error: ') and text.getvalue().count('\\n') == 1, name
    assert 'missing.p' in text.getvalue() and 'no such file' in text.getvalue(), name
"""
    result = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def test_a_reader_that_ends_early_is_no_error() -> None:
    """As ``rope-dense --help | head -1``; here it has ended before the first line."""
    reading, writing = os.pipe()
    os.close(reading)
    program = [sys.executable, '-m', 'rope_dense_command', '--help']
    result = subprocess.run(program, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (result.returncode, result.stderr) == (141, b'')


def test_mistakes_in_own_data_are_said_without_torch(tmp_path: Path) -> None:
    """Which takes half a second, where the imports take six."""
    write_shapes(tmp_path, ShapesSettings(2, 1, (64, 96), layouts=('coco', 'ade')))
    (tmp_path / 'empty').mkdir()
    program = """
import sys
from rope_dense_command import command
for task, words in (
    ('realtime', '--data nowhere'), ('realtime', '--data empty'), ('depth', '--data coco'),
    ('realtime', '--data coco --size 100'), ('realtime', '--data coco --cfg-options own.epoch=3'),
    ('instance', '--data coco --classes cow'), ('semantic', '--data ade'),
    ('detection', '--data coco --weights x.pth'), ('oriented', '--data coco --backbone resnet'),
):
    for name in ('train', 'print_recipe', 'browse_data'):
        assert command(name)([task, *words.split()]) == 2
assert not {'torch', 'mmengine', 'mmcv'} & {*sys.modules}
"""
    environment = dict(
        os.environ, PYTHONPATH=str(Path(rope_dense_command.__file__).parent)
    )
    result = subprocess.run(
        [sys.executable, '-c', program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 27 and all(line.startswith('error: ') for line in lines), lines


def test_modules_of_the_current_folder_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By custom_imports of a config: the console script begins in the folder of scripts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr('sys.path', [path for path in sys.path if path])
    (tmp_path / 'module_of_a_user.py').write_text("print('imported')\n")
    (tmp_path / 'a.py').write_text(
        "custom_imports = dict(imports=['module_of_a_user'])\n"
    )
    assert rope_dense_command.command('print_recipe')(['a.py']) == 2
    assert capsys.readouterr().out == 'imported\n'


def test_choices_are_those_of_the_package() -> None:
    """The tools repeat them, so that they need not import the package for --help."""

    convert = import_command('convert_checkpoint')
    assert set(convert.LAYOUTS) == {*TARGETS, *DETECTORS} and {*DETECTORS} <= {
        *PUBLISHED_MODELS
    }
    export = import_command('export')
    assert {*import_command('convert_data').FORMATS} == {*LABELS, 'colours', 'tiles'}
    assert set(export.PRECISIONS) == set(DTYPES.values())
    figures = position_figures.OF_FREQUENCIES | position_figures.OF_ATTENTION
    assert (*figures,) == import_command('analyze_positions').FIGURES
    classify = import_command('eval_classification').parse_args
    for resize in get_args(TableResize):
        assert (
            classify(['x.pth', 'folder', '--rpb-resize', resize]).rpb_resize == resize
        )
    shapes, given = (
        import_command('make_shapes').parse_args,
        ['out', '--layout', *FORMATS],
    )
    for colors in COLORS:
        args = shapes([*given, '--colors', colors])
        settings = (
            args.train,
            args.val,
            args.size,
            args.seed,
            colors,
            tuple(args.layout),
        )
        assert ShapesSettings(*settings) == ShapesSettings(colors=colors)


@pytest.mark.parametrize('words, names', [([], COMMANDS), (['research'], RESEARCH)])
def test_the_list_of_commands(words: list[str], names: tuple[str, ...]) -> None:
    """Without torch, and with a line each, as the console script gives it."""
    program = (
        'import sys\nsys.modules.update(torch=None, numpy=None, mmengine=None)\n'
        f"sys.argv = ['rope-dense', *{words}, '--help']\nimport rope_dense_command\n"
        'sys.exit(rope_dense_command.main())'
    )
    result = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    rows = [line.split(maxsplit=1) for line in result.stdout.splitlines()[2:]]
    more = [] if words else ['research']
    assert [name.replace('-', '_') for name, _ in rows] == [*names, *more]


def test_a_command_by_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (['eval-resolutions'], ['research', 'make-shapes']):
        monkeypatch.setattr('sys.argv', ['rope-dense', *words, '--help'])
        with pytest.raises(SystemExit, match='0'):
            rope_dense_command.main()
        assert capsys.readouterr().out.startswith(
            f'usage: rope-dense {" ".join(words)} '
        )
    monkeypatch.setattr('sys.argv', ['rope-dense', 'preddict'])
    assert rope_dense_command.main() == 2
    assert 'did you mean predict?' in capsys.readouterr().err


def test_research_is_for_a_clone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An installed package is without it."""
    monkeypatch.setattr(
        rope_dense_command, '__file__', str(tmp_path / 'rope_dense_command.py')
    )
    (tmp_path / 'rope_dense').mkdir()
    monkeypatch.setattr('sys.argv', ['rope-dense', 'research', 'make-shapes', 'data'])
    assert rope_dense_command.main() == 2
    said = capsys.readouterr().err
    assert (
        said.startswith('error: rope-dense research is not installed: ')
        and said.count('\n') == 1
    )


def test_values_of_options_are_read_as_mmengine_reads_them() -> None:
    pairs = ['a.b=3', 'c=[1,(2,3)]', 'd=x', 'e=True', 'f=a,b', 'a.b=4']
    expected = {'a.b': 4, 'c': [1, (2, 3)], 'd': 'x', 'e': True, 'f': ['a', 'b']}
    assert read_options(pairs) == expected
    assert read_options([]) == {}
