"""A run trained again: with its own settings, lines and options, but for those that are given."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config

import rope_dense
from rope_dense.commands import print_recipe, train
from rope_dense.commands.arguments import values
from rope_dense.data.generated import ShapesSettings, write_shapes
from rope_dense.data.generated.shapes import SEGMENTATION_METAINFO
from rope_dense.project.checks.recipe import schedule_text
from rope_dense.project.load import load_config
from rope_dense.project.options import apply_training_options
from rope_dense.project.own.tasks import TASKS
from rope_dense.utils.configs import CONFIGS
from rope_dense.utils.errors import UsageError

pytest.importorskip('mmdet')
pytestmark = pytest.mark.usefixtures('surroundings')
LINES = """
train_cfg = dict(val_interval=2)
optim_wrapper = dict(clip_grad=dict(_delete_=True, max_norm=0.3, norm_type=1))
"""
OPTIONS = ['train_dataloader.num_workers=0', 'optim_wrapper.clip_grad.max_norm=0.5']


@pytest.fixture(scope='module')
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp('shapes')
    write_shapes(root, ShapesSettings(4, 2, (64, 96), layouts=('coco', 'ade', 'depth')))
    names = ['none', *SEGMENTATION_METAINFO['classes']]
    (root / 'ade' / 'classes.txt').write_text('\n'.join(names))
    return root


def settings(task: str, shapes: Path, **more: object) -> list[str]:
    folder = shapes / dict(semantic='ade', depth='depth').get(task, 'coco')
    given = dict(data_root=folder, weights=None, size=96, epochs=2) | more
    given |= dict(batch_size=4) if task == 'adapt' else dict(patience=3)
    return [f'own.{name}={value}' for name, value in given.items()]


def trained(copy: Path, pairs: list[str], folder: Path) -> Config:
    """The config of a training with options of all kinds, as in its folder."""
    cfg = load_config(str(copy), [*pairs, *OPTIONS], str(folder))
    apply_training_options(cfg, amp='bf16', with_cp=True)
    return cfg


def plain(cfg: Config) -> dict[str, Any]:
    return json.loads(json.dumps(cfg.to_dict(), default=str))


@pytest.mark.parametrize('task', TASKS)
def test_changed_settings_are_those_of_a_new_command(
    task: str, shapes: Path, tmp_path: Path
) -> None:
    """Resumed with other epochs and another rate, as if all options were given once more."""
    if task == 'oriented':
        pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
    folder, copy = tmp_path / 'run', tmp_path / 'copy.py'
    folder.mkdir()
    copy.write_text((CONFIGS / 'own' / f'{task}.py').read_text() + LINES)
    trained(copy, settings(task, shapes), folder).dump(folder / 'copy.py')
    again = load_config(str(folder), ['own.epochs=5', 'own.lr=0.01'], derives=True)
    asked = trained(copy, settings(task, shapes, epochs=5, lr=0.01), folder)
    assert plain(again) == plain(asked)
    assert again.own.epochs == 5 and again.train_cfg.val_interval == 2
    assert again.optim_wrapper.clip_grad == dict(max_norm=0.5, norm_type=1)
    assert again.optim_wrapper.type == 'BFloat16OptimWrapper'
    again.dump(folder / 'copy.py')  # and once more
    third = load_config(str(folder), ['own.epochs=2', 'own.lr=None'], derives=True)
    assert plain(third) == plain(trained(copy, settings(task, shapes, lr=None), folder))


@pytest.fixture
def run(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    pairs = settings('realtime', shapes)
    os.makedirs('runs/first')
    load_config('realtime', pairs, 'runs/first').dump('runs/first/realtime.py')
    for name in ('iter_9', 'iter_12', 'best_coco_bbox_mAP_iter_9'):
        torch.save({}, f'runs/first/{name}.pth')
    Path('runs/first/last_checkpoint').write_text('elsewhere/iter_12.pth')
    os.rename('runs/first', 'runs/moved')  # its name in its config is the old one
    return 'runs/moved'


def test_a_run_is_taken_as_it_is_without_changed_settings(run: str) -> None:
    written = Config.fromfile(f'{run}/realtime.py')
    cfg = load_config(run, derives=True)
    assert cfg.work_dir == run and cfg.filename == f'{run}/realtime.py'
    assert plain(cfg) == plain(written) | dict(work_dir=run)
    assert load_config(run, work_dir='other', derives=True).work_dir == 'other'


def test_only_trainings_derive(run: str) -> None:
    with pytest.raises(
        UsageError, match=r'own\.epochs: this config computes nothing from it'
    ):
        load_config(run, ['own.epochs=5'])


def test_a_run_of_an_earlier_version_does_not_say_what_it_was_given(run: str) -> None:
    cfg = Config.fromfile(f'{run}/realtime.py')
    cfg.pop('own_given')
    cfg.dump(f'{run}/realtime.py')
    with pytest.raises(
        UsageError, match='does not say what it was made of: give the config and '
    ):
        load_config(run, ['own.epochs=5'], derives=True)


def test_checkpoints_of_runs(run: str) -> None:
    """--load-from RUN is its best one, --resume RUN its last, in the folder as it is named now."""
    cfg = load_config(run)
    apply_training_options(cfg, load_from=run)
    assert cfg.load_from == f'{run}/best_coco_bbox_mAP_iter_9.pth' and not cfg.get(
        'resume'
    )
    for given in (run, 'auto'):
        apply_training_options(cfg, resume=given)
        assert cfg.load_from == f'{run}/iter_12.pth' and cfg.resume


class ReadError(UsageError):
    """The config of a training is complete."""


def test_the_command_and_python_continue_a_run(
    run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(cfg: Config, *given: object) -> None:
        raise ReadError(cfg)

    monkeypatch.setattr('rope_dense.training.check_schedule', stop)
    with pytest.raises(ReadError) as first:
        train.main(
            train.parse_args([run, '--resume', '--epochs', '5', '--ema', 'False'])
        )
    with pytest.raises(ReadError) as second:
        rope_dense.train(run, resume=True, epochs=5, ema=False)
    cfg = first.value.args[0]
    assert plain(cfg) == plain(second.value.args[0])
    assert (cfg.own.epochs, cfg.own.ema, cfg.own.size) == (5, False, 96) and cfg.resume
    assert cfg.work_dir == run and cfg.load_from == f'{run}/iter_12.pth'


def test_options_are_texts_of_settings(shapes: Path) -> None:
    words = [
        '--data',
        str(shapes / 'coco'),
        '--classes',
        'circle',
        'square',
        '--negatives',
        'False',
    ]
    words += ['--partial', '--mean', '1', '-2.5', '--channels', '2']
    given = values(print_recipe.parse_args(['detection', *words]))
    texts = [
        'classes=[circle, square]',
        'mean=[1, -2.5]',
        'channels=2',
        'negatives=False',
    ]
    assert {*given['cfg_options']} == {
        f'own.{text}' for text in [*texts, 'partial=True']
    }


@pytest.mark.parametrize(
    'size, batch, started, enable, says',
    [
        (16, 2, '8', False, '3 iterations of 2 images per process, 8 processes, '),
        (16, 2, '2', False, ' 2 processes (recipe: 8 x 2; --auto-scale-lr), '),
        (16, 3, '', False, ' 1 process (recipe: 16 images; --auto-scale-lr), '),
        (16, 2, '2', True, ' 2 processes (recipe: 8 x 2; with its lr scaled), '),
    ],
)
def test_the_recipe_names_the_processes_that_run(
    size: int,
    batch: int,
    started: str,
    enable: bool,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv('WORLD_SIZE', started)
    cfg = Config(
        dict(train_cfg=dict(max_iters=3), train_dataloader=dict(batch_size=batch))
    )
    cfg.auto_scale_lr = dict(base_batch_size=size, enable=enable)
    assert says in schedule_text(cfg)
    cfg.train_cfg = dict(max_epochs=1)
    assert schedule_text(cfg).startswith('1 epoch of ')
