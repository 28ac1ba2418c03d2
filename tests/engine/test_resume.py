"""Runs that were killed, and resumed, against one that was not."""

import json
import multiprocessing
import os
import random
import resource
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.dataset import InfiniteSampler, pseudo_collate
from mmengine.hooks import CheckpointHook
from mmengine.logging import MessageHub
from mmengine.registry import MODELS
from torch.utils.data import BatchSampler, DataLoader, Dataset

from helpers.small_configs import make_data, small_config
from helpers.toy_runs import toy_config, toy_run
from rope_dense.engine import AtomicCheckpointHook
from rope_dense.engine.train_loop import SeededBatches
from rope_dense.utils.disk import atomic_write
from rope_dense_command import command

pytestmark = pytest.mark.usefixtures('surroundings')

TOOLS = Path(__file__).parents[2] / 'tools'
STEPS, KEPT_STEP, MOMENTUM = 6, 2, 0.25
# Aspect-ratio batches, denoising noise, random sizes and crops; drop path on top; an evaluation
# between the checkpoint of step 2 and that of step 4; only one checkpoint is kept.
OPTIONS = [
    f'train_cfg.max_iters={STEPS}',
    'train_cfg.val_interval=3',
    'model.backbone.drop_path_rate=0.3',
]
SPARSE = [
    f'default_hooks.checkpoint.interval={KEPT_STEP}',
    'default_hooks.checkpoint.max_keep_ckpts=1',
]
Run = Callable[..., None]


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp('resume')


@pytest.fixture(scope='module')
def config(folder: Path) -> Path:
    return small_config('dino_vitdet_rope_mixed', make_data(folder / 'data'), folder)


@pytest.fixture(scope='module')
def run() -> Run:
    mains = {name: command(name) for name in ('train', 'test')}

    def run(tool: str, *argv: object, options: list[str]) -> None:
        given = ['--cfg-options', *options] if options else []
        assert mains[tool]([*map(str, argv), *given]) == 0

    return run


def losses(work_dir: Path) -> dict[int, float]:
    """Loss of each step; of a step that was repeated, the later one."""
    logs = sorted(work_dir.glob('*/vis_data/scalars.json'))
    lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    return {line['step']: line['loss'] for line in lines if 'loss' in line}


@pytest.fixture(scope='module')
def uninterrupted(config: Path, folder: Path, run: Run) -> Path:
    """Work dir of a run without interruption, with a moving average; all checkpoints are kept."""
    work_dir = folder / 'uninterrupted'
    keep_all = [
        'default_hooks.checkpoint.interval=1',
        'default_hooks.checkpoint.max_keep_ckpts=-1',
    ]
    flags = ['--ema', MOMENTUM, '--work-dir', work_dir]
    run('train', config, *flags, options=OPTIONS + keep_all)
    return work_dir


# What a killed process runs first: the write of the second checkpoint stops half way.
HALF_A_WRITE = """
import time
from mmengine.fileio import LocalBackend
put = LocalBackend.put
written = []
def half(self, content, path):
    written.append(path)
    if len(written) < 2:
        return put(self, content, path)
    with open(path, 'wb') as file:
        file.write(content[: len(content) // 2])
    print('HALF WRITTEN', flush=True)
    time.sleep(600)
LocalBackend.put = half
"""


