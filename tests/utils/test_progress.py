"""Progress is one line on a terminal, and lines of text in a log."""

import io
import time

import pytest

from rope_dense.utils.progress import bar, progress, show_elapsed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr('tqdm.std.tqdm._time', lambda: now[0], raising=False)
    monkeypatch.setattr('tqdm.std.time', lambda: now[0])
    return now


def test_a_log_has_a_line_each_ten_seconds(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in progress(range(8), 'predict'):
        clock[0] += 4
    assert capsys.readouterr().err.splitlines() == [
        'predict: 3 of 8, 20 s left',
        'predict: 6 of 8, 8 s left',
    ]
    with bar('frames') as done:
        clock[0] += 12
        done.update(30)
    assert capsys.readouterr().err == 'frames: 30, 12 s\n'


def test_what_is_quick_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress(iter('abc'), 'read', 3)) == ['a', 'b', 'c']
    with show_elapsed('model.onnx: traced'):
        pass
    assert capsys.readouterr().err == ''


def test_a_terminal_has_one_line_which_is_cleared(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('sys.stderr', screen := Terminal())
    for _ in progress(range(8), 'predict'):
        clock[0] += 4
    assert '| 3/8 [' in screen.getvalue() and '\n' not in screen.getvalue()
    assert screen.getvalue().split('\r')[-2].isspace()


@pytest.mark.parametrize('terminal', [False, True])
def test_a_silent_step_gives_signs_of_life(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if terminal:
        monkeypatch.setattr('sys.stderr', screen := Terminal())
    with show_elapsed('model.onnx: traced', seconds=0.05):
        time.sleep(0.13)
    said = screen.getvalue() if terminal else capsys.readouterr().err
    assert said.count('model.onnx: traced: 0 s') == 2
    assert said.count('\n') == (0 if terminal else 2)
    assert not terminal or said.split('\r')[-2].isspace()
