"""Settings of own data as people give them: text stays text, and what cannot be meant is refused.

Numbers as B12 are of a reading of the commands, as F15 of inputs that were tried.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mmengine.config import Config

import rope_dense
from helpers.field import write
from helpers.grid import CONFIGS
from rope_dense.commands import train as command
from rope_dense.data.generated import (
    SEGMENTATION_METAINFO,
    ShapesSettings,
    write_shapes,
)
from rope_dense.project.load import load_config
from rope_dense.project.own.settings import (
    Own,
    OwnDepth,
    OwnObjects,
    OwnRealtime,
    OwnSemantic,
    task_settings,
)
from rope_dense.project.own.tasks import TASKS
from rope_dense.project.own.text import Text
from rope_dense.project.run import Run
from rope_dense.utils.disk import TRAINING
from rope_dense.utils.errors import UsageError
from rope_dense.utils.results import ForeignFileError, Results

pytestmark = pytest.mark.usefixtures('surroundings')


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# B1: mmengine's options drop spaces and split at commas. (setting, text, value)
TEXTS = [
    ('classes', "['traffic light','car']", ['traffic light', 'car']),
    ('classes', '[traffic light, car]', ['traffic light', 'car']),
    ('classes', '["red, large", car]', ['red, large', 'car']),
    ('classes', 'traffic light', ['traffic light']),
    ('classes', 'cat,dog', ['cat', 'dog']),
    (
        'classes',
        '[yes, no, on, 1.10, 007, ~, None]',
        'yes no on 1.10 007 ~ None'.split(),
    ),
    ('classes', 'None', None),
    ('data_root', 'My Data', 'My Data'),
    ('data_root', ', data (1)', ', data (1)'),
    ('data_root', '[a]', '[a]'),
    ('train', 'images/train', 'images/train'),
    ('train', 'labels, new.json', 'labels, new.json'),
    ('weights', 'None', None),
    ('weights', 'hf-hub:a/b', 'hf-hub:a/b'),
    ('flip', 'none', 'none'),
    ('lr', '1e-4', 1e-4),
    ('classes', '[1, 2]', ['1', '2']),
    ('classes', '[1e3, 0x10, .5, True, null]', ['1e3', '0x10', '.5', 'True', 'null']),
    ('classes', 'null', ['null']),
    ('weights', 'null', 'null'),
    ('weights', ' None ', None),
    ('lr', 'None', None),
    ('lr', '.5', 0.5),
    ('lr', '1', 1.0),
    ('epochs', ' +20 ', 20),
    ('max_value', 'None', None),
    ('max_value', '4095', 4095),
    ('channels', '4', 4),
    ('channels', '[4, 1]', [4, 1]),
    ('channels', 'red, nir', ['red', 'nir']),
    ('channels', '[B02, 1.10]', ['B02', '1.10']),
    ('epochs', '20', 20),
    ('ema', 'true', True),
    ('ema', 'False', False),
    ('mosaic', 'False', False),
    ('keep_ratio', 'True', True),
]


@pytest.mark.parametrize('name, text, value', TEXTS)
def test_text_of_a_command_line(name: str, text: str, value: object) -> None:
    own = task_settings(OwnRealtime, {'data_root': 'x', 'size': 64, name: Text(text)})
    given = getattr(own, name)
    assert given == value and type(given) is type(value)


VALUES: list[tuple[str, object, object]] = [
    ('epochs', np.int64(20), 20),
    ('lr', np.float32(0.5), 0.5),
    ('lr', 1, 1.0),
    ('ema', np.bool_(True), True),
    ('classes', ('a', 'b'), ['a', 'b']),
    ('classes', np.array(['a', 'b']), ['a', 'b']),
    ('classes', [np.str_('a'), Path('b')], ['a', 'b']),
    ('train', Path('labels.json'), 'labels.json'),
    ('channels', np.array([4, 1]), [4, 1]),
]


@pytest.mark.parametrize('name, given, value', VALUES)
def test_values_of_python_are_plain(name: str, given: object, value: object) -> None:
    """A config is written with them, so NumPy's and paths become Python's; lists are lists."""
    own = task_settings(OwnRealtime, {'data_root': 'x', 'size': 64, name: given})
    read = getattr(own, name)
    assert read == value and type(read) is type(value)


def test_a_space_without_quotes(folder: Path) -> None:
    with pytest.raises(
        UsageError, match=r'--cfg-options Data: no KEY=VALUE; one with spaces'
    ):
        load_config('detection', ['own.data_root=My', 'Data'])


def test_text_of_masks() -> None:
    own = task_settings(
        OwnSemantic,
        dict(data_root='x', void=Text("[0, bg, '3']"), values=Text('[0,255]'))
        | dict(train=Text('[my images, masks]')),
    )
    assert (own.void, own.values, own.train) == (
        [0, 'bg', '3'],
        [0, 255],
        ['my images', 'masks'],
    )
    assert task_settings(OwnSemantic, dict(data_root='x', void=Text('0'))).void == [0]


REFUSED: list[tuple[type[Own], str, object, str]] = [
    (OwnRealtime, 'epochs', Text('2.5'), "own.epochs must be an integer, got '2.5'"),
    (OwnRealtime, 'epochs', '20', "own.epochs must be an integer, got '20'"),
    (OwnRealtime, 'epochs', True, 'own.epochs must be an integer, got True'),
    (OwnRealtime, 'epochs', 20.0, 'own.epochs must be an integer, got 20.0'),
    (OwnRealtime, 'epochs', None, 'own.epochs must be an integer, got None'),
    (OwnRealtime, 'epochs', Text(''), "own.epochs must be an integer, got ''"),
    (OwnRealtime, 'epochs', Text('[20]'), "own.epochs must be an integer, got '[20]'"),
    (
        OwnRealtime,
        'epochs',
        Text('9' * 5000),
        "own.epochs must be an integer, got '999",
    ),
    (OwnRealtime, 'ema', 1, 'own.ema must be True or False, got 1'),
    (OwnRealtime, 'lr', True, 'own.lr must be a number or None, got True'),
    (OwnRealtime, 'lr', Text('inf'), "own.lr must be a number or None, got 'inf'"),
    (OwnRealtime, 'lr', 10**400, 'own.lr must be a number or None, got 1000'),
    (OwnRealtime, 'classes', {'a', 'b'}, 'own.classes must be a list'),
    (OwnRealtime, 'classes', ['a', ''], "or None, got ['a', '']"),
    (OwnRealtime, 'classes', Text('[a: b]'), "or None, got '[a: b]'"),
    (OwnRealtime, 'classes', Text('[[a], b]'), "or None, got '[[a], b]'"),
    (OwnRealtime, 'classes', Text('[' * 3000), "or None, got '[[["),
    (OwnRealtime, 'weights', b'x', "own.weights must be text or None, got b'x'"),
    (
        OwnRealtime,
        'channels',
        [True, 2],
        'own.channels must be an integer or a list such as [0, 1',
    ),
    (OwnRealtime, 'channels', [1.5], 'or None, got [1.5]'),
    (OwnRealtime, 'gpus', 0, 'own.gpus must be an integer from 1 up, got 0'),
    (
        OwnSemantic,
        'values',
        Text('[0, a]'),
        'own.values must be a list such as [0, 1] or None, got',
    ),
    (OwnRealtime, 'ema', Text('yes'), "own.ema must be True or False, got 'yes'"),
    (OwnRealtime, 'lr', Text('fast'), "own.lr must be a number or None, got 'fast'"),
    (OwnRealtime, 'lr', float('nan'), 'own.lr must be a number or None, got nan'),
    (OwnRealtime, 'classes', Text('[cat'), "or None, got '[cat'"),
    (
        OwnRealtime,
        'classes',
        'cat',
        "own.classes must be a list such as [cat, 'red, large']",
    ),
    (OwnRealtime, 'classes', [0, 1], 'own.classes must be a list'),
    (OwnRealtime, 'classes', [], 'give names, or None for all'),
    (OwnRealtime, 'classes', ['a', 'a'], 'a name appears twice'),
    (OwnRealtime, 'data_root', Text(''), 'own.data_root must be text'),
    (OwnRealtime, 'data_root', None, 'own.data_root: give the folder'),
    (
        OwnRealtime,
        'size',
        100,
        'own.size=100: give a multiple of 32, such as 96 or 128',
    ),
    (
        OwnRealtime,
        'train',
        ['images', 'masks'],
        'give the annotation file, below data_root',
    ),
    (
        OwnRealtime,
        'bakcbone',
        'small',
        'own.bakcbone: no such setting; did you mean backbone?',
    ),
    (OwnRealtime, 'backbone', 'smal', 'no such architecture; did you mean small?'),
    (OwnSemantic, 'train', 'images', 'give [folder of images, folder of labels]'),
    (OwnSemantic, 'values', [0, 0], 'a number appears twice'),
    # B12: settings of other tasks did nothing.
    (OwnRealtime, 'void', [0], 'own.void: no such setting; allowed: data_root, train'),
    (OwnRealtime, 'unit', 0.01, 'own.unit: no such setting'),
    (OwnSemantic, 'negatives', False, 'own.negatives: no such setting'),
    (OwnSemantic, 'mosaic', False, 'own.mosaic: no such setting'),
    (OwnObjects, 'keep_ratio', True, 'own.keep_ratio: no such setting'),
    (OwnDepth, 'classes', ['a'], 'own.classes: no such setting'),
]


@pytest.mark.parametrize('kind, name, value, says', REFUSED)
def test_wrong_settings(kind: type[Own], name: str, value: object, says: str) -> None:
    with pytest.raises(ValueError) as error:
        task_settings(kind, {'data_root': 'x', name: value})
    assert says in str(error.value) and '\n' not in str(error.value)


@pytest.fixture(scope='module')
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four training and two validation images in a folder with a space and a comma."""
    root = tmp_path_factory.mktemp('field') / 'My Data, 1'
    write_shapes(root, ShapesSettings(4, 2, (64, 96), layouts=('coco', 'ade', 'depth')))
    names = ['none', *SEGMENTATION_METAINFO['classes']]
    write(root / 'ade' / 'classes.txt', '\n'.join(names))
    return root


