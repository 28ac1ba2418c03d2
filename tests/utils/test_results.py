"""Results replace what the program wrote and the user has not touched, and nothing else."""

import os
import shutil
from pathlib import Path

import pytest

from rope_dense.utils import results as module
from rope_dense.utils.results import ForeignFileError, Results, results_below


def write(folder: Path, name: str, text: str, **about: object) -> Results:
    with Results(folder, 'test') as results:
        results.write_text(folder / name, text, **about)
    return results


def test_a_result_of_the_program_is_replaced_and_nothing_is_left_behind(
    tmp_path: Path,
) -> None:
    out = tmp_path / 'new' / 'out'
    write(out, 'sub/a.txt', 'first')
    write(out, 'sub/a.txt', 'second')
    assert (out / 'sub' / 'a.txt').read_text() == 'second'
    files = {
        path.relative_to(out).as_posix() for path in out.rglob('*') if path.is_file()
    }
    assert files == {'sub/a.txt', '.rope_dense/test/record.jsonl'}
    assert results_below(tmp_path) == {out / 'sub' / 'a.txt'}


@pytest.mark.parametrize(
    'kind', ['file', 'link', 'dead link', 'folder', 'edited', 'same size']
)
def test_what_the_user_made_stays(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / 'out' / 'a.txt', tmp_path / 'other.txt'
    other.write_text('mine')
    path.parent.mkdir()
    if kind == 'file':
        path.write_text('mine')
    elif kind == 'folder':
        path.mkdir()
    elif kind in ('link', 'dead link'):
        path.symlink_to(other if kind == 'link' else tmp_path / 'nothing')
    else:
        write(path.parent, 'a.txt', 'ours')
        before = path.stat()
        path.write_text('mine' if kind == 'same size' else 'mine, longer')
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ForeignFileError, match=rf'{path} was .*: write elsewhere'):
        write(path.parent, 'a.txt', 'new')
    with Results(path.parent, 'test') as results:
        results.remove(path)
    assert os.path.lexists(path) and other.read_text() == 'mine'
    assert kind in ('folder', 'dead link') or path.read_text().startswith('mine')


@pytest.mark.parametrize('spelling', ['same', 'link', 'hard link', 'dots'])
def test_an_input_is_never_replaced_not_even_one_that_is_a_result(
    tmp_path: Path, spelling: str
) -> None:
    write(tmp_path, 'a.txt', 'input')
    given = tmp_path / 'a.txt'
    if spelling == 'link':
        given = tmp_path / 'link'
        given.symlink_to('a.txt')
    elif spelling == 'hard link':
        given = tmp_path / 'hard'
        os.link(tmp_path / 'a.txt', given)
    elif spelling == 'dots':
        (tmp_path / 'sub').mkdir()
        given = tmp_path / 'sub' / '..' / 'a.txt'
    with Results(tmp_path, 'test', [given]) as results:
        with pytest.raises(ForeignFileError, match='is read by this command'):
            results.check([tmp_path / 'a.txt'])
        with pytest.raises(ForeignFileError), results.write(tmp_path / 'a.txt'):
            pytest.fail('is not reached')
    assert (tmp_path / 'a.txt').read_text() == 'input'


def test_an_edited_result_is_kept_for_its_source_only(tmp_path: Path) -> None:
    write(tmp_path, 'a.txt', 'predicted', source='/camA/a.jpg')
    (tmp_path / 'a.txt').write_text('corrected')
    results = write(tmp_path, 'a.txt', 'again', source='/camA/a.jpg', keeps=True)
    assert (tmp_path / 'a.txt').read_text() == 'corrected'
    assert results.edited == [tmp_path / 'a.txt'] and 'a.txt' in results.edited_text()
    with pytest.raises(ForeignFileError, match='result of another image'):
        write(tmp_path, 'a.txt', 'other', source='/camB/a.jpg', keeps=True)


def test_a_copied_folder_is_known_and_a_large_file_by_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / 'out', 'a.txt', 'ours')
    shutil.copytree(tmp_path / 'out', tmp_path / 'copy', copy_function=shutil.copyfile)
    write(tmp_path / 'copy', 'a.txt', 'new')
    monkeypatch.setattr(module, 'COMPARED', 2)
    write(tmp_path / 'large', 'a.txt', 'ours')
    write(tmp_path / 'large', 'a.txt', 'anew')
    os.utime(tmp_path / 'large' / 'a.txt', (1, 1))
    with pytest.raises(ForeignFileError, match='changed after'):
        write(tmp_path / 'large', 'a.txt', 'more')


def test_a_killed_process_leaves_nothing_that_bars_the_next(tmp_path: Path) -> None:
    """It is killed between the record and the new name, or before."""
    write(tmp_path, 'a.txt', 'first')
    results = Results(tmp_path, 'test')
    (tmp_path / 'half').write_text('half')
    results.note(tmp_path / 'a.txt', tmp_path / 'half')
    (results.home / '0123.txt').write_text('half')
    write(tmp_path, 'a.txt', 'second')
    assert (tmp_path / 'a.txt').read_text() == 'second'
    assert [path.name for path in results.home.iterdir()] == ['record.jsonl']


def test_an_error_leaves_no_folder(tmp_path: Path) -> None:
    path = tmp_path / 'out' / 'sub' / 'a.txt'
    with (
        pytest.raises(ZeroDivisionError),
        Results(tmp_path / 'out', 'predict/0') as results,
        results.write(path) as partial,
    ):
        partial.write_text('half')
        raise ZeroDivisionError
    assert not (tmp_path / 'out').exists()
    (tmp_path / 'empty').mkdir()
    with Results(tmp_path / 'empty', 'test'):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ['empty']


def test_a_folder_is_written_as_a_whole(tmp_path: Path) -> None:
    """After an error not at all; what another process left of it is removed."""
    home = tmp_path / '.rope_dense' / 'test'
    (home / 'fresh' / 'old').mkdir(parents=True)
    (tmp_path / 'sub').mkdir()
    (tmp_path / 'sub' / 'a.txt').write_text('mine')
    for names in (['sub/a.txt', 'z.txt'], ['sub/b.txt']):
        with (
            pytest.raises(ForeignFileError if 'z.txt' in names else ZeroDivisionError),
            Results(tmp_path, 'test') as results,
            results.fresh() as fresh,
        ):
            (fresh / 'sub').mkdir()
            for name in names:
                (fresh / name).write_text('new')
            assert 'z.txt' in names or 1 / 0
    assert [path.name for path in tmp_path.rglob('*') if path.is_file()] == ['a.txt']
    with Results(tmp_path, 'test') as results:
        with results.fresh() as fresh:
            (fresh / 'b.txt').write_text('new')
        with results.fresh(tmp_path / 'whole') as fresh:
            (fresh / 'c.txt').write_text('new')
        assert results.paths() == [tmp_path / 'b.txt'] and not (home / 'fresh').exists()
        results.write_text(tmp_path / 'empty' / 'x' / 'd.txt', 'new')
        results.write_text(tmp_path / 'sub' / 'd.txt', 'new')
        for path in results.paths():
            if path.name == 'd.txt':
                results.remove(path)
    assert [path.name for path in (tmp_path / 'whole').iterdir()] == ['c.txt']
    assert {path.name for path in tmp_path.iterdir()} == {
        '.rope_dense',
        'b.txt',
        'sub',
        'whole',
    }


def test_names_that_are_no_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b'\xff\xfe.txt')
    write(tmp_path, name, f'name {name}')
    write(tmp_path, name, 'again')
    assert (tmp_path / name).read_text() == 'again'
