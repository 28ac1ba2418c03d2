"""The flagship configs, shrunk, through both tools: train, resume, test, test-time augmentation."""

import json
import pickle
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from PIL import Image

from helpers.small_configs import (
    DETECTION,
    FLAGSHIPS,
    HEIGHT,
    SEGMENTATION,
    WIDTH,
    make_data,
    small_config,
)
from rope_dense_command import command

pytestmark = pytest.mark.usefixtures('surroundings')

MORE = ['--cfg-options', 'train_cfg.max_iters=3', 'train_cfg.val_interval=3']
Run = Callable[..., None]


@pytest.fixture(scope='module')
def run() -> Run:
    """Run a tool, under a name of its own: mmengine keeps loggers and visualizers by name."""
    mains = {name: command(name) for name in ('train', 'test')}
    numbers = count()

    def run(tool: str, *argv: object) -> None:
        names = [
            f'{key}=run_{next(numbers)}'
            for key in ('experiment_name', 'visualizer.name')
        ]
        assert mains[tool]([*map(str, argv), '--cfg-options', *names]) == 0

    return run


class Trained:
    """A flagship trained for two iterations, then resumed for a third."""

    def __init__(self, name: str, data: Path, folder: Path, run: Run) -> None:
        self.name, self.data = name, data
        self.config = small_config(name, data, folder)
        self.work_dir = folder / name
        run('train', self.config, '--work-dir', self.work_dir)
        self.first = records(self.work_dir)
        run('train', self.config, '--work-dir', self.work_dir, '--resume', *MORE)
        self.resumed = records(self.work_dir)[len(self.first) :]


def records(work_dir: Path) -> list[dict]:
    """What the runs in a work dir logged, in order: training steps and evaluations."""
    logs = sorted(work_dir.glob('*/vis_data/scalars.json'))
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp('shapes') / 'data')


@pytest.fixture(
    scope='module',
    params=[
        FLAGSHIPS[0],
        *(pytest.param(name, marks=pytest.mark.slow) for name in FLAGSHIPS[1:]),
    ],
)
def trained(
    request: pytest.FixtureRequest,
    data: Path,
    tmp_path_factory: pytest.TempPathFactory,
    run: Run,
) -> Trained:
    return Trained(request.param, data, tmp_path_factory.mktemp('end_to_end'), run)


def test_training_logs_finite_losses_and_an_evaluation(trained: Trained) -> None:
    steps = [record for record in trained.first if 'loss' in record]
    assert [record['step'] for record in steps] == [1, 2]
    assert all(np.isfinite(record['loss']) and record['loss'] > 0 for record in steps)
    (evaluation,) = (record for record in trained.first if 'loss' not in record)
    metric = 'coco/bbox_mAP' if trained.name in DETECTION else 'mIoU'
    assert evaluation['step'] == 2 and metric in evaluation


def test_resume_goes_on_after_the_last_iteration(trained: Trained) -> None:
    steps = [record['step'] for record in trained.resumed if 'loss' in record]
    assert steps == [3]
    before, after = (load(trained, iteration) for iteration in (2, 3))
    assert (before['meta']['iter'], after['meta']['iter']) == (2, 3)
    # AdamW counts the steps of each parameter: it went on, it did not begin anew.
    assert {
        float(state['step']) for state in before['optimizer']['state'].values()
    } == {2.0}
    assert {float(state['step']) for state in after['optimizer']['state'].values()} == {
        3.0
    }


def load(trained: Trained, iteration: int) -> dict:
    return torch.load(trained.work_dir / f'iter_{iteration}.pth', weights_only=False)


def test_training_moves_backbone_and_head(trained: Trained) -> None:
    before, after = (load(trained, iteration)['state_dict'] for iteration in (1, 3))
    moved = [key for key in before if not torch.equal(before[key], after[key])]
    for part in ('backbone.', 'rope.freqs', 'head.'):
        assert any(part in key for key in moved), part
    assert all(value.isfinite().all() for value in after.values())


