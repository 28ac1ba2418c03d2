"""A depth model in the tools, on generated rooms: trained, tested, predicted, swept, reported."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import cv2
import mmcv
import numpy as np
import pytest
from mmengine.config import Config

import rope_dense
from helpers.grid import CONFIGS
from helpers.tool_names import Fails, Main
from rope_dense.commands.report import main as report_main
from rope_dense.commands.report import parse_args as report_args
from rope_dense.data.generated import ShapesSettings, write_shapes
from rope_dense.data.generated.rooms import make_room, render_room
from rope_dense.data.images.drawing import LEGEND
from rope_dense.measure.evaluate import evaluate
from rope_dense.report.write import report
from rope_dense_command import command

HEIGHT, WIDTH = 64, 96
SMALL = {
    'model.data_preprocessor.size': (HEIGHT, WIDTH),
    'model.backbone.arch': dict(embed_dims=32, depth=4, num_heads=2),
    'model.backbone.img_size': (HEIGHT, WIDTH),
    'model.decode_head.in_channels': 32,
    'model.decode_head.post_process_channels': [8, 8, 16, 16],
    'test_dataloader.dataset.pipeline.1.scale': (WIDTH, HEIGHT),
    'val_dataloader.dataset.pipeline.1.scale': (WIDTH, HEIGHT),
    'tta_pipeline.1.transforms.0.0.scale': (WIDTH, HEIGHT),
    'param_scheduler.0.end': 2,
    'param_scheduler.1.begin': 0,
    'param_scheduler.1.end': 2,
    'train_dataloader.batch_size': 2,
    'train_cfg.max_iters': 2,
    'train_cfg.val_interval': 2,
    'default_hooks.checkpoint.interval': 2,
}


def tool(name: str) -> Main:
    return command(name)


@pytest.fixture(scope='module')
def rooms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('rooms')
    write_shapes(folder, ShapesSettings(4, 2, (HEIGHT, WIDTH), layouts=('depth',)))
    return folder / 'depth'


@pytest.fixture(scope='module')
def config(rooms: Path) -> str:
    cfg = Config.fromfile(CONFIGS / 'demo' / 'depth_vit_rope_mixed_rooms.py')
    cfg.merge_from_dict(
        SMALL
        | {
            f'{x}_dataloader.dataset.data_root': str(rooms)
            for x in ('train', 'val', 'test')
        }
    )
    cfg.dump(rooms.parent / 'small.py')
    return str(rooms.parent / 'small.py')


@pytest.fixture(scope='module')
def weights(config: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    work = tmp_path_factory.mktemp('work')
    assert tool('train')([config, '--work-dir', str(work)]) == 0
    return str(next(work.glob('best_rmse_*.pth')))


def test_tested_with_and_without_flips(
    config: str, weights: str, tmp_path: Path
) -> None:
    for options in ([], ['--tta']):
        work = tmp_path / str(len(options))
        assert tool('test')([config, weights, '--work-dir', str(work), *options]) == 0
        (file,) = work.rglob('2*.json')
        assert math.isfinite(json.loads(file.read_text())['rmse'])


def test_predicted_depth_is_drawn_and_written(
    config: str, weights: str, rooms: Path, tmp_path: Path
) -> None:
    """As mmseg's inferencer predicts it; the truth is not read."""
    from mmseg.apis import MMSegInferencer

    folder = tmp_path / 'in'
    shutil.copytree(rooms / 'images' / 'val', folder)
    assert (
        tool('predict')([config, weights, str(folder), '--out', str(tmp_path / 'out')])
        == 0
    )
    cfg = Config.fromfile(config)
    del cfg.test_dataloader.dataset.pipeline[2]
    inferencer = MMSegInferencer(cfg, weights, device='cpu')
    for file in folder.iterdir():
        depth = np.load(tmp_path / 'out' / 'depth' / f'{file.stem}.npy')
        (expected,) = inferencer(
            str(file), return_datasamples=True
        ).pred_depth_map.data.numpy()
        assert depth.dtype == np.float32 and depth.shape == (HEIGHT, WIDTH)
        np.testing.assert_allclose(depth, expected, rtol=1e-5)
        drawn = mmcv.imread(tmp_path / 'out' / 'pictures' / file.name)
        assert drawn.shape == (HEIGHT, 2 * WIDTH + LEGEND, 3)


def test_depth_in_python(config: str, weights: str, rooms: Path) -> None:
    model = rope_dense.load(config, weights, device='cpu')
    samples = model(sorted((rooms / 'images' / 'val').iterdir()))
    depth = model.plain(samples[1])['depth']
    assert depth.shape == (HEIGHT, WIDTH) and depth.min() > 0


