"""Runs that did not do what they said: field.md F15, F21, F22, F23, F26, user.md's time left.

More of each: tests/engine/test_resume_hook.py, test_divergence.py, test_progress_hook.py.
"""

from __future__ import annotations

import contextlib
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner

from helpers.toy_runs import Rates, Toy, curves, log_of, toy_config, toy_run
from rope_dense.project import launch
from rope_dense.project.run import Run
from rope_dense.project.weights import (
    check_initial_weights,
    preload_tested_weights,
    resolve_resume,
)
from rope_dense.utils.errors import UsageError

pytestmark = pytest.mark.usefixtures('surroundings')

EARLY_STOP = dict(type='EarlyStoppingHook', monitor='score', rule='greater', patience=1)
TEN_TIMES_LESS = dict(type='MultiStepLR', by_epoch=False, milestones=[3])


def test_f21_more_epochs_have_the_schedule_of_the_recipe(tmp_path: Path) -> None:
    """mmengine #1565, mmdetection #3800: the milestone of the short run stayed, lr fell at 3."""
    toy_run(toy_config(tmp_path, 4, param_scheduler=[dict(TEN_TIMES_LESS)]))
    rates = Rates()
    longer = toy_config(
        tmp_path, 8, param_scheduler=[dict(TEN_TIMES_LESS, milestones=[7])]
    )
    runner = toy_run(longer, rates, resume=tmp_path / 'iter_4.pth')
    assert [rates.seen[step][-1] for step in (4, 5, 6, 7)] == pytest.approx(
        [0.1] * 3 + [0.01]
    )
    expected = (
        'resume: the schedule is the new one: 8 iterations in place of 4; '
        'at iteration 4, lr 0.1 in place of 0.01'
    )
    assert expected in log_of(runner)


def test_f21_another_batch_size_is_refused_in_one_line(tmp_path: Path) -> None:
    toy_run(toy_config(tmp_path, 4))
    cfg = toy_config(tmp_path, 8, **{'train_dataloader.batch_size': 4})
    cfg.resume, cfg.load_from = True, str(tmp_path / 'iter_4.pth')
    runner = launch.launch_runner(cfg, 'none')
    with pytest.raises(
        UsageError, match=r'had batch_size 2, .*this one has batch_size 4.*--load'
    ):
        launch.run_training(runner)


def test_a_training_that_is_refused_leaves_the_config_of_the_run(
    tmp_path: Path,
) -> None:
    """Or one that is complete: what is tested later is what was trained."""
    toy_config(tmp_path / 'run', 4).dump(tmp_path / 'a.py')

    def resume(**options: Any) -> str:
        cfg = Config.fromfile(tmp_path / 'a.py')
        cfg.merge_from_dict(options)
        if (run := Run(Path(cfg.work_dir))).folder.exists():
            cfg.resume, cfg.load_from = True, run.last
        runner = launch.launch_runner(cfg, 'none', trains=True)
        with contextlib.suppress(UsageError):
            launch.run_training(runner)
        return (run.folder / 'a.py').read_text()

    written = resume()
    assert resume(**{'train_dataloader.batch_size': 4}) == written
    assert resume(**{'train_cfg.max_iters': 3}) == written
    assert resume(**{'model.bad_steps': [9]}) == written  # complete
    assert (
        'max_iters=5' in resume(**{'train_cfg.max_iters': 5})
        and 'max_iters=4' in written
    )


def test_f12_another_size_is_said(tmp_path: Path) -> None:
    """rf-detr #927: a size without effect; what the schedule's line says is not said twice."""
    own = dict(task='semantic', size=64, epochs=4, classes=('a', 'b'))
    toy_run(toy_config(tmp_path, 4, own=own))
    for number, (settings, says) in enumerate(
        (
            (dict(own=dict(own, size=96, epochs=8)), 'own.size 96 in place of 64'),
            (dict(own=dict(own, epochs=8)), ''),
            (
                {'own': own, 'model.bad_steps': [9]},
                'model.bad_steps [9] in place of null',
            ),
        )
    ):
        cfg = toy_config(tmp_path / str(number), 8, **settings)
        said = log_of(toy_run(cfg, resume=tmp_path / 'iter_4.pth'))
        assert (
            re.findall(r'resume: settings are the new ones: (.*)', said)
            == [says][: len(says)]
        )


def test_changed_labels_start_the_best_score_anew(tmp_path: Path) -> None:
    """The score on easier labels stayed the bar, so that no later checkpoint was the best.

    The resumed run evaluates the checkpoint by the new labels first.
    """
    for name, results, steps in (('a', (0.9,), 4), ('b', (0.1, 0.2), 8)):
        files = dict(val=dict(ann_file=f'own_data/{name}/val.json'))
        cfg = toy_config(tmp_path / name, steps, results=results, own_files=files)
        runner = toy_run(
            cfg, resume=tmp_path / 'a' / 'iter_4.pth' if name == 'b' else None
        )
    assert 'resume: the labels have changed since the checkpoint' in log_of(runner)
    assert (tmp_path / 'b' / 'best_score_iter_8.pth').is_file()


