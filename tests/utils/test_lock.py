"""A lock is held by one process, and ends with it."""

import os
import signal
from pathlib import Path

import pytest

from helpers.locks import hold
from rope_dense.utils.lock import exclusive


@pytest.mark.parametrize('end', ['close', 'kill'])
def test_another_process_is_refused_until_the_first_one_ends(tmp_path: Path, end: str) -> None:
    path = tmp_path / 'work' / 'labels.tif'
    process = hold(path)
    reason = f'is being written by process {process.pid} on'
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