class ReadError(Exception):
    """The config of a training is read."""


def config_of_training(monkeypatch: pytest.MonkeyPatch, start: Any) -> dict:
    """The config that a training begins with."""

    def read(*given: Any, **more: Any) -> None:
        raise ReadError(load_config(*given, **more))

    with monkeypatch.context() as patch:
        patch.setattr('rope_dense.training.load_config', read)
        with pytest.raises(ReadError) as caught:
            start()
    return caught.value.args[0].to_dict()


@pytest.mark.parametrize('task', TASKS)
def test_the_command_the_function_and_a_copy_agree(
    task: str, shapes: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B1, B25: settings of all kinds, and lines behind them."""
    if task == 'oriented':
        pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
    root = shapes / dict(semantic='ade', depth='depth').get(task, 'coco')
    own: dict[str, Any] = dict(data_root=root, epochs=3, lr=1e-3, weights=None, size=96)
    own |= dict(batch_size=4) if task == 'adapt' else dict(patience=2)
    own |= (
        {}
        if task in ('adapt', 'depth', 'semantic')
        else dict(classes=['circle', 'square'])
    )
    texts = [f'own.{name}={value}' for name, value in own.items()]
    options = {'train_cfg.val_interval': 2}
    texts += ['train_cfg.val_interval=2', '--work-dir', 'run']

    def by_command() -> None:
        command.main(command.parse_args([task, '--cfg-options', *texts]))

    def by_function() -> None:
        rope_dense.train(task, work_dir='run', cfg_options=options, **own)

    lines = f'own.update({ {**own, "data_root": str(root)}!r})\ntrain_cfg = dict(val_interval=2)\n'
    copied = write(
        folder / 'copy.py', (CONFIGS / 'own' / f'{task}.py').read_text() + lines
    )
    first = config_of_training(monkeypatch, by_command)
    assert first == config_of_training(monkeypatch, by_function)
    copy = load_config(str(copied), work_dir='run').to_dict()
    assert (first.pop('own_given'), copy.pop('own_given')) == (
        ["options {'train_cfg.val_interval': 2}"],
        ["lines {'train_cfg': {'val_interval': 2}}"],
    )
    assert first == copy
    assert (
        first['own']['data_root'] == str(root)
        and first['train_cfg']['val_interval'] == 2
    )


def test_short_names(folder: Path) -> None:
    """They are files of the package; a file of the folder is meant with its suffix only."""
    own = dict(classes=['cat'])
    write(folder / 'detection', 'notes')
    (folder / 'realtime').mkdir()
    for task in ('detection', 'realtime'):
        cfg = load_config(task, own=own)
        assert cfg.filename == str(CONFIGS / 'own' / f'{task}.py')
        assert cfg.work_dir == f'work_dirs/{task}'
    shutil.copy(CONFIGS / 'own' / 'semantic.py', folder / 'detection.py')
    assert load_config('detection.py', own=own).own.task == 'semantic'
    for name, says in (
        ('realtim', 'realtime'),
        ('./detecton.py', 'detection.py'),
        ('configs/own/depth.py', 'depth'),
    ):
        with pytest.raises(
            UsageError, match=rf'no such file .*; did you mean {says}\?'
        ):
            load_config(name)


def test_the_folder_of_the_data_must_be_there(folder: Path) -> None:
    """A17: print-recipe showed a recipe of 50 iterations."""
    says = rf"^own.data_root='dta': no such folder \(seen from {folder}\)$"
    for task in TASKS:
        with pytest.raises(UsageError, match=says):
            load_config(task, ['own.data_root=dta'])


def test_a_task_that_is_not_there(folder: Path) -> None:
    for text, says in (
        ("own = dict(data_root='x')", 'got None'),
        ("task = 'detecton'\nown = dict()", "got 'detecton'; did you mean detection?"),
    ):
        write(folder / 'mine.py', text)
        with pytest.raises(UsageError) as error:
            load_config('mine.py')
        assert says in str(error.value)


def test_a_published_config_has_no_own_settings() -> None:
    for option in ('own.epochs=3', 'own.data_root=x'):
        with pytest.raises(UsageError, match='this config computes nothing from it'):
            load_config(str(CONFIGS / 'dino_vitdet_rope_mixed.py'), [option])


def test_python_gets_errors_of_python(folder: Path) -> None:
    """B13: argparse ended the interpreter."""
    for settings, says in (
        (dict(epoch=3), 'own.epoch: no such setting; did you mean epochs?'),
        (dict(epochs='3'), 'own.epochs must be an integer'),
        (dict(amp='int8'), 'amp must be one of'),
    ):
        with pytest.raises(ValueError) as error:
            rope_dense.train('detection', **settings)
        assert says in str(error.value)
    with pytest.raises(ValueError, match=r"got 'detecton'; did you mean detection\?"):
        rope_dense.train('detecton')


def test_a_used_work_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """F30: two runs were mixed, and best_*.pth named both."""
    run = folder / 'run'
    cfg = Config.fromfile(write(folder / 'dogs.py', 'model = dict()'))
    cfg.update(work_dir=str(run), load_from=None)
    Run(run).check_new(cfg, overwrite=False)
    kept = [run / 'weights.pth', run / 'cats.py', run / 'report' / 'mine.txt']
    kept += [
        run / '20240101_120000' / name for name in ('flight.jpg', 'vis_data/mine.json')
    ]
    gone = [
        run / 'iter_2.pth',
        run / 'best_coco_bbox_mAP_iter_2.pth',
        run / 'last_checkpoint',
    ]
    logs = (
        '20240101_120000.log',
        'vis_data/scalars.json',
        'vis_data/20240101_120000.json',
    )
    gone += [run / '20240101_120000' / name for name in logs]
    results = Results(run, TRAINING)
    for path in kept + gone:
        write(path, path.name)
    for path in gone[:4]:
        results.note(path, path)
    write(gone[3], 'a log grows')
    for name in (
        'report/report.json',
        'scaling/640.py',
        'resolutions.json',
        'predictions/0.jpg',
    ):
        command = Path(name).parent.name
        home, gone = run / command, [*gone, run / name]
        with Results(home, command or 'resolutions.json') as results:
            results.write_text(run / name, '{}')
    kept.append(gone.pop())
    with pytest.raises(
        UsageError, match=r'2 checkpoints .* iter_2.pth: continue it by resume \('
    ):
        Run(run).check_new(cfg, overwrite=False)
    Run(run).check_new(
        Config(dict(cfg, resume=True), filename=cfg.filename), overwrite=False
    )
    with pytest.raises(
        UsageError, match=r'resume \(--resume\) and overwrite \(--overwrite\): give one'
    ):
        Run(run).check_new(
            Config(dict(cfg, resume=True), filename=cfg.filename), overwrite=True
        )
    start = os.path.relpath(run / 'iter_2.pth')
    for part in (
        dict(load_from=start),
        dict(model=dict(init_cfg=dict(checkpoint=start))),
    ):
        with pytest.raises(
            UsageError, match=r'overwrite \(--overwrite\) would remove run/iter_2\.pth'
        ):
            Run(run).check_new(
                Config(dict(cfg) | part, filename=cfg.filename), overwrite=True
            )
    write(run / 'epoch_12.pth', 'mine')
    with pytest.raises(
        ForeignFileError, match=r'epoch_12\.pth was not written by rope-dense'
    ):
        Run(run).check_new(cfg, overwrite=True)
    (run / 'epoch_12.pth').unlink()
    Run(run).check_new(cfg, overwrite=True)
    Run(run).clear(cfg)
    assert all(path.exists() for path in kept) and not any(
        path.exists() for path in gone
    )
    assert (
        f'{len(gone)} files of the earlier run were removed' in capsys.readouterr().out
    )