def test_a_copied_run_resumes_from_its_own_checkpoint(tmp_path: Path) -> None:
    first, copy = tmp_path / 'first', tmp_path / 'copy'
    toy_run(toy_config(first, 4))
    shutil.copytree(first, copy)
    for _ in range(2):  # beside the original, and without it
        cfg = toy_config(copy)
        resolve_resume(cfg, 'auto')
        assert Path(cfg.load_from) == copy / 'iter_4.pth'
        shutil.rmtree(first, ignore_errors=True)


def test_f22_each_run_of_a_process_has_its_own_curves(tmp_path: Path) -> None:
    for name, steps in (('first', 4), ('second', 6)):
        runner = launch.launch_runner(toy_config(tmp_path / name, steps), 'none')
        launch.run_training(runner)
    assert sorted(curves(tmp_path / 'first')) == [1, 2, 3, 4]
    assert sorted(curves(tmp_path / 'second')) == [1, 2, 3, 4, 5, 6]
    best = runner.message_hub.get_info('best_ckpt')
    assert (
        Path(best).parent == tmp_path / 'second'
    )  # not compared with the first run's results


def test_f22_a_run_that_resumes_another_leaves_its_best_checkpoint(
    tmp_path: Path,
) -> None:
    toy_run(toy_config(tmp_path / 'first', 4))
    cfg = toy_config(tmp_path / 'second', 8, results=(0.7,))
    toy_run(cfg, resume=tmp_path / 'first' / 'iter_4.pth')
    assert (tmp_path / 'first' / 'best_score_iter_4.pth').is_file()
    assert (tmp_path / 'second' / 'best_score_iter_8.pth').is_file()


@pytest.mark.parametrize('empty', [-1.0, math.nan])
def test_f15_a_validation_without_objects_chooses_no_checkpoint(
    empty: float, tmp_path: Path
) -> None:
    """COCO's AP is -1 then, and -1 is more than nothing: the first checkpoint was the best."""
    cfg = toy_config(tmp_path, results=[empty] * 3, custom_hooks=[EARLY_STOP])
    runner = toy_run(cfg)
    assert not list(tmp_path.glob('best_*'))
    assert runner.iter == 12  # early stopping has not counted
    assert (
        log_of(runner).count(
            f'score is {empty:g}: the validation images have no object'
        )
        == 1
    )


def test_f15_results_with_objects_are_compared_as_before(tmp_path: Path) -> None:
    runner = toy_run(toy_config(tmp_path, results=[-1.0, 0.0, 0.3]))
    assert [path.name for path in tmp_path.glob('best_*.pth')] == [
        'best_score_iter_12.pth'
    ]
    assert runner.message_hub.get_info('best_score') == 0.3


def test_f26_a_loss_of_nan_ends_the_training_in_one_line(tmp_path: Path) -> None:
    cfg = toy_config(tmp_path, model=dict(type='Toy', bad_losses=range(6, 13)))
    runner = launch.launch_runner(cfg, 'none')
    with pytest.raises(UsageError) as raised:
        launch.run_training(runner)
    assert str(raised.value) == (
        'the loss is not finite since iteration 6: lower optim_wrapper.optimizer.lr=0.1; '
        f'the last checkpoint, {tmp_path}/iter_4.pth, is from before'
    )
    assert raised.value.__cause__ is None  # printed without "--debug shows where"


@pytest.mark.parametrize('value', [math.nan, math.inf])
def test_f23_weights_that_are_not_finite_are_refused(
    value: float, tmp_path: Path
) -> None:
    toy_run(toy_config(tmp_path, 4))
    path = tmp_path / 'iter_4.pth'
    contents = torch.load(path, weights_only=False)
    contents['state_dict']['linear.weight'][0, 1] = value
    torch.save(contents, path)
    says = '1 of 2 weights are not finite, such as linear.weight: its training diverged'
    with pytest.raises(UsageError, match=f"checkpoint '.*iter_4.pth': {says}"):
        preload_tested_weights(str(path), Toy())
    for resume, origin in ((True, '--resume'), (False, 'load_from')):
        cfg = toy_config(tmp_path, resume=resume, load_from=str(path))
        with pytest.raises(UsageError, match=f'{origin} .*{says}'):
            check_initial_weights(cfg, Toy())


def test_time_left_holds_after_a_validation(tmp_path: Path) -> None:
    """user.md: "about 7 s left" of 78; the time of a validation was divided by all iterations."""

    class Slow(Rates):
        def before_train_iter(
            self, runner: Runner, *args: object, **others: object
        ) -> None:
            clock[0] += 3.4

        def before_val_iter(
            self, runner: Runner, *args: object, **others: object
        ) -> None:
            clock[0] += 0.5  # 2 s for a validation

    clock = [0.0]
    cfg = toy_config(
        tmp_path, 56, results=range(20), **{'default_hooks.logger.interval': 50}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            'rope_dense.engine.progress_hook.time.monotonic', lambda: clock[0]
        )
        runner = toy_run(cfg, Slow())
    left = re.findall(r'iteration (\d+) of 56, (\d+):(\d+) left', log_of(runner))
    for done, minutes, seconds in [[*map(int, found)] for found in left]:
        validations = 2 * (56 // 4 - done // 4)
        assert minutes * 60 + seconds == pytest.approx(
            3.4 * (56 - done) + validations, rel=0.15, abs=3
        )
    assert len(left) > 10
