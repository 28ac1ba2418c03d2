"""Ignored objects are no background in the recipe of any task with objects, without tiles, too."""

from __future__ import annotations

import copy
import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.registry import DefaultScope
from mmengine.runner import Runner
from mmengine.structures import InstanceData
from PIL import Image

from rope_dense.models.ignoring_assigner import IgnoringAssigner
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model

SIZE = 96
CLASSES = ('loss_mal', 'loss_cls', 'enc_loss_cls')
EVERYWHERE = [0, 0, SIZE, 0, SIZE, SIZE, 0, SIZE]


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images with an object, and an ignored one over all of it."""
    folder = tmp_path_factory.mktemp('ignored')
    for split, word in (('train', 'iscrowd'), ('val', 'ignore')):
        images = []
        annotations = []
        (folder / 'images' / split).mkdir(parents=True)
        for number in range(1, 3):
            name = f'{split}{number}.png'
            noise = np.random.default_rng(number).integers(255, size=(SIZE, SIZE, 3))
            picture = Image.fromarray(noise.astype(np.uint8))
            picture.save(folder / 'images' / split / name)
            images.append(dict(id=number, file_name=name, width=SIZE, height=SIZE))
            corners = [30, 30, 70, 30, 70, 60, 30, 60]
            for box, outline, more in (
                ([30, 30, 40, 30], corners, {}),
                ([0, 0, SIZE, SIZE], EVERYWHERE, {word: 1}),
            ):
                about = dict(id=len(annotations) + 1, image_id=number, category_id=1)
                place = dict(bbox=box, area=box[2] * box[3], segmentation=[outline])
                annotations.append(about | place | more)
        labels = dict(images=images, annotations=annotations)
        labels['categories'] = [dict(id=1, name='cow')]
        (folder / 'annotations').mkdir(exist_ok=True)
        (folder / 'annotations' / f'{split}.json').write_text(json.dumps(labels))
    return folder


@pytest.mark.parametrize(
    'task', ['detection', 'instance', 'realtime', 'realtime_masks', 'oriented']
)
def test_ignored_objects_are_no_background(task: str, data: Path) -> None:
    """The classes of an image of which all is ignored cost nothing but for its objects."""
    if task == 'oriented':
        pytest.importorskip('mmrotate')
    own = dict(data_root=data, epochs=3, batch_size=2, size=SIZE, backbone='tiny')
    cfg = load_config(task, own=own | dict(weights=None, augment='none'))
    cfg.train_dataloader.num_workers = 0
    cfg.train_dataloader.persistent_workers = False
    detector = random_model(cfg).train()
    with DefaultScope.overwrite_default_scope('mmdet'):
        batch = next(iter(Runner.build_dataloader(cfg.train_dataloader, seed=0)))
    batch = detector.data_preprocessor(batch, training=True)
    costs = {}
    for number, is_said in product(range(2), range(2)):
        samples = copy.deepcopy(batch['data_samples'])
        for sample in samples:
            assert len(sample.ignored_instances) == len(sample.gt_instances) == 1
            sample.gt_instances = sample.gt_instances[:number]
            sample.ignored_instances = sample.ignored_instances[:is_said]
        torch.manual_seed(0)
        with torch.no_grad():
            losses = detector.loss(batch['inputs'], samples)
        _, logged = detector.parse_losses(losses)
        named = {k: v for k, v in logged.items() if k.split('.')[-1] in CLASSES}
        is_left_out = 'loss_cls' not in losses and 'loss_mal' not in losses
        assert cfg.get('find_unused_parameters', False) >= is_left_out
        costs[number, is_said] = sum(map(float, named.values()))
    assert costs[0, 0] > 1e-3 and costs[0, 1] == 0
    assert costs[1, 0] > costs[1, 1] > 0  # the object is learned all the same


def test_boxes_in_ignored_objects_are_assigned_to_objects_or_nothing() -> None:
    """Also in an image without objects, where mmdet's assigner takes them for background."""
    boxes = torch.tensor([[0.0, 0, 9, 9], [20, 0, 29, 9], [40, 0, 49, 9]])
    ignored = InstanceData(bboxes=torch.tensor([[0.0, 0, 35, 20]]))
    truth = InstanceData(bboxes=boxes[:1], labels=torch.tensor([2]))
    thresholds = dict(pos_iou_thr=0.5, neg_iou_thr=0.5, ignore_iof_thr=0.5)
    with DefaultScope.overwrite_default_scope('mmdet'):
        assigner = IgnoringAssigner(**thresholds)
    for number, expected in ((1, [1, -1, 0]), (0, [-1, -1, 0])):
        given = InstanceData(priors=boxes), truth[:number]
        assert assigner.assign(*given, ignored).gt_inds.tolist() == expected
        plain = assigner.assign(*given, ignored[:0]).gt_inds
        assert plain.tolist() == [number, 0, 0]
