"""configs/own/oriented.py: what follows from the settings, and a step of training."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mmdet.apis import inference_detector
from mmdet.structures.bbox import get_box_tensor
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from PIL import Image

import helpers.oriented  # noqa: F401, skips where mmrotate is not installed
from helpers.grid import CONFIGS
from rope_dense.data.labels.geometry import bounding_box
from rope_dense.data.rotated import rectangle_corners, to_convention
from rope_dense.project.checks.data import check_data
from rope_dense.project.checks.schedule import check_schedule
from rope_dense.project.contents import angle_version
from rope_dense.project.hub import load_from_hub
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense.project.own.detectors import IOU_THRESHOLDS
from rope_dense.utils.errors import UsageError
from rope_dense_command import command

pytestmark = pytest.mark.usefixtures('surroundings')
BOX = np.array([60.0, 50, 50, 16, 0.6])
SIZE = 128


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four training and two validation images in DOTA's layout, the last object difficult."""
    folder = tmp_path_factory.mktemp('dota')
    for split, number in (('train', 4), ('val', 2)):
        for name in ('images', 'labelTxt'):
            (folder / split / name).mkdir(parents=True)
        for index in range(number):
            picture = np.random.default_rng(index).integers(
                255, size=(SIZE, 96, 3), dtype=np.uint8
            )
            Image.fromarray(picture).save(folder / split / 'images' / f'P{index}.png')
            lines = ['imagesource:GoogleEarth', 'gsd:0.1']
            for name, shift, difficulty in (('ship', 0, 0), ('large vehicle', 30, 1)):
                corners = rectangle_corners(BOX + np.array([0, shift, 0, 0, 0]))
                lines.append(
                    ' '.join(f'{x:.2f}' for x in corners) + f' {name} {difficulty}'
                )
            (folder / split / 'labelTxt' / f'P{index}.txt').write_text(
                '\n'.join(lines) + '\n'
            )
    return folder


def load(data: Path, **settings: object) -> Config:
    settings = dict(data_root=data, epochs=10, batch_size=2, size=SIZE) | settings
    return load_config('oriented', own=settings)


def test_without_data_it_loads_and_survives_a_dump(tmp_path: Path) -> None:
    cfg = Config.fromfile(CONFIGS / 'own' / 'oriented.py')
    cfg.dump(tmp_path / 'dumped.py')
    assert Config.fromfile(tmp_path / 'dumped.py').to_dict() == cfg.to_dict()


def test_the_recipe_is_deimv2_s_with_dota_s_metric_and_flips(data: Path) -> None:
    cfg = load(data, epochs=68)
    recipe = Config.fromfile(CONFIGS / 'deim' / 'deimv2-l_lingbot-s_4xb8-251k_coco.py')
    for part in ('neck', 'encoder'):
        assert cfg.model[part] == recipe.model[part]
    assert (cfg.model.backbone.arch, cfg.model.type) == (
        recipe.model.backbone.arch,
        'DEIM',
    )
    assert cfg.model.backbone.out_indices == [*recipe.model.backbone.out_indices]
    for key in ('decoder', 'denoising', 'embed_dims', 'mal_gamma'):
        assert cfg.model.bbox_head[key] == recipe.model.bbox_head[key]
    assert cfg.model.bbox_head.matching.late_epoch == 50
    assert cfg.model.bbox_head.num_classes == 2 and angle_version(cfg) == 'le90'
    assert (
        cfg.test_evaluator.iou_thrs
        == IOU_THRESHOLDS
        == pytest.approx(np.arange(10) / 20 + 0.5)
    )
    assert cfg.default_hooks.checkpoint.save_best == 'dota/mAP'
    assert (
        cfg.param_scheduler[1].begin == 34 * 2 and cfg.param_scheduler[1].end == 60 * 2
    )
    mmrotate = Config.fromfile(
        CONFIGS / 'oriented' / 'oriented-rcnn_swin-t_rope-mixed_1xb2-12e_dota.py'
    )
    (flip,) = (
        s for s in cfg.train_dataloader.dataset.pipeline if s.type == 'RandomFlip'
    )
    (theirs,) = (
        s
        for s in mmrotate.train_dataloader.dataset.pipeline
        if s.type.endswith('RandomFlip')
    )
    assert sum(flip.prob) == theirs.prob and flip.direction == theirs.direction


@pytest.mark.parametrize('epochs', [1, 2, 3, 7])
def test_short_runs(data: Path, epochs: int) -> None:
    cfg = load(data, epochs=epochs)
    check_schedule(cfg)
    assert cfg.train_cfg.max_iters == 2 * epochs
    assert all(part.end <= cfg.train_cfg.max_iters for part in cfg.param_scheduler)


def test_choices_of_augmentation_and_hooks(data: Path) -> None:
    for augment, flips in (('published', 1), ('light', 1), ('none', 0)):
        steps = [
            s.type
            for s in load(data, augment=augment).train_dataloader.dataset.pipeline
        ]
        assert (
            'mmrotate.ConvertMask2BoxType' in steps
            and steps.count('RandomFlip') == flips
        )
    with pytest.raises(UsageError, match=r'own\.mosaic: no such setting'):
        load(data, mosaic=True)
    kinds = [hook.type for hook in load(data, patience=3, ema=False).custom_hooks]
    assert kinds == ['ResumableEarlyStoppingHook']


