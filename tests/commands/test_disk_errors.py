"""A full disk, images that cannot be read: one line that names the file, and nothing is left."""

import errno
from argparse import Namespace
from pathlib import Path

import pytest
import safetensors
import torch

from helpers.small_configs import make_data
from helpers.tool_names import Main
from rope_dense.commands.run import run
from rope_dense.data.loading import LoadError, NamingPipeline
from rope_dense.export.exporter import check_space
from rope_dense.project import convert_checkpoint
from rope_dense.utils.disk import atomic_write
from rope_dense.utils.results import Results
from rope_dense_command import command


def test_a_full_disk_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """mmengine's own errors know no file."""

    def main(args: Namespace) -> None:
        raise OSError(errno.ENOSPC, 'No space left on device', *args.argv)

    for argv, named in (([], 'a file'), (['work/config.py'], 'work/config.py')):
        assert run(main, Namespace(argv=argv, debug=False)) == 2
        assert capsys.readouterr().err == f'error: {named}: No space left on device\n'


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / 'x.pth').mkdir()
    with (
        pytest.raises(OSError, match=r'x\.pth') as caught,
        atomic_write(tmp_path / 'x.pth') as partial,
    ):
        partial.touch()
    assert caught.value.filename == str(tmp_path / 'x.pth')
    assert [path.name for path in tmp_path.iterdir()] == ['x.pth']


def test_weights_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def save_file(weights: dict, path: Path, metadata: dict) -> None:
        path.write_bytes(b'half')
        raise safetensors.SafetensorError('No space left on device')

    monkeypatch.setattr(convert_checkpoint, 'save_file', save_file)
    monkeypatch.setattr(convert_checkpoint, 'find_layout', lambda *_: Identity())
    source, out = tmp_path / 'source.pth', tmp_path / 'out'
    torch.save({'patch_embed.proj.weight': torch.zeros(8, 3, 16, 16)}, source)
    out.mkdir()
    convert = command('convert_checkpoint')
    assert convert([str(source), str(out / 'x.safetensors')]) == 2
    message = capsys.readouterr().err
    assert f'{out / "x.safetensors"}' in message and 'No space left' in message
    assert not list(out.iterdir())


class Identity:
    """A layout that is ours already."""

    name = 'ours'

    def to_ours(self, weights: dict) -> dict:
        return weights


@pytest.mark.parametrize(
    'info, name',
    [(dict(sample_idx=3), 'image 3'), (dict(seg_map_path='a', img_path='b'), 'b or a')],
)
def test_an_image_of_any_data_set_is_named(info: dict, name: str) -> None:
    def fail(data: dict) -> dict:
        raise KeyError('labels')

    with pytest.raises(LoadError) as caught:
        NamingPipeline([fail])(info)
    assert str(caught.value) == f"{name} cannot be loaded: KeyError: 'labels'"


@pytest.mark.parametrize('workers', [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_image_that_is_damaged(
    train: Main,
    detector: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    workers: int,
) -> None:
    """Found in the middle of training; a worker wraps errors in its traceback."""
    data = make_data(tmp_path / 'data') / 'coco'
    *_, path = sorted((data / 'train2017').iterdir())
    path.write_bytes(b'')
    options = [f'train_dataloader.num_workers={workers}', 'train_cfg.max_iters=20']
    options += ['train_cfg.val_interval=20', f'experiment_name=damaged{workers}']
    argv = [detector, '--data-root', str(data), '--work-dir', str(tmp_path / 'work')]
    assert (
        train([*argv, '--cfg-options', *options, f'visualizer.name=damaged{workers}'])
        == 2
    )
    message = capsys.readouterr().err
    assert f'error: {path} cannot be loaded: ' in message and 'Traceback' not in message


def test_what_has_no_name_in_an_error_is_named(tmp_path: Path) -> None:
    """Files of a folder that appear together, and steps of a journal."""
    full = OSError(errno.ENOSPC, 'No space left on device')
    with (
        pytest.raises(
            OSError, match=r"written \(.*No space left .*GB left: '.*/out/tiles'"
        ),
        Results(tmp_path / 'out', 'tiles') as results,
        results.fresh(),
    ):
        raise full
    assert not (tmp_path / 'out').exists()
    (tmp_path / 'file').touch()
    with pytest.raises(
        ValueError, match='file is a file, and the results need a folder'
    ):
        Results(tmp_path / 'file', 'test').__enter__()


def test_an_export_needs_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch ends the process on a full disk."""
    monkeypatch.setattr('shutil.disk_usage', lambda place: Namespace(free=1000))
    with pytest.raises(OSError, match=r'a\.pt2'):
        check_space(torch.nn.Linear(20, 20), tmp_path / 'a.pt2')
    check_space(torch.nn.Linear(5, 5), tmp_path / 'a.pt2')
