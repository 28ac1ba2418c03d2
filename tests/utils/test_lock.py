"""A lock is held by one process, and ends with it, also where the file system has no locks."""

import errno
import fcntl
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from threading import Timer

import pytest

from helpers.locks import hold
from rope_dense.utils.lock import exclusive

Break = Callable[[int, Path], None]


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Break:
    """Let the file system of a folder have no locks; the temporary folder is another one."""
    flock = fcntl.flock
    (tmp_path / 'temporary').mkdir()
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path / 'temporary'))

    def break_locks(number: int, folder: Path) -> None:
        def broken(descriptor: int, operation: int) -> None:
            if Path(os.readlink(f'/proc/self/fd/{descriptor}')).is_relative_to(folder):
                raise OSError(number, os.strerror(number))
            flock(descriptor, operation)

        monkeypatch.setattr('fcntl.flock', broken)

    return break_locks


@pytest.mark.parametrize('end', ['close', 'kill'])
def test_another_process_is_refused_until_the_first_one_ends(tmp_path: Path, end: str) -> None:
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
    tmp_path: Path, breaks: Break, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lustre without -o flock, NFS without lockd: a lock that a killed process left bars nobody."""
    breaks(number, work := tmp_path / 'work')
    work.mkdir()
    (work / '.x.lock').write_text('13441\nanother-host\n')
    with exclusive(work / 'x') as is_alone:
        line = capsys.readouterr().err
        assert not is_alone and line.count('\n') == 1
        assert line.startswith(f'{work}/.x.lock: no locks on this file system; {tmp_path}/temp')
        reason = f'by process {os.getpid()} on .* .lock: {tmp_path}/temporary/rope_dense_'
        with pytest.raises(BlockingIOError, match=reason), exclusive(work / 'x'):
            pass
    with exclusive(work / 'x'):
        pass


def test_a_machine_without_locks(tmp_path: Path, breaks: Break) -> None:
    breaks(errno.ENOSYS, tmp_path)
    with exclusive(tmp_path / 'x') as first, exclusive(tmp_path / 'x', 60) as second:
        assert not first and not second


def test_a_child_that_outlives_a_killed_process_does_not_hold_its_lock(tmp_path: Path) -> None:
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
    expected = rf'waiting for process {process.pid} on .*, \d s .lock: {tmp_path}/.x.lock'
    with pytest.raises(BlockingIOError, match='is being written'), exclusive(tmp_path / 'x', 0.5):
        pass
    assert re.search(expected, capsys.readouterr().err)
    Timer(0.3, process.communicate).start()  # its input ends, and it with it
    with exclusive(tmp_path / 'x', 30) as is_alone:
        assert is_alone


def test_a_failure_that_is_no_lack_of_locks(tmp_path: Path, breaks: Break) -> None:
    breaks(errno.EIO, tmp_path)
    with pytest.raises(OSError, match='Input/output error'), exclusive(tmp_path / 'x'):
        pass
