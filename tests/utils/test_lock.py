"""A lock is held by one process, and ends with it, also where the file system has no locks."""

import errno
import os
import re
import signal
from pathlib import Path
from threading import Timer
from unittest.mock import Mock

import pytest

from helpers.locks import hold
from rope_dense.utils.lock import exclusive


@pytest.mark.parametrize('end', ['close', 'kill'])
def test_another_process_is_refused_until_the_first_one_ends(
    tmp_path: Path, end: str
) -> None:
    path = tmp_path / 'work' / 'labels.tif'
    process = hold(path)
    reason = f'is being written by process {process.pid} on .* .lock: {path.parent}/.labels.tif.lo'
    with pytest.raises(BlockingIOError, match=reason) as caught, exclusive(path):
        pass
    assert caught.value.filename == str(path)
    with exclusive(tmp_path / 'work' / 'other.tif'):
        pass
    if end == 'kill':
        os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    with exclusive(path):
        assert (path.parent / '.labels.tif.lock').exists()
    assert not list(path.parent.iterdir())


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / 'secret').write_text('as it was')
    (tmp_path / '.x.lock').symlink_to(tmp_path / 'secret')
    with pytest.raises(OSError, match='symbolic link'), exclusive(tmp_path / 'x'):
        pass
    assert (tmp_path / 'secret').read_text() == 'as it was'


def test_a_lock_ends_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), exclusive(tmp_path / 'x'):
        raise ZeroDivisionError
    with exclusive(tmp_path / 'x'):
        pass


@pytest.mark.parametrize('number', [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Lustre without -o flock, NFS without lockd: what a killed process left bars nobody."""
    (tmp_path / '.x.lock').write_text('13441\nanother-host\n')
    monkeypatch.setattr(
        'fcntl.flock', Mock(side_effect=OSError(number, os.strerror(number)))
    )
    with exclusive(tmp_path / 'x') as first, exclusive(tmp_path / 'x', 60) as second:
        assert not first and not second
    line = f'{tmp_path}/.x.lock: {os.strerror(number)}: start no second process here'
    assert capsys.readouterr().err.splitlines() == [line]


def test_a_child_that_outlives_a_killed_process_does_not_hold_its_lock(
    tmp_path: Path,
) -> None:
    """As a loading worker may."""
    process = hold(tmp_path / 'x', children=1)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    process.kill()
    process.wait(timeout=30)
    try:
        with exclusive(tmp_path / 'x'):
            os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_process_waits_and_says_for_whom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr('rope_dense.utils.lock.LINE', 0.2)
    process = hold(tmp_path / 'x')
    expected = rf'{tmp_path}/.x.lock: \d s; waiting for process {process.pid} on .*\n'
    with (
        pytest.raises(BlockingIOError, match='is being written'),
        exclusive(tmp_path / 'x', 0.5),
    ):
        pass
    assert re.search(expected, capsys.readouterr().err)
    Timer(0.3, process.communicate).start()  # its input ends, and it with it
    with exclusive(tmp_path / 'x', 30) as is_alone:
        assert is_alone


def test_a_failure_that_is_no_lack_of_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        'fcntl.flock', Mock(side_effect=OSError(errno.EIO, 'Input/output error'))
    )
    with pytest.raises(OSError, match='Input/output error'), exclusive(tmp_path / 'x'):
        pass