def start_and_kill(config: Path, work_dir: Path) -> None:
    """Start the training, and kill it (SIGKILL) half way through its second checkpoint."""
    argv = [str(TOOLS / 'train.py'), str(config), '--ema', str(MOMENTUM)]
    argv += ['--work-dir', str(work_dir), '--cfg-options', *OPTIONS, *SPARSE]
    code = f'{HALF_A_WRITE}\nimport runpy, sys\nsys.argv = {argv}\nsys.path[0] = {str(TOOLS)!r}\n'
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    process = subprocess.Popen(
        [sys.executable, '-W', 'ignore', '-c', code],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | dict(OMP_NUM_THREADS='1'),
    )
    try:
        output = ''
        for line in process.stdout:
            output += line
            if 'HALF WRITTEN' in line:
                break
        else:
            pytest.fail(f'ended before it wrote:\n{output}')
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_run_killed_while_it_writes_goes_on_as_if_nothing_had_happened(
    config: Path, folder: Path, uninterrupted: Path, run: Run
) -> None:
    work_dir = folder / 'killed'
    start_and_kill(config, work_dir)
    good = work_dir / f'iter_{KEPT_STEP}.pth'
    assert (work_dir / 'last_checkpoint').read_text() == str(good)
    assert torch.load(good, weights_only=False)['meta']['iter'] == KEPT_STEP
    assert [path.name for path in work_dir.glob('*.pth')] == [good.name]
    unfinished = work_dir / '.rope_dense' / 'training'
    assert len([*unfinished.glob('*.pth')]) == 1

    flags = ['--ema', MOMENTUM, '--work-dir', work_dir, '--resume']
    run('train', config, *flags, options=OPTIONS + SPARSE)
    expected, actual = losses(uninterrupted), losses(work_dir)
    assert sorted(actual) == sorted(expected) == list(range(1, STEPS + 1))
    assert actual == pytest.approx(expected, rel=1e-5)
    assert [path.name for path in work_dir.rglob('*.pth')] == [f'iter_{STEPS}.pth']
    ends = [
        torch.load(d / f'iter_{STEPS}.pth', weights_only=False)
        for d in (uninterrupted, work_dir)
    ]
    for part in ('state_dict', 'ema_state_dict'):
        for name, value in ends[0][part].items():
            torch.testing.assert_close(ends[1][part][name], value, rtol=1e-5, atol=1e-7)


def test_saved_weights_are_the_moving_average(uninterrupted: Path) -> None:
    """state_dict holds the average, ema_state_dict the trained weights: w1, then a + m (w - a)."""
    average: dict[str, torch.Tensor] = {}
    for step in range(1, STEPS + 1):
        checkpoint = torch.load(uninterrupted / f'iter_{step}.pth', weights_only=False)
        for name, saved in checkpoint['state_dict'].items():
            trained = checkpoint['ema_state_dict'][f'module.{name}']
            before = average.get(name, trained)
            average[name] = before + MOMENTUM * (trained - before)
            torch.testing.assert_close(saved, average[name], rtol=1e-5, atol=1e-7)
    assert any(
        not torch.equal(average[n], checkpoint['ema_state_dict'][f'module.{n}'])
        for n in average
    )


def test_moving_average_is_what_is_tested_and_loaded(
    config: Path, uninterrupted: Path, folder: Path, run: Run
) -> None:
    checkpoint = uninterrupted / f'iter_{STEPS}.pth'
    run('test', config, checkpoint, '--work-dir', folder / 'tested', options=[])
    (tested,) = (folder / 'tested').glob('*/*.json')
    logs = (
        sorted(uninterrupted.glob('*/vis_data/scalars.json'))[-1]
        .read_text()
        .splitlines()
    )
    evaluated = json.loads(logs[-1])
    assert json.loads(tested.read_text())['coco/bbox_mAP'] == evaluated['coco/bbox_mAP']

    backbone = dict(runpy.run_path(str(config))['model']['backbone'])
    backbone['init_cfg'] = dict(type='Pretrained', checkpoint=str(checkpoint))
    model = MODELS.build(backbone)
    model.init_weights()  # strict: a weight that is missing or left over is an error
    state = torch.load(checkpoint, weights_only=False)['state_dict']
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[f'backbone.{name}']), name


