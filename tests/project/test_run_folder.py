"""The folder of a run: only a training writes it, and nothing damages it."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mmengine.config import Config

from helpers.field import write
from rope_dense.project.find import read_written_settings
from rope_dense.project.run import Run
from rope_dense.utils.disk import TRAINING
from rope_dense.utils.errors import UsageError
from rope_dense.utils.results import ForeignFileError, Results
from rope_dense_command import command

LOG = r'\d{8}_\d{6}(/.*)?'  # of mmengine
RESULTS = {  # of a command on a run: its arguments, and the files that it may write there
    'test': ((), '(?!)'),
    'report': ((), r'report(/.*)?'),
    'eval-resolutions': (
        ('--sizes', '64', '96', '--scaling', 'config', 'linear'),
        r'resolutions\.(json|csv|png)|\.rope_dense/resolutions.json/.*',
    ),
    'choose-scaling': (
        ('--sizes', '96', '--draws', '560', '--images', '2'),
        r'scaling(/.*)?',
    ),
    'predict': (('PICTURES',), r'predictions(/.*)?'),
    'export': (('OUT', '--size', '64'), '(?!)'),
    'push-to-hub': (('me/mine', '--folder', 'OUT'), '(?!)'),
    'benchmark': (
        ('--sizes', '64', '--modes', 'forward', '--rounds', '1'),
        r'benchmark/.*',
    ),
    'position-bias': (('--sizes', '64'), r'position_bias/.*'),
    'print-recipe': ((), '(?!)'),
}


def digests(folder: Path) -> dict[str, str]:
    """SHA-1 of each file by its path in a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha1(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob('*'))
        if path.is_file()
    }


@pytest.fixture(scope='module')
def trained(detector: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp('runs') / 'run'
    assert command('train')([detector, '--work-dir', str(run)]) == 0
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / 'run')


def test_a_command_leaves_what_it_reads(run: Path, data: Path, tmp_path: Path) -> None:
    """What the first leaves, the second reads."""
    places = dict(PICTURES=str(data / 'coco' / 'val2017'))
    for name, (options, results) in RESULTS.items():
        for turn in range(2 if name in ('test', 'eval-resolutions') else 1):
            before = digests(run)
            places['OUT'] = str(tmp_path / f'{turn}_{name}.pt2')
            given = [str(run), *(places.get(word, word) for word in options)]
            if name == 'print-recipe':
                given[0] = Run(run).config_file
            assert command(name.replace('-', '_'))(given) == 0, name
            after = digests(run)
            changed = [file for file in after if before.get(file) != after[file]]
            assert before.keys() <= after.keys(), name
            # A logger of an earlier command of this process still writes.
            results = rf'{results}|(scaling/log/)?{LOG}'
            assert [
                file for file in changed if not re.fullmatch(results, file)
            ] == [], name