def test_large_images_are_not_cut_into_tiles(
    config: str,
    weights: str,
    rooms: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    image = str(rooms / 'images' / 'val' / '00000000.jpg')
    arguments = [
        config,
        weights,
        image,
        '--out',
        str(tmp_path / 'out'),
        '--tile-above',
        '0.001',
    ]
    assert tool('predict')(arguments) == 2
    assert 'depth is not predicted in tiles' in capsys.readouterr().err
    arguments = [config, weights, image, '--out', str(tmp_path / 'out.tif')]
    assert tool('predict_large')(arguments) == 2
    assert 'depth is not predicted in tiles' in capsys.readouterr().err
    assert not (tmp_path / 'out.tif').exists()


@pytest.mark.parametrize('split', ['train', 'val'])
def test_samples_are_drawn(config: str, split: str, tmp_path: Path) -> None:
    """Of a test, too, whose truth keeps the size of its file."""
    sizes = ['--cfg-options', 'val_dataloader.dataset.pipeline.1.scale=(192,128)']
    arguments = [
        config,
        '--split',
        split,
        '--count',
        '1',
        '--out',
        str(tmp_path),
        *sizes,
    ]
    assert tool('browse_data')(arguments) == 0
    (file,) = tmp_path.glob('*.png')
    height, width = (HEIGHT, WIDTH) if split == 'train' else (2 * HEIGHT, 2 * WIDTH)
    assert mmcv.imread(file).shape == (height, 2 * width + LEGEND, 3)


def test_one_model_at_several_sizes(config: str, weights: str, tmp_path: Path) -> None:
    """Frequency scaling changes the predictions at another size only."""
    arguments = [config, weights, '--work-dir', str(tmp_path), '--sizes', '64', '128']
    assert tool('eval_resolutions')([*arguments, '--scaling', 'none', 'by_parts']) == 0
    rows = json.loads((tmp_path / 'resolutions.json').read_text())['rows']
    rmse = {(row['height'], row['scaling']): row['metrics']['rmse'] for row in rows}
    assert rmse[64, 'none'] == pytest.approx(rmse[64, 'by_parts:1'], rel=1e-5)
    assert rmse[128, 'none'] != pytest.approx(rmse[128, 'by_parts:2'], rel=1e-5)
    assert (tmp_path / 'resolutions.png').is_file()


def test_a_report_has_errors_by_distance(
    config: str, weights: str, tmp_path: Path
) -> None:
    arguments = report_args(
        [config, weights, '--out', str(tmp_path), '--device', 'cpu']
    )
    report_main(arguments)
    content = json.loads((tmp_path / 'report.json').read_text())
    every, *ranges = content['classes']
    assert sum(row['pixels'] for row in ranges) == every['pixels']
    depths = [render_room(make_room(0, 'val', i), HEIGHT, WIDTH)[1] for i in range(2)]
    assert every['pixels'] == sum((depth > 0).sum() for depth in depths)
    squares = sum(row['pixels'] * row['rmse'] ** 2 for row in ranges)
    assert math.sqrt(squares / every['pixels']) == pytest.approx(every['rmse'])
    assert len(content['worst']) == 2 and (tmp_path / 'worst_1.png').is_file()


def test_a_report_has_the_pixels_of_the_test(
    config: str, weights: str, tmp_path: Path
) -> None:
    """Not what is beyond the largest depth of the metric, nor predictions as far away."""
    options = {'test_evaluator.max_depth_eval': 3.0}
    given = dict(cfg_options=options, work_dir=str(tmp_path))
    evaluate(config, weights, **given)
    (file,) = tmp_path.rglob('2*.json')
    report(config, weights, device='cpu', **given)
    content = json.loads((tmp_path / 'report' / 'report.json').read_text())
    every, *_, last = content['classes']
    depths = [render_room(make_room(0, 'val', i), HEIGHT, WIDTH)[1] for i in range(2)]
    near = sum(((depth > 0.001) & (depth < 3)).sum() for depth in depths)
    assert 100 < every['pixels'] == near < sum((depth > 0).sum() for depth in depths)
    assert last['class'] == '2 to 3 m'
    expected = json.loads(file.read_text())['rmse']
    found = content['about']['mean RMSE of an image (m)']
    assert found == pytest.approx(expected, abs=1e-6)


def write(path: Path, depth: np.ndarray) -> None:
    assert cv2.imwrite(str(path), depth)


@pytest.mark.parametrize(
    'change, says',
    [
        ('unit', 'has a median depth of'),
        ('unknown', '00000002.png has no known depth'),
        ('missing', 'images/train have no depth map of their name in'),
        ('size', '00000002.png and its image'),
    ],
)
def test_bad_depths_are_named_before_training(
    fails: Fails, config: str, rooms: Path, tmp_path: Path, change: str, says: str
) -> None:
    shutil.copytree(rooms, tmp_path / 'rooms')
    file = tmp_path / 'rooms' / 'depth' / 'train' / '00000002.png'
    depth, options = mmcv.imread(file, 'unchanged'), []
    if change == 'unit':
        options = ['--cfg-options', 'train_dataloader.dataset.pipeline.1.unit=1.0']
    elif change == 'unknown':
        write(file, 0 * depth)
    elif change == 'missing':
        file.unlink()
    else:
        write(file, depth[:-2])
    root = ['--data-root', str(tmp_path / 'rooms')]
    fails(tool('train'), config, *root, *options, says=[says])
