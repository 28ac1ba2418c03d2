"""Files are complete or unchanged, and nothing else is written to."""

import errno
import os
import stat
from pathlib import Path

import pytest

from rope_dense.utils import disk as module
from rope_dense.utils.disk import atomic_folder, atomic_write, atomic_write_text


def test_the_file_appears_when_it_is_complete(tmp_path: Path):
    path = tmp_path / 'new' / 'x.txt'
    with atomic_write(path) as partial:
        partial.write_text('first')
        assert not path.exists() and partial.parent == path.parent
    assert path.read_text() == 'first'
    atomic_write_text(path, 'Δ')
    assert path.read_text(encoding='utf-8') == 'Δ'
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    'error', [OSError('no space'), KeyboardInterrupt(), ValueError('x')]
)
def test_an_error_leaves_the_file_unchanged(tmp_path: Path, error: BaseException):
    path = tmp_path / 'x.txt'
    path.write_text('before')
    with pytest.raises(type(error)), atomic_write(path) as partial:
        partial.write_text('half')
        raise error
    assert path.read_text() == 'before' and list(tmp_path.iterdir()) == [path]


def test_the_mode_follows_the_umask(tmp_path: Path):
    before = os.umask(0o027)
    try:
        atomic_write_text(tmp_path / 'x.txt', 'text')
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / 'x.txt').stat().st_mode) == 0o640


@pytest.mark.parametrize('kind', ['link', 'dangling link', 'file'])
def test_what_has_the_name_of_the_partial_file_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
):
    monkeypatch.setattr(module.secrets, 'token_hex', lambda size: 'guessed')
    victim, taken = tmp_path / 'victim', tmp_path / 'x.txt.guessed.partial'
    if kind == 'file':
        taken.write_text('secret')
    else:
        taken.symlink_to(victim)
        if kind == 'link':
            victim.write_text('secret')
    with pytest.raises(FileExistsError), atomic_write(tmp_path / 'x.txt') as partial:
        partial.write_text('text')
    assert taken.is_symlink() == (kind != 'file') and not (tmp_path / 'x.txt').exists()
    assert victim.exists() == (kind == 'link')
    assert all(
        path.read_text() == 'secret' for path in (victim, taken) if path.exists()
    )


def test_two_writers_do_not_share_a_file(tmp_path: Path):
    path = tmp_path / 'x.txt'
    with atomic_write(path) as first, atomic_write(path) as second:
        first.write_text('first')
        second.write_text('second')
    assert path.read_text() == 'first' and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def touch(path: Path, exist_ok: bool) -> None:
        raise PermissionError(errno.EACCES, 'Permission denied', str(path))

    monkeypatch.setattr(Path, 'touch', touch)
    with (
        pytest.raises(PermissionError, match=r'cannot be written .*GB left') as caught,
        atomic_write(tmp_path / 'x.txt'),
    ):
        pytest.fail('is not reached')
    assert caught.value.filename == str(tmp_path / 'x.txt')


def test_files_of_a_folder_come_together_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / 'out'
    folder.mkdir()
    (folder / 'old').write_text('old')
    with pytest.raises(ZeroDivisionError), atomic_folder(folder) as partial:
        (partial / 'new').write_text('new')
        raise ZeroDivisionError
    assert [file.name for file in folder.iterdir()] == ['old']
    with atomic_folder(folder) as partial:
        (partial / 'new').write_text('new')
    assert [file.name for file in folder.iterdir()] == ['new']
    assert list(tmp_path.iterdir()) == [folder]
