"""`python -m rope_dense`: scripts of mmdet and mmseg, and the commands."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from rope_dense.__main__ import main


def test_a_script_runs_as_by_python_with_the_operators(tmp_path: Path) -> None:
    (tmp_path / 'tool.py').write_text(
        'import sys\nfrom mmcv.ops import nms\nimport beside\n'
        "if __name__ == '__main__':\n    sys.exit(' '.join([*sys.argv, beside.TEXT, nms.__name__]))"
    )
    (tmp_path / 'beside.py').write_text("TEXT = 'beside'")
    command = [
        sys.executable,
        '-m',
        'rope_dense',
        str(tmp_path / 'tool.py'),
        '--out',
        'a b',
    ]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True
    )
    assert (
        done.stderr == f'{tmp_path}/tool.py --out a b beside nms\n' and not done.stdout
    )


@pytest.mark.parametrize('package', ['mmdet', 'mmseg'])
def test_installed_tools_have_short_names(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(
        runpy, 'run_path', lambda path, run_name: started.append((path, sys.argv))
    )
    monkeypatch.setattr(sys, 'path', [*sys.path])
    monkeypatch.setattr(sys, 'argv', ['rope_dense', f'{package}/test.py', 'config.py'])
    assert main() == 0
    ((path, argv),) = started
    assert argv == [path, 'config.py'] and 'checkpoint' in Path(path).read_text()
    assert f'{package}/.mim/tools' in path and sys.path[0] == str(Path(path).parent)


def test_other_arguments_are_those_of_the_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, 'argv', ['rope_dense', 'trian'])
    assert main() == 2 and 'did you mean train?' in capsys.readouterr().err
    monkeypatch.setattr(sys, 'argv', ['rope_dense', 'mmdet/tset.py', 'x'])
    assert main() == 2
    message = capsys.readouterr().err
    assert (
        message.startswith('error: no such file: mmdet/tset.py or /')
        and message.count('\n') == 1
    )
