"""A training that diverges ends in one line, and its checkpoints keep finite weights."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from helpers.toy_runs import toy_config, toy_run
from rope_dense.engine.divergence import DivergenceHook, RunError
from rope_dense.project import launch
from rope_dense.utils.errors import UsageError

pytestmark = pytest.mark.usefixtures('surroundings')

EMA = dict(type='EMAHook')


def checkpoints(folder: Path) -> list[str]:
    """Names of the checkpoints of a run, all of whose numbers are finite."""
    for path in folder.glob('*.pth'):
        contents = torch.load(path, weights_only=False)
        for weights in (contents['state_dict'], contents.get('ema_state_dict', {})):
            assert all(weight.isfinite().all() for weight in weights.values()), path
    return sorted(
        path.name for path in folder.iterdir() if path.is_file() and 'iter' in path.name
    )


def diverged(folder: Path, **options: object) -> str:
    """The message of a training that ends so."""
    with pytest.raises(RunError) as raised:
        toy_run(toy_config(folder, custom_hooks=[EMA], **options))
    assert '\n' not in str(raised.value)
    return str(raised.value)


def test_losses_of_nan_in_a_row_end_the_training(tmp_path: Path) -> None:
    said = diverged(tmp_path, model=dict(type='Toy', bad_losses=(3, 5, 6, 7)))
    assert said == (
        'the loss is not finite since iteration 5: lower optim_wrapper.optimizer.lr=0.1; '
        f'the last checkpoint, {tmp_path}/iter_4.pth, is from before'
    )
    assert checkpoints(tmp_path) == ['best_score_iter_4.pth', 'iter_4.pth']
    assert (tmp_path / 'last_checkpoint').read_text() == str(tmp_path / 'iter_4.pth')


def test_single_losses_of_nan_do_not(tmp_path: Path) -> None:
    """As with fp16, whose scaler leaves out such steps; two of them beside a save."""
    runner = toy_run(
        toy_config(tmp_path, model=dict(type='Toy', bad_losses=(3, 4, 6, 8, 9)))
    )
    assert runner.iter == 12
    assert 'iter_4.pth' in checkpoints(tmp_path)


def test_a_step_of_nan_is_left_out_and_counted(tmp_path: Path) -> None:
    """Two beside a save; the weights are those of a run that never had these batches' gradients."""
    cfg = toy_config(
        tmp_path, model=dict(type='Toy', bad_steps=(4, 5, 9)), custom_hooks=[EMA]
    )
    runner = toy_run(cfg)
    assert runner.iter == 12 and 'iter_12.pth' in checkpoints(tmp_path)
    log = next(tmp_path.glob('*/*.log')).read_text()
    assert (
        'the gradient of iteration 5 is not finite: its step is left out (2 until now)'
        in log
    )
    said = diverged(tmp_path / 'row', model=dict(type='Toy', bad_steps=(5, 6, 7)))
    assert said.startswith('the gradient is not finite since iteration 5: lower')
    assert said.endswith('/iter_4.pth, is from before')


def test_a_step_that_is_left_out_changes_no_running_mean(tmp_path: Path) -> None:
    """Nor its moving average, which takes the buffers, too."""
    average = dict(EMA, update_buffers=True)
    model = dict(type='Toy', bad_inputs=(4, 6))
    runner = toy_run(toy_config(tmp_path, model=model, custom_hooks=[average]))
    assert runner.iter == 12 and 'iter_12.pth' in checkpoints(tmp_path)
    assert runner.model.norm.num_batches_tracked == 10


