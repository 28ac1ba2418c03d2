"""Runs on tiles: a test has the results of `predict-large`, which takes the tiles of the run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.registry import DATASETS, DefaultScope
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from PIL import Image
from pycocotools import mask as coco_mask

from helpers.large_scenes import draw_scene, write_scenes
from rope_dense.large_images.evaluation import TileJoiner
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense_command import command

pytest.importorskip('rasterio', reason="no rasterio: pip install -e '.[large]'")
pytestmark = pytest.mark.usefixtures('surroundings')
DETECTOR = """
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=32, depth=4, num_heads=2),
        out_indices=(1, 2, 3),
        layer_scale_init_value=None,
    ),
    neck=dict(in_channels=32, out_channels=32),
    encoder=dict(in_channels=(32, 32, 32), embed_dims=32, feedforward_channels=32),
    bbox_head=dict(embed_dims=32, decoder=dict(num_layers=2, feedforward_channels=32)),
)
"""
SEGMENTOR = """
model = dict(
    backbone=dict(
        arch=dict(_delete_=True, embed_dims=32, depth=4, num_heads=2),
        out_indices=(0, 1, 2, 3),
        layer_scale_init_value=None,
    ),
    neck=dict(embed_dim=32),
    decode_head=dict(in_channels=[32] * 4, channels=32),
    auxiliary_head=dict(in_channels=[32, 32, 32, 32][0], channels=32),
)
"""


def write_masks(root: Path, train: int, val: int) -> Path:
    """Scenes with masks of three classes; the left third of each has no label."""
    for split, number in dict(train=train, val=val).items():
        for kind in ('images', 'masks'):
            (root / kind / split).mkdir(parents=True)
        for index in range(number):
            pixels, objects = draw_scene(200, 300, 30, index + 1000 * (split == 'val'))
            labels = np.zeros((200, 300), np.uint8)
            for label, (x, y, w, h) in objects:
                labels[y : y + h, x : x + w] = label + 1
            labels[:, :110] = 255
            Image.fromarray(pixels).save(root / 'images' / split / f'{index}.png')
            Image.fromarray(labels).save(root / 'masks' / split / f'{index}.png')
    return root


@pytest.fixture(scope='module')
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenes(tmp_path_factory.mktemp('scenes'), dict(train=2, val=1), outlines=True)


@pytest.fixture(scope='module')
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_masks(tmp_path_factory.mktemp('masked'), 2, 1)


def own_file(folder: Path, task: str, data: Path, **own: object) -> Path:
    """A config of a small model that is trained on tiles of 96 pixels."""
    given = dict(data_root=str(data), backbone='tiny', weights=None, size=64, tile=96, overlap=32)
    given |= dict(batch_size=2, epochs=1, augment='light', report=False) | own
    text = f'task = {task!r}\nown = {given!r}\n'
    path = folder / f'{task}.py'
    path.write_text(text + (SEGMENTOR if task == 'semantic' else DETECTOR))
    return path


def model_files(folder: Path, config: Path) -> tuple[str, str]:
    """The complete config and random weights, whose predictions differ from place to place."""
    cfg = load_config(str(config), work_dir=str(folder / 'work'))
    cfg.dump(folder / 'whole.py')
    torch.manual_seed(0)
    model = random_model(cfg)
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and 'head' in name:
            torch.nn.init.normal_(parameter, std=0.3)
    meta = dict(dataset_meta=cfg.test_dataloader.dataset.metainfo.to_dict())
    torch.save(dict(state_dict=model.state_dict(), meta=meta), folder / 'weights.pth')
    return str(folder / 'whole.py'), str(folder / 'weights.pth')


def whole_samples(config: str, weights: str, joiner: TileJoiner) -> list[BaseDataElement]:
    """The samples of the whole images of a test."""
    cfg = load_config(config)
    cfg.test_dataloader.num_workers = 0
    model = random_model(cfg).eval()
    model.load_state_dict(torch.load(weights)['state_dict'])
    with DefaultScope.overwrite_default_scope(cfg.default_scope), torch.no_grad():
        loader = Runner.build_dataloader(cfg.test_dataloader)
        return [one for batch in loader for one in joiner.joined(model.test_step(batch))]


def run(name: str, *arguments: object) -> int:
    return command(name)([*map(str, arguments)])


@pytest.mark.parametrize(
    'task, own',
    [
        ('realtime', {}),
        ('realtime', dict(scales=[0.5, 1])),
        ('realtime_masks', {}),
        ('oriented', dict(scales=[0.5, 1])),
    ],
)
def test_a_test_has_the_objects_of_predict_large(
    task: str, own: dict, scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, out = model_files(tmp_path, own_file(tmp_path, task, scenes, **own)), tmp_path / 'a.json'
    least = 0.05
    image = scenes / 'val' / '0.png'
    assert run('predict_large', *files, image, '--out', out, '--min-score', least) == 0
    number = 15 if not own else 15 + 4
    assert f'{number} tiles of 96 pixels' in capsys.readouterr().out
    expected = json.loads(out.read_text())['annotations']
    (sample,) = whole_samples(*files, TileJoiner(min_score=least))
    found = sample.pred_instances
    assert sample.ori_shape == (200, 300) and len(found) == len(expected) > 10
    key = 'rbox' if task == 'oriented' else 'bbox'
    for box, score, label, item in zip(
        found.bboxes.tolist(), found.scores.tolist(), found.labels.tolist(), expected, strict=True
    ):
        if key == 'bbox':
            box = [box[0], box[1], box[2] - box[0], box[3] - box[1]]
        assert score == pytest.approx(item['score'], abs=1e-5)
        assert label + 1 == item['category_id']
        assert box[:2] == pytest.approx(item[key][:2], abs=1e-2)
    if task == 'realtime_masks':
        assert [x['counts'].decode() for x in found.masks] == [
            x['segmentation']['counts'] for x in expected
        ]
        assert coco_mask.decode(found.masks[0]).shape == (200, 300)


def test_a_test_has_the_labels_of_predict_large(masked: Path, tmp_path: Path) -> None:
    files, out = (
        model_files(tmp_path, own_file(tmp_path, 'semantic', masked, classes=CLASSES)),
        (tmp_path / 'a.png'),
    )
    assert run('predict_large', *files, masked / 'images' / 'val' / '0.png', '--out', out) == 0
    expected, labels = np.array(Image.open(out)), np.full((200, 300), 99)
    truth = labels.copy()
    for part in whole_samples(*files, TileJoiner()):
        place = part.metainfo['place']
        top, left = place.level.grid.tops[place.row], place.level.grid.lefts[place.column]
        rows, columns = part.pred_sem_seg.shape
        where = slice(top, top + rows), slice(left, left + columns)
        labels[where], truth[where] = part.pred_sem_seg.data[0], part.gt_sem_seg.data[0]
    assert (labels == expected).all() and len(np.unique(expected)) > 1
    assert (truth == np.array(Image.open(masked / 'masks' / 'val' / '0.png'))).all()


CLASSES = ['ground', 'disc', 'square']


def test_tiles_without_a_label_are_left_out(masked: Path, tmp_path: Path) -> None:
    cfg = load_config(str(own_file(tmp_path, 'semantic', masked, classes=CLASSES)))
    assert '2 training images are 24 tiles of 96 pixels, resized to 64' in cfg.own_data
    assert '6 tiles without a labelled pixel are left out' in cfg.own_data
    with DefaultScope.overwrite_default_scope('mmseg'):
        dataset = DATASETS.build(cfg.train_dataloader.dataset)
    assert len(dataset) == 24
    for index in range(len(dataset)):
        labels = dataset[index]['data_samples'].gt_sem_seg.data
        assert (labels != 255).any()


@pytest.mark.slow
@pytest.mark.parametrize('task', ['realtime', 'semantic'])
def test_a_run_is_trained_tested_reported_and_predicts(
    task: str, scenes: Path, masked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    is_masks = task == 'semantic'
    data, own = (masked, dict(classes=CLASSES)) if is_masks else (scenes, {})
    config = own_file(tmp_path, task, data, **own, val_epochs=1)
    folder, options = tmp_path / 'run', ['--cfg-options', 'train_dataloader.num_workers=0']
    assert run('train', config, '--work-dir', folder, *options) == 0
    assert run('test', folder) == 0
    assert ('mIoU' if is_masks else 'mAP') in capsys.readouterr().out
    assert run('report', folder) == 0 and (folder / 'report' / 'index.html').exists()
    picture = data / ('images/val' if is_masks else 'val')
    assert run('predict', folder, picture, '--out', tmp_path / 'out') == 0
    said = capsys.readouterr().out
    assert 'in tiles' in said and '15 tiles of 96 pixels' in said
    assert run('eval_resolutions', folder, '--sizes', '64', '96') == 0
    assert len(json.loads((folder / 'resolutions.json').read_text())['rows']) == 2


@pytest.mark.parametrize('task', ['detection', 'instance', 'depth'])
def test_recipes_of_other_tasks(task: str, scenes: Path, tmp_path: Path) -> None:
    """Their loaders give batches of tiles, and whole images to the evaluator."""
    if task == 'depth':
        for split in ('train', 'val'):
            for kind in ('images', 'depth'):
                (tmp_path / kind / split).mkdir(parents=True)
            depth = np.full((200, 300), 3000, np.uint16)
            depth[50:90, 100:260] = 1500
            Image.fromarray(depth).save(tmp_path / 'depth' / split / '0.png')
            Image.fromarray(depth.astype(np.uint8)).save(tmp_path / 'images' / split / '0.png')
        scenes = tmp_path
    own = dict(data_root=str(scenes), backbone='tiny', weights=None, size=64, tile=96, overlap=32)
    cfg = load_config(task, own=own | dict(augment='light'), work_dir=str(tmp_path / 'work'))
    cfg.train_dataloader.num_workers = cfg.val_dataloader.num_workers = 0
    assert (task == 'detection') == bool((cfg.model.get('bbox_head') or {}).get('skip_ignored'))
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        batch = next(iter(Runner.build_dataloader(cfg.train_dataloader, seed=0)))
        loader = Runner.build_dataloader(cfg.val_dataloader, seed=0)
        assert len(loader.dataset) == 15 and cfg.val_evaluator.type == 'TiledEvaluator'
        assert max(batch['inputs'][0].shape[1:]) <= 160
        if task == 'depth':
            whole = np.array(Image.open(tmp_path / 'depth' / 'val' / '0.png'))
            for index in range(15):
                left, top, right, bottom = loader.dataset.get_data_info(index)['window']
                found = loader.dataset[index]['data_samples'].gt_depth_map.data[0].numpy()
                assert np.allclose(found, whole[top:bottom, left:right] / 1000)


def test_what_tests_in_tiles_refuse(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = model_files(tmp_path, own_file(tmp_path, 'realtime', scenes))
    assert run('test', *files, '--out', tmp_path / 'a.pkl') == 2
    assert '--out: a test in tiles writes no files' in capsys.readouterr().err
    assert run('choose_scaling', *files, '--sizes', '96') == 2
    assert 'a test in tiles is not resampled' in capsys.readouterr().err
