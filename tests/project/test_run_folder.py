"""The folder of a run: only a training writes it, and nothing damages it."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mmengine.config import Config

from rope_dense.project.errors import UsageError
from rope_dense.project.find import read_written_settings
from rope_dense.project.run import Run
from rope_dense_command import command

LOG = r'\d{8}_\d{6}(/.*)?'  # of mmengine
RESULTS = {  # of a command on a run: its arguments, and the files that it may write there
    'test': ((), '(?!)'),
    'report': ((), r'report(/.*)?|\.report\.lock'),
    'eval-resolutions': (
        ('--sizes', '64', '96', '--scaling', 'config', 'linear'),
        r'\.?resolutions\.(json|csv|png|json\.lock)',
    ),
    'choose-scaling': (('--sizes', '96', '--draws', '440', '--images', '2'), r'scaling(/.*)?'),
    'predict': (('PICTURES',), r'predictions(/.*)?|\.predictions\.lock'),
    'export': (('OUT', '--size', '64'), '(?!)'),
    'push-to-hub': (('me/mine', '--folder', 'OUT'), '(?!)'),
    'benchmark': (('--sizes', '64', '--modes', 'forward', '--rounds', '1'), r'benchmark/.*'),
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
            assert [file for file in changed if not re.fullmatch(results, file)] == [], name


def test_a_training_that_is_refused_changes_no_byte(
    run: Path, detector: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two jobs of one folder: by --resume, as a new training, and to write over it."""
    for options in ('', '--resume', '--overwrite', '--resume --cfg-options train_cfg.max_iters=9'):
        with Run(run).written():
            before = digests(run)
            given = [detector, '--work-dir', str(run), *options.split()]
            assert command('train')(given) == 2
            assert digests(run) == before and 'is being written by' in capsys.readouterr().err
    before = digests(run)
    assert command('train')([detector, '--work-dir', str(run)]) == 2
    assert digests(run) == before and 'of an earlier run' in capsys.readouterr().err


def test_the_best_checkpoint_is_the_recorded_one(tmp_path: Path) -> None:
    """Whatever the time of the files; of earlier versions, without a record, the latest."""
    for number in (8, 100, 24):
        (tmp_path / f'best_mAP_iter_{number}.pth').touch()
    assert Path(Run(tmp_path).best).name == 'best_mAP_iter_100.pth'
    record = dict(file='best_mAP_iter_24.pth', metric='mAP', value=0.5, iteration=24, epoch=3)
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
    result = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    after = digests(run)
    assert {file: after.get(file) for file in before} == before


def test_settings_are_read_from_a_copy_of_a_recipe_with_a_model(tmp_path: Path) -> None:
    path = tmp_path / 'mine.py'
    path.write_text("task = 'realtime'\nown = dict(epochs=3)\nmodel = dict(neck=None)\n")
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
