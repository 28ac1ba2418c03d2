"""Heads of several tasks on one backbone, through the tools."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import mmcv
import mmengine
import numpy as np
import pytest
import torch
from mmengine.config import Config

import rope_dense
from helpers import shared_backbone as small
from helpers.tool_names import Fails, Main
from rope_dense.utils.errors import UsageError
from rope_dense_command import command

NAMES = ('boxes', 'classes', 'depth')


@pytest.fixture(scope='module')
def predict() -> Main:
    return command('predict')


@pytest.fixture(scope='module')
def pictures(data: Path) -> Path:
    return data / 'coco' / 'val2017'


@pytest.fixture(scope='module')
def shared(folder: Path, detector: str, segmentor: str) -> str:
    """A config that takes its pipeline from the one of the boxes."""
    configs = {}
    for name in NAMES:
        cfg = Config.fromfile(detector if name == 'boxes' else segmentor)
        cfg.model = small.ALL[name]()['model']
        configs[name] = cfg._cfg_dict.to_dict()
    tasks = small.save(folder, **configs)
    path = folder / 'shared.py'
    model = dict(_delete_=True, type='SharedBackbone', tasks=tasks, features=True)
    path.write_text(f"_base_ = './boxes.py'\nmodel = {model!r}\n")
    return str(path)


def test_predictions_are_those_of_each_task_alone(
    predict: Main,
    shared: str,
    pictures: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The files, too: the same as each command writes."""
    several = ['--out', str(tmp_path / 'all'), '--score', '0.01', '--batch', '2']
    assert predict([shared, str(pictures), *several]) == 0
    assert 'objects in 2 images' in capsys.readouterr().out
    for name in NAMES:
        task = Config.fromfile(shared).model.tasks[name]
        out = tmp_path / name
        given = [task.config, task.checkpoint, str(pictures), '--out', str(out)]
        assert predict([*given, '--score', '0.01', '--size', '64x96']) == 0
        files = sorted(path.relative_to(out) for path in out.rglob('[!.]*.*'))
        files = [file for file in files if file.parts[0] != '.rope_dense']
        found = tmp_path / 'all' / name
        assert files == sorted(p.relative_to(found) for p in found.rglob('*.*'))
        for file in files:
            if file.suffix == '.npy':
                np.testing.assert_allclose(
                    np.load(found / file), np.load(out / file), rtol=1e-5
                )
            elif file.suffix == '.png':
                assert np.array_equal(
                    cv2.imread(str(found / file)), cv2.imread(str(out / file))
                )
            elif file.suffix == '.json':
                theirs, ours = mmengine.load(out / file), mmengine.load(found / file)
                assert len(ours['annotations']) == len(theirs['annotations']) > 0
                for a, b in zip(
                    ours['annotations'], theirs['annotations'], strict=True
                ):
                    assert a['category_id'] == b['category_id']
                    np.testing.assert_allclose(a['bbox'], b['bbox'], atol=1e-2)
    features = np.load(tmp_path / 'all' / 'features' / 'features' / '00000000.npy')
    assert features.shape == (small.C, 4, 6) and features.dtype == np.float16
    np.testing.assert_allclose(
        np.linalg.norm(features.astype(float), axis=0), 1, atol=1e-2
    )
    drawn = mmcv.imread(tmp_path / 'all' / 'features' / 'pictures' / '00000000.jpg')
    assert drawn.shape[:2] == (64, 96) and drawn.std() > 20
    left = {path.name for path in tmp_path.rglob('.rope_dense/**/*') if path.is_file()}
    assert left == {'record.jsonl'}


def test_in_python(shared: str, pictures: Path, tmp_path: Path) -> None:
    model = rope_dense.load(shared, device='cpu')
    one, other = model(sorted(pictures.iterdir()), batch=2)
    assert one.features.data.shape == (small.C, 4, 6)
    assert one.depth.pred_depth_map.data.shape == (1, 64, 96)
    assert set(model.plain(other.boxes, score=0.0)) == {'boxes', 'scores', 'labels'}
    assert model.plain(one.classes)['labels'].shape == (64, 96)
    with pytest.raises(UsageError, match='with its own config'):
        model.evaluate()


def test_frames_of_a_video_are_side_by_side(
    predict: Main, shared: str, tmp_path: Path
) -> None:
    path = str(tmp_path / 'drive.mp4')
    video = cv2.VideoWriter(path, cv2.VideoWriter.fourcc(*'mp4v'), 5, (96, 64))
    video.write(np.full((64, 96, 3), 128, np.uint8))
    video.release()
    assert predict([shared, path, '--out', str(tmp_path / 'out')]) == 0
    reader = cv2.VideoCapture(str(tmp_path / 'out' / 'drive.mp4'))
    frame = reader.read()[1]
    assert frame.shape[0] == 64 and frame.shape[1] > 5 * 96


def test_large_images_and_a_second_checkpoint_are_refused(
    predict: Main,
    shared: str,
    pictures: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [shared, str(pictures), '--out', str(tmp_path)]
    assert predict([*arguments, '--tile-above', '0.001']) == 2
    assert 'several tasks predict no tiles' in capsys.readouterr().err
    (tmp_path / 'last.pth').touch()
    assert predict([shared, str(tmp_path / 'last.pth'), str(pictures)]) == 2
    assert 'names the checkpoint of each task' in capsys.readouterr().err


def test_another_backbone_is_named(
    predict: Main, shared: str, pictures: Path, tmp_path: Path, fails: Fails
) -> None:
    tasks, other = Config.fromfile(shared).model.tasks, tmp_path / 'other.pth'
    contents = torch.load(tasks.depth.checkpoint)
    contents['state_dict']['backbone.norm.bias'] += 1
    torch.save(contents, other)
    option = f'model.tasks.depth.checkpoint={other}'
    says = ['first in norm.bias', tasks.boxes.checkpoint, str(other)]
    fails(predict, shared, str(pictures), '--cfg-options', option, says=says)


def test_export(
    shared: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two tasks, without the boxes, whose trace takes long."""
    config, path = tmp_path / 'two.py', tmp_path / 'two.pt2'
    tasks = Config.fromfile(shared).model.tasks
    base = tasks.pop('boxes').config
    model = dict(type='SharedBackbone', tasks=tasks.to_dict())
    config.write_text(f'_base_ = {base!r}\nmodel = dict(_delete_=True, **{model})\n')
    export = command('export')
    assert export([str(config), str(path), '--size', '64x96', '--batch', '1']) == 0
    files = {'rope_dense.json': ''}
    torch.export.load(path, extra_files=files)
    metadata = json.loads(files['rope_dense.json'])
    assert metadata['outputs'] == ['classes_logits', 'classes_labels', 'depth_depth']
    difference = (
        capsys.readouterr().out.split('64 x 96, of the largest value: ')[1].split()[0]
    )
    assert float(difference) < 1e-5
    assert metadata['tasks']['classes']['classes'] == ['a', 'b', 'c']


def test_speed(shared: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = command('benchmark')
    options = ['--sizes', '64x96', '--rounds', '1', '--work-dir', str(tmp_path)]
    assert benchmark([shared, *options, '--modes', 'forward', 'end-to-end']) == 0
    rows = json.loads((tmp_path / 'benchmark' / 'benchmark.json').read_text())['rows']
    assert len(rows) == 2 and all(row['multiply_adds'] > 0 for row in rows)
    assert benchmark([shared, *options, '--modes', 'training']) == 2
    assert 'train each head with its own config' in capsys.readouterr().err