def test_a_step_that_is_left_out_names_its_images() -> None:
    """All since the last step, where gradients of several batches are added."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    hook = DivergenceHook()
    runner = Mock(optim_wrapper=Mock(optimizer=optimizer), iter=0, model=model)
    hook.before_train(runner)
    for names, factor in ((['a.png'], 1.0), (['b.png', 'x/c.png'], math.inf)):
        for name in names:
            runner.batch = (name,)
            hook.before_train_iter(runner, 0)
        (model(torch.ones(1, 2)).sum() * factor).backward()
        optimizer.step()
    (said,) = runner.logger.warning.call_args.args
    assert said.endswith('(1 until now); its images: b.png, c.png')


def test_a_step_that_is_left_out_changes_no_weight() -> None:
    """Nor a moment, by weight decay neither."""
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    hook, runner = (
        DivergenceHook(),
        Mock(optim_wrapper=Mock(optimizer=optimizer), iter=0),
    )
    hook.before_train(runner)
    for factor in (1.0, math.inf, 1.0):
        before = copy.deepcopy([model.state_dict(), optimizer.state_dict()['state']])
        optimizer.zero_grad()
        (model(torch.ones(1, 2)).sum() * factor).backward()
        optimizer.step()
        same = torch.equal(before[0]['weight'], model.weight)
        assert same is (factor == math.inf)
        if same:
            torch.testing.assert_close(
                optimizer.state_dict()['state'], before[1], rtol=0, atol=0
            )
    assert hook.left_out == 1


@pytest.mark.parametrize(
    'step, kept', [(4, []), (8, ['best_score_iter_4.pth', 'iter_4.pth'])]
)
def test_weights_of_nan_are_not_saved(
    step: int, kept: list[str], tmp_path: Path
) -> None:
    """The step before the save makes them, of which no loss tells yet."""
    said = diverged(tmp_path, model=dict(type='Toy', bad_weights=(step,)))
    assert said.startswith(f'the weights are not finite after iteration {step}:')
    assert said.endswith(
        'nothing was saved' if not kept else '/iter_4.pth, is from before'
    )
    assert checkpoints(tmp_path) == kept


def test_weights_of_nan_are_not_validated(tmp_path: Path) -> None:
    """A validation that no save precedes would choose them as the best, or blame an image."""
    options = {'train_cfg.val_interval': 5, 'default_hooks.checkpoint.interval': 4}
    said = diverged(tmp_path, model=dict(type='Toy', bad_weights=(5,)), **options)
    assert said.startswith('the weights are not finite after iteration 5:')
    assert checkpoints(tmp_path) == ['iter_4.pth']


def test_the_only_checkpoint_kept_is_a_good_one(tmp_path: Path) -> None:
    options = {'default_hooks.checkpoint.max_keep_ckpts': 1, 'custom_hooks': []}
    with pytest.raises(RunError):
        toy_run(
            toy_config(tmp_path, model=dict(type='Toy', bad_weights=(8,)), **options)
        )
    assert checkpoints(tmp_path) == ['best_score_iter_4.pth', 'iter_4.pth']


def test_what_to_lower_is_named(tmp_path: Path) -> None:
    """own.lr of a config for own data; bfloat16 only where fp16 is used."""
    cfg = toy_config(tmp_path, own=dict(lr=None))
    cfg.optim_wrapper.update(type='AmpOptimWrapper', dtype='float16')
    runner = Stand(cfg, tmp_path)
    expected = (
        'lower own.lr=0.1, or take --amp bf16 in place of fp16; nothing was saved'
    )
    assert expected in DivergenceHook().explain(runner)
    cfg.optim_wrapper.dtype = 'bfloat16'
    assert 'own.lr=0.1; nothing' in DivergenceHook().explain(runner)


class Stand:
    """What a message needs of a Runner."""

    def __init__(self, cfg: object, folder: Path) -> None:
        self.cfg, self.work_dir, self.iter = cfg, str(folder), 3


@pytest.mark.parametrize(
    'options, says',
    [
        (
            dict(bad_weights=[5], refuses=6),
            'the weights are not finite after iteration 5: lower',
        ),
        (
            dict(bad_losses=[5], refuses=6),
            'the loss is not finite since iteration 5: lower',
        ),
        (dict(refuses=6), 'the predictions are not finite after iteration 5: lower'),
        (dict(refuses=1), 'matrix contains invalid numeric entries'),
    ],
)
def test_a_matcher_that_fails_is_not_the_reason(
    options: dict, says: str, tmp_path: Path
) -> None:
    """Nor are the images, unless nothing has been trained: finite weights can be too large."""
    runner = launch.launch_runner(
        toy_config(tmp_path, model=dict(type='Toy', **options)), 'none'
    )
    with pytest.raises(UsageError, match=f'^{says}'):
        launch.run_training(runner)
    assert len(checkpoints(tmp_path)) == (0 if options['refuses'] == 1 else 2)
