"""`rope-dense demo` from end to end on the demo's own config at a toy size, and its parts."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from mmengine.config import Config

from rope_dense.project.load import with_data_root
from rope_dense.utils.results import Results
from rope_dense_command import command

Demo = Callable[[Sequence[str]], int]
ROOT = Path(__file__).parents[2]
CONFIG = ROOT / 'configs' / 'demo' / 'dino_vitdet_rope_mixed_shapes.py'
TOY = [
    '--config',
    str(CONFIG),
    '--cfg-options',
    'shapes.train=8',
    'shapes.val=4',
    'shapes.size=(64,64)',
    'train_cfg.max_iters=3',
    'train_cfg.val_interval=2',
    'train_dataloader.batch_size=2',
    *(f'{split}_dataloader.num_workers=0' for split in ('train', 'val', 'test')),
    'default_hooks.logger.interval=1',
    'model.backbone.arch.depth=2',
    'model.backbone.window_block_indexes=(0,)',
    'model.decoder.num_layers=1',
    'visualizer.name=demo_tool',  # another file's visualizer would write to its own folder
]


@pytest.fixture(scope='module')
def demo() -> Demo:
    return command('demo')


@pytest.fixture(scope='module')
def work_dir(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Path:
    work_dir = tmp_path_factory.mktemp('demo') / 'work'
    assert demo(['--work-dir', str(work_dir), '--goal', '0', *TOY]) == 0
    return work_dir


def test_demo_writes_figures_and_a_report(work_dir: Path) -> None:
    results = json.loads((work_dir / 'results.json').read_text())
    assert (
        results['reached']
        and results['iterations'] == 3
        and results['training_seconds'] >= 0
    )
    rows = results['resolutions']
    assert [(row['height'], row['width']) for row in rows] == [
        (64, 64),
        (96, 96),
        (128, 128),
    ]
    assert all(0 <= row['AP50'] <= 1 and row['seconds_per_image'] > 0 for row in rows)
    report = json.loads((work_dir / 'report' / 'report.json').read_text())
    assert report['about']['config'] == str(work_dir / 'training' / CONFIG.name)
    assert report['losses']['loss'][0] == [1, 2, 3]
    assert [row['height'] for row in report['image_sizes']['rows']] == [64, 96, 128]
    assert (work_dir / 'report' / 'index.html').is_file()


@pytest.mark.slow
def test_missed_goal_is_exit_code_one_and_evaluate_only_keeps_the_weights(
    demo: Demo, work_dir: Path
) -> None:
    checkpoint = work_dir / 'training' / 'iter_3.pth'
    before = checkpoint.stat().st_mtime_ns
    options = ['--work-dir', str(work_dir), '--goal', '1', '--evaluate-only', *TOY]
    with pytest.raises(SystemExit, match=r'Goal missed: AP50 .* goal 1.00'):
        demo(options)
    results = json.loads((work_dir / 'results.json').read_text())
    assert not results['reached'] and results['training_seconds'] is None
    assert checkpoint.stat().st_mtime_ns == before


def test_failure_leaves_no_results(
    demo: Demo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ['--work-dir', str(tmp_path), '--evaluate-only', *TOY]
    Results(tmp_path, 'demo').write_text(tmp_path / 'results.json', '{"reached": true}')
    assert demo(given) == 2
    assert 'no checkpoint, run without --evaluate-only first' in capsys.readouterr().err
    assert not (tmp_path / 'results.json').exists()
    (tmp_path / 'results.json').write_text('of the user')
    assert demo(given) == 2
    assert (
        'results.json was changed after rope-dense wrote it' in capsys.readouterr().err
    )
    assert (tmp_path / 'results.json').read_text() == 'of the user'


def test_config_without_shapes_is_refused(
    demo: Demo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / 'other.py'
    config.write_text("default_scope = 'mmdet'\nmodel = dict()")
    assert demo(['--config', str(config), '--work-dir', str(tmp_path / 'work')]) == 2
    assert 'no `shapes` entry' in capsys.readouterr().err


def test_with_data_root_moves_data_and_annotations() -> None:
    config = Config(
        dict(
            test_dataloader=dict(dataset=dict(data_root='old/coco/')),
            test_evaluator=dict(
                type='CocoMetric', ann_file='old/coco/annotations/val.json'
            ),
        )
    )
    moved = with_data_root(config, Path('new'))
    assert moved.test_dataloader.dataset.data_root == 'new'
    assert moved.test_evaluator.ann_file == 'new/annotations/val.json'
    assert config.test_dataloader.dataset.data_root == 'old/coco/'