def test_a_training_that_is_refused_changes_no_byte(
    run: Path, detector: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two jobs of one folder: by --resume, as a new training, and to write over it."""
    for options in (
        '',
        '--resume',
        '--overwrite',
        '--resume --cfg-options train_cfg.max_iters=9',
    ):
        with Run(run).written():
            before = digests(run)
            given = [detector, '--work-dir', str(run), *options.split()]
            assert command('train')(given) == 2
            assert (
                digests(run) == before
                and 'is being written by' in capsys.readouterr().err
            )
    before = digests(run)
    assert command('train')([detector, '--work-dir', str(run)]) == 2
    assert digests(run) == before and 'of an earlier run' in capsys.readouterr().err


def test_a_training_leaves_the_files_of_the_user(
    run: Path, detector: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those with names as a training gives them; one that it could write over is refused."""
    given = [detector, '--work-dir', str(run)]
    before = digests(run)
    names = ['20240101_120000/flight.jpg', '20240101_120000/vis_data/scalars.json']
    names += [
        'dataset.zip.partial',
        '.x.0123.partial/model.onnx',
        'notes.txt',
        'report/mine.txt',
    ]
    names += [
        'new/epoch_12.pth',
        'new/notes.txt',
        'best.pth',
        'log/20240101_120000/mine.log',
    ]
    for name in names:
        write(run / name, f'{name} of the user')
    (run / 'weights.pth').symlink_to(
        data / 'coco' / 'annotations' / 'instances_val2017.json'
    )
    foreign = {
        name: digest for name, digest in digests(run).items() if name not in before
    }
    assert len(foreign) == len(names) + 1

    def unchanged() -> bool:
        return foreign.items() <= digests(run).items()

    write(run / 'iter_12.pth', 'of the user')
    before = digests(run)
    assert command('train')([*given, '--overwrite']) == 2
    assert digests(run) == before
    assert 'iter_12.pth was not written by rope-dense' in capsys.readouterr().err
    (run / 'iter_12.pth').unlink()
    new = [detector, '--work-dir', str(run / 'new')]
    for options, says in (
        ([], 'such as epoch_12.pth'),
        (['--overwrite'], 'new/epoch_12.pth was'),
    ):
        assert command('train')([*new, *options]) == 2
        assert says in capsys.readouterr().err and unchanged()
    shutil.rmtree(run / '.rope_dense')  # as of an earlier version
    more = ['--resume', '--cfg-options', 'train_cfg.max_iters=4']
    assert command('train')([*given, *more]) == 0 and unchanged()
    assert Path(Run(run).last or '').name == 'iter_4.pth'
    (run / 'iter_1.pth').unlink()  # which no list names
    logs = [path.parent for path in run.glob('*/vis_data/config.py')]
    Results(run / 'report', 'report').write_text(run / 'report' / 'report.json', '{}')
    time.sleep(1)  # mmengine names folders of logs by seconds
    assert command('train')([*given, '--overwrite']) == 0 and unchanged()
    assert 'files of the earlier run were removed' in capsys.readouterr().out
    assert not any(path.exists() for path in (*logs, run / 'report' / 'report.json'))
    assert not [*run.glob('.rope_dense/training/[!r]*')]


def test_a_run_of_an_earlier_version_has_its_lists(tmp_path: Path) -> None:
    """It has no record: a new training takes what they name, and what it writes itself."""
    run, config = tmp_path / 'run', write(tmp_path / 'cats.py', 'model = dict()')
    cfg = Config.fromfile(config)
    cfg.update(work_dir=str(run), resume=True, load_from=str(run / 'iter_4.pth'))
    write(run / 'last_checkpoint', '/moved/run/iter_4.pth')
    write(run / 'best_checkpoint.json', json.dumps(dict(file='best_ap_iter_2.pth')))
    for name in (
        'iter_2.pth',
        'iter_4.pth',
        'best_ap_iter_2.pth',
        'cats.py',
        'other.py',
    ):
        write(run / name, name)
    Run(run).check_new(cfg, overwrite=False)
    results = Results(run, TRAINING)
    owned = {path.name for path in run.glob('*') if results.owner(path) == 'program'}
    assert owned == {'iter_4.pth', 'best_ap_iter_2.pth', 'cats.py'}
    cfg.update(resume=False, load_from=None)
    with pytest.raises(ForeignFileError, match=r'run/iter_2\.pth was not written by'):
        Run(run).check_new(cfg, overwrite=True)


def test_the_config_that_is_read_is_not_replaced(tmp_path: Path) -> None:
    """The user's stays; of a run it is written again, unless it was edited, and not removed."""
    config = write(tmp_path / 'run' / 'cats.py', 'model = dict()')
    cfg, run = Config.fromfile(config), Run(tmp_path / 'run')
    with pytest.raises(
        ForeignFileError, match=r'run/cats\.py was not written by rope-dense'
    ):
        run.check_new(cfg, overwrite=False)
    Results(run.folder, TRAINING).note(config, config)
    run.check_new(cfg, overwrite=True)
    run.clear(cfg)
    assert config.exists()
    write(config, 'model = dict()  # mine')
    with pytest.raises(ForeignFileError, match=r'run/cats\.py was changed'):
        run.check_new(cfg, overwrite=True)


def test_the_best_checkpoint_is_the_recorded_one(tmp_path: Path) -> None:
    """Whatever the time of the files; of earlier versions, without a record, the latest."""
    for number in (8, 100, 24):
        (tmp_path / f'best_mAP_iter_{number}.pth').touch()
    assert Path(Run(tmp_path).best).name == 'best_mAP_iter_100.pth'
    record = dict(
        file='best_mAP_iter_24.pth', metric='mAP', value=0.5, iteration=24, epoch=3
    )
    (tmp_path / 'best_checkpoint.json').write_text(json.dumps(record))
    assert Path(Run(tmp_path).best).name == 'best_mAP_iter_24.pth'
    (tmp_path / 'best_mAP_iter_24.pth').unlink()
    assert Path(Run(tmp_path).best).name == 'best_mAP_iter_100.pth'
    (tmp_path / 'best_checkpoint.json').write_text('{')
    assert Run(tmp_path).record == {}


@pytest.mark.slow
def test_a_tool_of_mmdet_leaves_the_config(run: Path) -> None:
    """As docs/heads.md calls it; mmengine writes the tool's config, with its options, there."""
    before = digests(run)
    code = f'import sys; sys.argv[1:] = ["mmdet/test.py", {Run(run).config_file!r}, '
    code += f'{Run(run).best!r}, "--tta", "--work-dir", {str(run)!r}]\n'
    code += 'from rope_dense.__main__ import main; sys.exit(main())'
    result = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    after = digests(run)
    assert {file: after.get(file) for file in before} == before


def test_settings_are_read_from_a_copy_of_a_recipe_with_a_model(tmp_path: Path) -> None:
    path = tmp_path / 'mine.py'
    path.write_text(
        "task = 'realtime'\nown = dict(epochs=3)\nmodel = dict(neck=None)\n"
    )
    assert read_written_settings(str(path)) == (dict(epochs=3, task='realtime'), False)


@pytest.mark.parametrize('is_resumed', [False, True])
def test_a_config_that_a_sweep_replaced_is_restored(
    run: Path, is_resumed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of versions before 2026-12, whose eval-resolutions wrote its own config there."""
    config = Path(Run(run).config_file)
    text, before = config.read_text(), Config.fromfile(config).to_dict()
    (copy,) = run.glob('*/vis_data/config.py')
    if is_resumed:
        copy.write_text(
            re.sub('resume *= *False', 'resume = True', copy.read_text())
            .replace('load_from=None', "load_from='gone.pth'")
            .replace('load_from = None', "load_from = 'gone.pth'")
        )
    loop = "test_cfg = dict(fp16=False, type='ResolutionLoop')"
    damaged = re.sub(r"(?m)^test_cfg *= *dict\(\s*type='TestLoop'\)", loop, text)
    assert damaged != text
    config.write_text(damaged)
    sweep = run / '20990101_000000' / 'vis_data' / 'config.py'
    sweep.parent.mkdir(parents=True)
    sweep.write_text(damaged)
    assert Run(run).config_file == str(config) and 'restored' in capsys.readouterr().out
    assert Config.fromfile(config).to_dict() == before
    assert Run(run).config_file == str(config) and capsys.readouterr().out == ''
    config.write_text(damaged)
    copy.unlink()
    with pytest.raises(UsageError, match='no log folder of the training has a copy'):
        Run(run).config_file  # noqa: B018, it reads files