def test_resume_from_a_path_without_running_code_from_it(
    trained: Trained, run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoint = trained.work_dir / 'iter_1.pth'
    run('train', trained.config, '--work-dir', tmp_path, '--resume', checkpoint)
    assert [record['step'] for record in records(tmp_path) if 'loss' in record] == [2]
    (log,) = tmp_path.glob('*/*.log')
    output = ''.join(capfd.readouterr()) + log.read_text()
    assert f'Load checkpoint from {checkpoint}' in output
    assert 'weights_only=False' not in output  # mmengine's fallback
    saved = Config.fromfile(tmp_path / trained.config.name)
    assert (
        not saved.resume and saved.load_from is None
    )  # the next save may remove the checkpoint


@pytest.fixture(scope='module')
def tested(
    trained: Trained, run: Run, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a test of the last checkpoint, with predictions."""
    folder = tmp_path_factory.mktemp('tested')
    out = folder / ('out.pkl' if trained.name in DETECTION else 'out')
    checkpoint = trained.work_dir / 'iter_3.pth'
    options = ['--work-dir', folder / 'work', '--out', out]
    run('test', trained.config, checkpoint, *options)
    return folder


def metrics(work_dir: Path) -> dict:
    (path,) = work_dir.glob('*/*.json')
    return json.loads(path.read_text())


def test_test_repeats_the_evaluation_of_training(
    trained: Trained, tested: Path
) -> None:
    result = metrics(tested / 'work')
    (evaluation,) = (record for record in trained.resumed if 'loss' not in record)
    same = [
        key
        for key in result
        if key.startswith('coco/') or key in ('aAcc', 'mIoU', 'mAcc')
    ]
    assert same and {key: result[key] for key in same} == {
        key: evaluation[key] for key in same
    }


def test_predictions_are_saved(trained: Trained, tested: Path) -> None:
    if trained.name in SEGMENTATION:
        check_label_images(trained, tested)
    else:
        check_boxes(tested)


def check_boxes(tested: Path) -> None:
    samples = pickle.loads((tested / 'out.pkl').read_bytes())
    assert sorted(sample['img_id'] for sample in samples) == [0, 1]
    for sample in samples:
        predicted = sample['pred_instances']
        assert len(predicted['bboxes']) == len(predicted['scores']) == 10
        assert set(predicted['labels'].tolist()) <= set(range(6))
        x0, y0, x1, y1 = predicted['bboxes'].unbind(dim=1)
        assert (x0 <= x1).all() and (y0 <= y1).all() and min(x0.min(), y0.min()) >= 0
        assert x1.max() <= WIDTH and y1.max() <= HEIGHT


def check_label_images(trained: Trained, tested: Path) -> None:
    """Their pixel accuracy is the one reported: they are numbered as the truth is."""
    truth = sorted((trained.data / 'ade' / 'annotations' / 'validation').iterdir())
    right = [
        read_labels(tested / 'out' / path.name) == read_labels(path) for path in truth
    ]
    assert len(right) == 2
    assert metrics(tested / 'work')['aAcc'] == pytest.approx(
        100 * np.mean(right), abs=0.006
    )


def read_labels(path: Path) -> np.ndarray:
    labels = np.array(Image.open(path))  # numbers, also where colours show them
    assert labels.shape == (HEIGHT, WIDTH) and labels.min() >= 1 and labels.max() <= 7
    return labels


def test_tta_merges_the_views(
    trained: Trained, tested: Path, run: Run, tmp_path: Path
) -> None:
    """The views are averaged: other predictions, of the same form, than from one view."""
    out = tmp_path / ('out.pkl' if trained.name in DETECTION else 'out')
    checkpoint = trained.work_dir / 'iter_3.pth'
    run(
        'test',
        trained.config,
        checkpoint,
        '--tta',
        '--work-dir',
        tmp_path / 'work',
        '--out',
        out,
    )
    (used,) = (tmp_path / 'work').glob('*/vis_data/config.py')  # of the log
    used = Config.fromfile(used)
    assert not [*(tmp_path / 'work').glob('*.py')]
    assert used.model.type == Config.fromfile(trained.config).tta_model.type
    assert metrics(tmp_path / 'work').keys() >= metrics(tested / 'work').keys()
    if trained.name in DETECTION:
        one, several = (
            pickle.loads((f / 'out.pkl').read_bytes()) for f in (tested, tmp_path)
        )
        assert len(several) == len(one) == 2
        for alone, merged in zip(one, several, strict=True):
            boxes = [
                sample['pred_instances']['bboxes'].tolist()
                for sample in (alone, merged)
            ]
            assert boxes[1] and boxes[0] != boxes[1]
    else:
        assert sorted(path.name for path in out.glob('*.png')) == [
            '00000000.png',
            '00000001.png',
        ]
        assert all(read_labels(path) is not None for path in out.glob('*.png'))