def coco(data: Path, folder: Path) -> None:
    """The same objects as polygons of COCO, each with a fifth corner on a side."""
    corners = rectangle_corners(BOX)
    outline = [*corners, *((corners[:2] + corners[6:]) / 2)]
    box = bounding_box(corners)
    for split in ('train', 'val'):
        names = sorted(path.name for path in (data / split / 'images').iterdir())
        images = [
            dict(id=i, file_name=n, height=SIZE, width=96) for i, n in enumerate(names)
        ]
        annotations = [
            dict(id=i + 1, image_id=i, category_id=1, bbox=box, segmentation=[outline])
            for i, _ in enumerate(names)
        ]
        content = dict(
            images=images, annotations=annotations, categories=[dict(id=1, name='ship')]
        )
        (folder / f'{split}.json').write_text(json.dumps(content))
        (folder / split).symlink_to(data / split / 'images')


def small(cfg: Config) -> Config:
    model = cfg.model
    model.backbone.arch = dict(
        embed_dims=32, depth=3, num_heads=2, rope=dict(type='AxialRoPE', theta=100.0)
    )
    model.backbone.update(out_indices=(0, 1, 2), qkv_bias=True, init_cfg=None)
    model.neck.update(in_channels=32, out_channels=32, stem_channels=4)
    model.encoder.update(in_channels=(32,) * 3, embed_dims=32, feedforward_channels=32)
    model.bbox_head.embed_dims = 32
    model.bbox_head.decoder.update(num_layers=2, feedforward_channels=32)
    for name in ('train', 'val', 'test'):
        cfg[f'{name}_dataloader'].update(num_workers=0, persistent_workers=False)
    return cfg


@pytest.mark.parametrize('source', ['dota', 'coco'])
def test_a_batch_trains_and_true_boxes_are_those_of_the_labels(
    data: Path, tmp_path: Path, source: str
) -> None:
    if source == 'coco':
        coco(data, tmp_path)
    cfg = small(load(data if source == 'dota' else tmp_path))
    check_data(cfg, ('train_dataloader', 'val_dataloader'))
    detector = random_model(cfg).train()
    with DefaultScope.overwrite_default_scope('mmdet'):
        batch = next(iter(Runner.build_dataloader(cfg.train_dataloader, seed=0)))
        tested = next(iter(Runner.build_dataloader(cfg.val_dataloader, seed=0)))
    losses = detector(**detector.data_preprocessor(batch, training=True), mode='loss')
    assert all(torch.isfinite(torch.as_tensor(loss)).all() for loss in losses.values())
    for sample in tested['data_samples']:
        boxes = to_convention(sample.gt_instances.bboxes.tensor.numpy(), 'le90')
        np.testing.assert_allclose(boxes, BOX[None], atol=0.02)
        assert len(sample.ignored_instances) == (source == 'dota')  # the difficult one
    with torch.no_grad():
        found = detector.eval().test_step(tested)
    assert all(
        get_box_tensor(sample.pred_instances.bboxes).shape[1] == 5 for sample in found
    )


def test_a_stored_model_predicts_the_same(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = small(load(data))
    model = random_model(cfg)
    config, checkpoint = str(tmp_path / 'small.py'), str(tmp_path / 'a.pth')
    cfg.dump(config)
    torch.save(dict(state_dict=model.state_dict()), checkpoint)
    tools = {name: command(name) for name in ('push_to_hub', 'predict')}
    folder, images = str(tmp_path / 'stored'), str(data / 'val' / 'images')
    assert tools['push_to_hub']([config, checkpoint, 'a/b', '--folder', folder]) == 0
    results = []
    for source in ([folder], [config, checkpoint]):
        out = tmp_path / f'predicted_{len(source)}'
        assert (
            tools['predict']([*source, images, '--out', str(out), '--score', '0.01'])
            == 0
        )
        results.append(
            {p.relative_to(out): p.read_bytes() for p in out.rglob('*') if p.is_file()}
        )
    assert results[0] == results[1]
    content = json.loads(results[0][Path('predictions.json')])
    assert content['info']['angle_version'] == 'le90' and content['annotations']
    back = inference_detector(load_from_hub(folder), np.zeros((64, 96, 3), np.uint8))
    assert get_box_tensor(back.pred_instances.bboxes).shape[1] == 5

    monkeypatch.setitem(sys.modules, 'mmrotate', None)
    monkeypatch.delitem(sys.modules, 'rope_dense.models.mmrotate')
    with pytest.raises(
        ImportError, match=r'^oriented boxes need onedl-mmrotate: pip install'
    ):
        load_from_hub(folder)


def test_labels_that_cannot_be_read_end_with_file_and_line(
    data: Path, tmp_path: Path
) -> None:
    for split in ('train', 'val'):
        (tmp_path / split / 'labelTxt').mkdir(parents=True)
        (tmp_path / split / 'images').symlink_to(data / split / 'images')
        (tmp_path / split / 'labelTxt' / 'P0.txt').write_text('1 2 3 4 5 6 7 ship 0\n')
    with pytest.raises(UsageError, match=r"P0\.txt, line 1: a corner is 'ship'"):
        load(tmp_path)