class RandomNumbers(Dataset):
    """Each item is its index and one number from each of the three random generators."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> tuple[float, ...]:
        return index, random.random(), np.random.rand(), torch.rand(()).item()


def drawn(rank: int = 0, skip: int = 0, workers: int = 0, seed: int = 0) -> list:
    """Batches `skip` to 6 as the loop sees them, with what the model would draw after each."""
    dataset = RandomNumbers()
    sampler = BatchSampler(
        InfiniteSampler(dataset, seed=seed), batch_size=2, drop_last=True
    )
    loader = DataLoader(
        dataset, batch_sampler=sampler, num_workers=workers, collate_fn=pseudo_collate
    )
    batches = SeededBatches(loader, seed, rank)
    batches.skip_iter(skip)
    actual = []
    for batch in islice(batches, 7 - skip):
        actual.append(
            [batch, torch.rand(2).tolist(), random.random(), np.random.rand()]
        )
        torch.rand(random.randrange(9))  # what happens in between must not matter
    return actual


def test_batches_depend_on_their_number_alone() -> None:
    everything = drawn()
    assert drawn(skip=4) == everything[4:]
    assert drawn(workers=2) == everything
    assert drawn(skip=3, workers=2) == everything[3:]
    numbers = [
        value for batch, *_ in everything for slot in batch[1:] for value in slot
    ]
    assert (
        len(set(numbers)) == len(numbers) == 7 * 2 * 3
    )  # no image repeats another's numbers
    drawn_by_model = [str(numbers) for _, *numbers in everything]
    assert len({*drawn_by_model}) == 7  # nor an iteration another's, of dropout
    assert drawn(rank=1)[0] != everything[0] != drawn(seed=1)[0]


def test_data_that_give_no_batch_are_an_error() -> None:
    dataset = RandomNumbers()
    sampler = BatchSampler(
        InfiniteSampler(dataset, seed=0), batch_size=9, drop_last=True
    )
    with pytest.raises(ValueError, match='5 images do not fill a batch of 9'):
        SeededBatches(DataLoader(dataset, batch_sampler=sampler), 0, 0)


class Saver:
    """A runner as the hook knows it: writes the step, and notes which files are there meanwhile."""

    def __init__(self, work_dir: Path) -> None:
        self.work_dir, self.iter, self.epoch = str(work_dir), 0, 0
        self.message_hub = MessageHub.get_instance(work_dir.name)
        self.logger = SimpleNamespace(info=print)
        self.listings: list[list[str]] = []
        self.fails = False

    def save_checkpoint(
        self, out_dir: str, filename: str, *args: object, **kwargs: object
    ) -> None:
        self.listings.append(checkpoints(Path(self.work_dir)))
        Path(out_dir, filename).write_text(str(self.iter))
        if self.fails:
            raise KeyboardInterrupt


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob('iter_*'))


def save_steps(hook: CheckpointHook, runner: Saver, steps: range) -> None:
    for runner.iter in steps:
        hook._save_checkpoint(runner)


def test_old_checkpoint_goes_after_the_new_one_is_there(tmp_path: Path) -> None:
    runner, hook = (
        Saver(tmp_path),
        AtomicCheckpointHook(by_epoch=False, max_keep_ckpts=2),
    )
    hook.before_train(runner)
    save_steps(hook, runner, range(4))
    assert runner.listings[1:] == [
        ['iter_1.pth'],
        ['iter_1.pth', 'iter_2.pth'],
        ['iter_2.pth', 'iter_3.pth'],
    ]
    assert checkpoints(tmp_path) == ['iter_3.pth', 'iter_4.pth']
    assert runner.message_hub.get_info('keep_ckpt_ids') == [3, 4]
    assert (tmp_path / 'last_checkpoint').read_text() == str(tmp_path / 'iter_4.pth')


def test_error_in_a_write_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    runner, hook = (
        Saver(tmp_path),
        AtomicCheckpointHook(by_epoch=False, max_keep_ckpts=1),
    )
    hook.before_train(runner)
    save_steps(hook, runner, range(1))
    runner.fails = True
    with pytest.raises(KeyboardInterrupt):
        save_steps(hook, runner, range(1, 2))
    assert sorted(os.listdir(tmp_path)) == [
        '.rope_dense',
        'iter_1.pth',
        'last_checkpoint',
    ]
    assert os.listdir(tmp_path / '.rope_dense' / 'training') == ['record.jsonl']
    assert (tmp_path / 'last_checkpoint').read_text() == str(tmp_path / 'iter_1.pth')


def test_a_full_disk_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    path, limits = tmp_path / 'iter_1.pth', resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        with (
            pytest.raises(OSError, match=r'cannot be written .*GB left.*iter_1.pth'),
            atomic_write(path) as partial,
        ):
            torch.save(torch.zeros(100_000), partial)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(tmp_path.iterdir())


def test_remote_folders_are_refused(tmp_path: Path) -> None:
    hook = AtomicCheckpointHook(out_dir='http://store')
    with pytest.raises(ValueError, match=r'out_dir=http://store.*folders only'):
        hook.before_train(Saver(tmp_path))


def test_loading_processes_end_with_the_training(tmp_path: Path) -> None:
    """Not when garbage collection finds them, which would wait for 5 s for each."""
    before = set(multiprocessing.active_children())
    runner = toy_run(toy_config(tmp_path, 4, **{'train_dataloader.num_workers': 2}))
    assert runner.iter == 4
    assert set(multiprocessing.active_children()) <= before
