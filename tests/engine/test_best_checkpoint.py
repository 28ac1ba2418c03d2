"""The best checkpoint of a run that was killed, and its record, are those of a run that was not."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.runner import Runner

from helpers.toy_runs import log_of, toy_config, toy_run
from rope_dense.engine import AtomicCheckpointHook
from rope_dense.engine.figure_source import FigureSource
from rope_dense.utils.disk import BEST

pytestmark = [
    pytest.mark.usefixtures('surroundings'),
    pytest.mark.skipif(torch.cuda.is_available(), reason='a forked process has no GPU'),
]

RESULTS = (0.1, 0.3, 0.2, 0.4)  # of the iterations 4, 8, 12, 16: the best are 8 and 16
EMA = dict(type='EMAHook', momentum=0.25)


class KillAt(Hook):
    """Kills its process by SIGKILL at a point of an iteration."""

    priority = 'VERY_HIGH'

    def __init__(self, point: str, iteration: int) -> None:
        self.point, self.iteration = point, iteration
        setattr(self, point, self.kill)

    def kill(self, runner: Runner, *args: object, **others: object) -> None:
        if runner.iter == self.iteration:
            os.kill(os.getpid(), signal.SIGKILL)


def config(folder: Path, validated: int = 0, **options: object) -> Config:
    """A run of 16 iterations whose evaluations, but for the first ones, are still to come."""
    cfg = toy_config(folder, 16, RESULTS[validated:], custom_hooks=[EMA], **options)
    cfg.default_hooks.checkpoint.max_keep_ckpts = 1
    return cfg


def die(run: Callable[[], object]) -> None:
    """Run a function in a process of its own, which has to be killed."""
    process = get_context('fork').Process(target=run)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def record(folder: Path) -> dict:
    return json.loads((folder / BEST).read_text())


def contents(folder: Path) -> dict[str, dict]:
    return {
        path.name: torch.load(path, weights_only=False)
        for path in sorted(folder.glob('*.pth'))
    }


def assert_same_end(folder: Path, expected: Path) -> None:
    assert record(folder) == record(expected)
    ours, theirs = contents(folder), contents(expected)
    assert [*ours] == [*theirs] == ['best_score_iter_16.pth', 'iter_16.pth']
    for name, other in theirs.items():
        hubs = [
            checkpoint['message_hub']['runtime_info']
            for checkpoint in (ours[name], other)
        ]
        for key in ('best_score', 'evaluated'):
            assert hubs[0][key] == hubs[1][key], key
        assert ours[name]['meta']['iter'] == 16
        for part in ('state_dict', 'ema_state_dict'):
            for key, value in other[part].items():
                assert torch.equal(ours[name][part][key], value), (name, key)
    assert str(ours['iter_16.pth']['optimizer']) == str(
        theirs['iter_16.pth']['optimizer']
    )


@pytest.fixture(scope='module')
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('uninterrupted')
    toy_run(config(folder))
    return folder


def test_the_record_says_what_the_best_checkpoint_is(uninterrupted: Path) -> None:
    """Four iterations are an epoch."""
    assert record(uninterrupted) == dict(
        file='best_score_iter_16.pth',
        metric='score',
        value=0.4,
        iteration=16,
        epoch=4,
        source=asdict(FigureSource(8, 'ToyData', evaluator='Given')),
    )


@pytest.mark.parametrize(
    'point, iteration, left',
    [
        ('after_val_iter', 8, ['best_score_iter_4.pth', 'iter_8.pth']),
        ('after_val', 8, ['best_score_iter_8.pth', 'iter_8.pth']),
        ('after_val_iter', 16, ['best_score_iter_8.pth', 'iter_16.pth']),
    ],
)
def test_a_run_killed_in_a_validation_has_the_best_of_all_evaluations(
    point: str, iteration: int, left: list[str], tmp_path: Path, uninterrupted: Path
) -> None:
    """Before the result, after it, and in the last one of the run."""
    die(lambda: toy_run(config(tmp_path), KillAt(point, iteration)))
    assert [*contents(tmp_path)] == left
    validated = iteration // 4 - 1
    toy_run(config(tmp_path, validated), resume=tmp_path / f'iter_{iteration}.pth')
    assert_same_end(tmp_path, uninterrupted)


def test_a_complete_validation_is_not_repeated(
    tmp_path: Path, uninterrupted: Path
) -> None:
    """Also where it chose no best checkpoint; the next process has no result left for it."""
    die(lambda: toy_run(config(tmp_path), KillAt('before_train_iter', 12)))
    toy_run(config(tmp_path, 3), resume=tmp_path / 'iter_12.pth')
    assert_same_end(tmp_path, uninterrupted)


def test_the_old_best_stays_until_the_new_one_is_written(tmp_path: Path) -> None:
    die(lambda: toy_run(config(tmp_path), KillAt('before_save_checkpoint', 8)))
    assert record(tmp_path)['file'] == 'best_score_iter_4.pth'
    assert (tmp_path / 'best_score_iter_4.pth').is_file()


def test_iterations_are_counted_right_in_sharded_runs(tmp_path: Path) -> None:
    """mmengine's Runner for them adds one after a validation, which a resumed run left out."""
    cfg = config(tmp_path)
    cfg.merge_from_dict(dict(runner_type='FlexibleRunner', custom_hooks=[]))
    toy_run(cfg)
    assert {
        name: each['meta']['iter'] for name, each in contents(tmp_path).items()
    } == {
        'best_score_iter_16.pth': 16,
        'iter_16.pth': 16,
    }


def test_a_renamed_run_keeps_one_best_checkpoint(tmp_path: Path) -> None:
    first, second = tmp_path / 'first', tmp_path / 'second'
    toy_run(config(first, **{'train_cfg.max_iters': 8}))
    shutil.move(first, second)
    runner = toy_run(config(second, 2), resume=second / 'iter_8.pth')
    assert [path.name for path in second.glob('best_*.pth')] == [
        'best_score_iter_16.pth'
    ]
    assert 'best_score_iter_16.pth' in log_of(runner)


def test_one_metric_chooses_the_best() -> None:
    with pytest.raises(ValueError, match=r"save_best=\['a', 'b'\]: give one metric"):
        AtomicCheckpointHook(save_best=['a', 'b'], rule='less')
