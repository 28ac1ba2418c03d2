"""tools/demo.py from end to end on the demo's own config at a toy size, and its parts."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import cv2
import pytest
from mmengine.config import Config
from mmengine.runner import save_checkpoint

from rope_dense.checks.model import random_model
from rope_dense.measure.demo_curve import read_scalars
from rope_dense.measure.demo_detections import draw_detections
from rope_dense.project.load import with_data_root
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
    *(f'{split}_dataloader.persistent_workers=False' for split in ('train', 'val', 'test')),
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


def test_demo_writes_figures_pictures_and_curve(work_dir: Path) -> None:
    results = json.loads((work_dir / 'results.json').read_text())
    assert results['reached'] and results['iterations'] == 3 and results['training_seconds'] >= 0
    rows = results['resolutions']
    assert [(row['height'], row['width']) for row in rows] == [(64, 64), (96, 96), (128, 128)]
    assert all(0 <= row['AP50'] <= 1 and row['seconds_per_image'] > 0 for row in rows)
    pictures = sorted((work_dir / 'pictures').iterdir())
    assert [picture.name for picture in pictures] == [f'{i:08d}.png' for i in range(4)]
    assert cv2.imread(str(pictures[0])).shape == (640, 1280, 3)  # truth and prediction
    assert cv2.imread(str(work_dir / 'training_curve.png')).std() > 0


def test_pictures_show_every_prediction_above_the_score(work_dir: Path, tmp_path: Path) -> None:
    config = with_data_root(Config.fromfile(CONFIG), work_dir / 'data' / 'coco')
    backbone = dict(arch=dict(depth=2), window_block_indexes=(0,))
    config.merge_from_dict(dict(model=dict(backbone=backbone, decoder=dict(num_layers=1))))
    checkpoint = work_dir / 'training' / 'iter_3.pth'
    (none,) = draw_detections(config, checkpoint, tmp_path / 'none', count=1, min_score=1.0)
    (all_,) = draw_detections(config, checkpoint, tmp_path / 'all', count=1, min_score=0.0)
    none, all_ = cv2.imread(str(none)), cv2.imread(str(all_))
    assert (none[:, :640] == all_[:, :640]).all()  # the truth on the left is the same
    assert (none[:, 640:] != all_[:, 640:]).any()


@pytest.mark.slow
@pytest.mark.usefixtures('surroundings')
def test_masks_are_drawn_on_enlarged_images(work_dir: Path, tmp_path: Path) -> None:
    config = Config.fromfile(CONFIG.with_name('deim_masks_vit_rope_mixed_shapes.py'))
    config = with_data_root(config, work_dir / 'data' / 'coco')
    checkpoint = tmp_path / 'random.pth'
    save_checkpoint(random_model(config).state_dict(), str(checkpoint))
    files = [
        draw_detections(config, checkpoint, tmp_path / str(score), count=1, min_score=score)
        for score in (1.0, 0.0)
    ]
    none, all_ = (cv2.imread(str(file)) for (file,) in files)
    assert none.shape == all_.shape == (640, 1280, 3)
    assert (none[:, 640:] != all_[:, 640:]).any(2).mean() > 0.1  # colours are random


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
    (tmp_path / 'results.json').write_text('{"reached": true}')
    assert demo(['--work-dir', str(tmp_path), '--evaluate-only', *TOY]) == 2
    assert 'no checkpoint, run without --evaluate-only first' in capsys.readouterr().err
    assert not (tmp_path / 'results.json').exists()


def test_config_without_shapes_is_refused(
    demo: Demo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / 'other.py'
    config.write_text('model = dict()')
    assert demo(['--config', str(config), '--work-dir', str(tmp_path / 'work')]) == 2
    assert 'no `shapes` entry' in capsys.readouterr().err


def small_config(**step: object) -> Config:
    dataset = dict(data_root='old/coco/', pipeline=[dict(type='Load'), step])
    return Config(
        dict(
            resume=True,
            test_dataloader=dict(batch_size=2, dataset=dataset),
            test_evaluator=dict(type='CocoMetric', ann_file='old/coco/annotations/val.json'),
        )
    )


def test_with_data_root_moves_data_and_annotations() -> None:
    config = small_config(type='Pack')
    moved = with_data_root(config, Path('new'))
    assert moved.test_dataloader.dataset.data_root == 'new'
    assert moved.test_evaluator.ann_file == 'new/annotations/val.json'
    assert config.test_dataloader.dataset.data_root == 'old/coco/'


def test_read_scalars_takes_the_newest_run(tmp_path: Path) -> None:
    for name, loss in (('20250101_000000', 9.0), ('20250102_000000', 1.5)):
        log = tmp_path / name / 'vis_data' / 'scalars.json'
        log.parent.mkdir(parents=True)
        log.write_text(f'{{"loss": {loss}, "step": 10}}\n{{"AP": 0.5, "step": 10}}\n')
    assert read_scalars(tmp_path, 'loss') == ([10], [1.5])
    with pytest.raises(KeyError, match=r'no scalar .*mAP.* choose from .*AP.*loss'):
        read_scalars(tmp_path, 'mAP')
    with pytest.raises(FileNotFoundError, match='train there first'):
        read_scalars(tmp_path / '20250101_000000', 'loss')
