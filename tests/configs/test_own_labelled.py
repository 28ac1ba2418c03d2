"""Classes that images are not labelled for are no background there, in any recipe with objects."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.registry import DATASETS, METRICS, DefaultScope
from mmengine.runner import Runner
from mmengine.structures import InstanceData
from PIL import Image
from torch import Tensor, nn

from rope_dense.models.partial_labels import PartialBBoxHead, take_unlabelled
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense.utils.errors import UsageError

SIZE = 96
BOXES = {'north': (0, (10, 20, 60, 40)), 'south': (1, (30, 20, 90, 70))}  # class, box
LABELLED = ['north=cow', 'south=dog,', 'cow']  # dogs are not labelled in the north
TASKS = ['detection', 'realtime', 'realtime_masks', 'oriented']


@pytest.fixture(scope='module')
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """YOLO's labels of a cow in the north, and of a dog in the south."""
    folder = tmp_path_factory.mktemp('labelled')
    for split in ('train', 'val'):
        for part, (label, (x1, y1, x2, y2)) in BOXES.items():
            for kind in ('images', 'labels'):
                (folder / kind / split / part).mkdir(parents=True)
            noise = np.random.default_rng(label).integers(255, size=(SIZE, SIZE, 3))
            picture = Image.fromarray(noise.astype(np.uint8))
            picture.save(folder / 'images' / split / part / f'{split}_{part}.png')
            corners = np.array([x1, y1, x2, y1, x2, y2, x1, y2]) / SIZE
            text = ' '.join(map(str, [label, *corners]))
            (folder / 'labels' / split / part / f'{split}_{part}.txt').write_text(text)
    (folder / 'data.yaml').write_text('names: [cow, dog]\n')
    return folder


def own_config(data: Path, task: str, **more: object) -> Config:
    if task == 'oriented':
        pytest.importorskip('mmrotate')
    own = dict(data_root=data, epochs=3, batch_size=2, size=SIZE, backbone='tiny')
    own |= dict(weights=None, augment='none', labelled=LABELLED) | more
    cfg = load_config(task, own=own)
    cfg.train_dataloader.num_workers = 0
    cfg.train_dataloader.persistent_workers = False
    return cfg


def class_biases(detector: nn.Module) -> list[Tensor]:
    """The biases of the layers that name the classes, with gradients."""
    found = []
    for name, param in detector.named_parameters():
        is_class = len(param) in (2, 3) and 'rpn' not in name and param.dim() == 1
        if is_class and name.endswith('bias') and param.grad is not None:
            found.append(param.grad)
    return found


@pytest.mark.parametrize('task', TASKS)
def test_an_unlabelled_class_is_not_learned(task: str, data: Path) -> None:
    cfg = own_config(data, task)
    assert (
        'training images label (not learned in the others): dog (1 of 2)'
        in cfg.own_data
    )
    detector = random_model(cfg).train()
    with DefaultScope.overwrite_default_scope('mmdet'):
        batch = next(iter(Runner.build_dataloader(cfg.train_dataloader, seed=0)))
        batch = detector.data_preprocessor(batch, training=True)
        samples = batch['data_samples']
        (north,) = [i for i, x in enumerate(samples) if 'north' in x.img_path]
        images = batch['inputs'][north : north + 1]
        seen = []
        for is_partial in (True, False):
            sample = samples[north].clone()
            sample.gt_instances = sample.gt_instances[:0]
            if not is_partial:
                sample.ignored_instances = sample.ignored_instances[:0]
            torch.manual_seed(0)
            detector.zero_grad()
            losses = detector.loss(images, [sample])
            detector.parse_losses(losses)[0].backward()
            seen.append(class_biases(detector))
    assert len(seen[0]) == len(seen[1]) > 0
    for partial, whole in zip(*seen, strict=True):
        assert partial[1] == 0 and partial[0] != 0  # neither dogs nor no dogs
        assert whole[1] != 0


def test_mask_rcnn_says_nothing_of_unlabelled_classes(data: Path) -> None:
    """The background of an image that is not labelled for class 1; of no other one."""
    model = own_config(data, 'instance').model
    kinds = model.type, model.roi_head.bbox_head.type
    assert kinds == ('PartialMaskRCNN', 'PartialBBoxHead')
    with DefaultScope.overwrite_default_scope('mmdet'):
        head = PartialBBoxHead(
            num_classes=2, in_channels=4, roi_feat_size=1, fc_out_channels=4
        )
    head.unlabelled = torch.tensor([[False, True], [False, False]])
    logits = torch.zeros(4, 3, requires_grad=True)
    rois = torch.tensor(
        [[0.0, 0, 0, 9, 9], [0, 0, 0, 9, 9], [1, 0, 0, 9, 9], [0, 0, 0, 9, 9]]
    )
    labels = torch.tensor([2, 0, 2, 1])
    boxes = torch.zeros(4, 4)
    given = logits, torch.zeros(4, 8), rois, labels, torch.ones(4), boxes, boxes
    losses = head.loss(*given)
    losses['loss_cls'].backward()
    assert (logits.grad != 0).tolist() == [[True, False, True]] + [[True] * 3] * 3
    assert logits.grad[0].tolist() == [
        0.125,
        0,
        -0.125,
    ]  # of two classes, by four boxes
    (head.unlabelled, logits.grad) = (torch.zeros(2, 2, dtype=torch.bool), None)
    head.loss(*given)['loss_cls'].backward()
    assert (logits.grad != 0).all()


def test_classes_that_an_image_ignores_as_a_whole() -> None:
    boxes = torch.tensor([[0.0, 0, 80, 60], [5, 5, 30, 30], [0, 0.5, 79.5, 60]])
    sample = DetDataSample(metainfo=dict(img_shape=(60, 80)))
    ignored = InstanceData(bboxes=boxes, labels=torch.tensor([2, 1, 0]))
    sample.ignored_instances = ignored
    assert take_unlabelled(sample, 3).tolist() == [True, False, True]
    assert sample.ignored_instances.labels.tolist() == [1]
    sample.ignored_instances = ignored
    ignored.labels[0] = 1
    assert take_unlabelled(sample, 2).all()  # nothing is learned
    assert len(sample.ignored_instances) == 3


def scores_with(cfg: Config, extra: int) -> float:
    """mAP of the labels as predictions, and one more of a class in the north."""
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        metric = METRICS.build(cfg.val_evaluator)
        dataset = DATASETS.build(cfg.val_dataloader.dataset)
    metric.dataset_meta = dataset.metainfo
    is_rotated = 'DOTA' in type(metric).__name__
    for index in range(len(dataset)):
        info = dataset.get_data_info(index)
        (part,) = [part for part in BOXES if part in info['img_path']]
        label, box = BOXES[part]
        rows = [(label, box, 0.8)]
        if part == 'north':
            rows.append((extra, (5, 50, 50, 90), 0.9))
        boxes = torch.tensor([row[1] for row in rows]).float()
        truth = boxes[:1]
        ignored = torch.tensor([[0.0, 0, SIZE, SIZE]])
        if is_rotated:
            boxes, truth, ignored = map(with_angle, (boxes, truth, ignored))
        found = dict(
            bboxes=boxes,
            labels=torch.tensor([row[0] for row in rows]),
            scores=torch.tensor([row[2] for row in rows]),
        )
        sample = dict(
            img_id=info['img_id'],
            ori_shape=(SIZE, SIZE),
            img_path=info['img_path'],
            pred_instances=found,
            gt_instances=dict(bboxes=truth, labels=torch.tensor([label])),
            ignored_instances=dict(
                bboxes=ignored[: part == 'north'],
                labels=torch.tensor([1])[: part == 'north'],
            ),
        )
        metric.process({}, [sample])
    return next(iter(metric.evaluate(len(dataset)).values()))


def with_angle(boxes: Tensor) -> Tensor:
    near, far = boxes.split(2, 1)
    return torch.cat([(near + far) / 2, far - near, torch.zeros(len(boxes), 1)], 1)


@pytest.mark.parametrize('task', ['realtime', 'oriented'])
def test_predictions_count_where_their_class_is_labelled(task: str, data: Path) -> None:
    cfg = own_config(data, task)
    assert scores_with(cfg, extra=1) == pytest.approx(1, abs=1e-3)
    assert scores_with(cfg, extra=0) < 0.8
    if task == 'realtime':  # the file says what is ignored
        assert scores_with(own_config(data, task, labelled=None), extra=1) < 0.8


@pytest.mark.parametrize(
    'labelled, says',
    [
        (['cow'], r'give PART=CLASS,CLASS'),
        (['north='], r'give PART=CLASS,CLASS'),
        (
            ['north=cow', 'sheep'],
            r'own.labelled: north has sheep, the classes are cow, dog',
        ),
        (['east=cow'], r'own.labelled: east is no folder or file in'),
        (['north=cow', 'val=cow'], r'own.labelled has it by north and by val'),
    ],
)
def test_mistakes(data: Path, labelled: list[str], says: str) -> None:
    with pytest.raises(Exception, match=says):
        own_config(data, 'realtime', labelled=labelled)


def test_pixels_of_other_classes_are_ignored(tmp_path: Path) -> None:
    """Of a set that labels cows alone, the background may be dogs."""
    for split, part in product(('train', 'val'), BOXES):
        for kind, pixels in (('images', np.zeros((32, 32, 3))), ('masks', np.eye(32))):
            folder = tmp_path / kind / split / part
            folder.mkdir(parents=True)
            picture = Image.fromarray(
                (pixels * (1 + (part == 'south'))).astype(np.uint8)
            )
            picture.save(folder / f'{split}_{part}.png')
    (tmp_path / 'classes.txt').write_text('background\ncow\ndog\n')
    own = dict(data_root=tmp_path, backbone='tiny', weights=None, size=32)
    with pytest.raises(
        UsageError, match=r'own.labelled: north has sheep, the classes are back'
    ):
        load_config('semantic', own=own | dict(labelled=['north=sheep']))
    with pytest.raises(UsageError, match=r'own.labelled: nroth is no folder or file'):
        load_config('semantic', own=own | dict(labelled=['nroth=cow']))
    cfg = load_config('semantic', own=own | dict(labelled=['north=cow']))
    assert '1 of 2 images (north) label cow alone' in cfg.own_data
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.dataset.pipeline = [dict(type='LoadClassMask')]
        with DefaultScope.overwrite_default_scope('mmseg'):
            dataset = DATASETS.build(loader.dataset)
        for item in dataset:
            seen = np.unique(item['gt_seg_map']).tolist()
            assert seen == ([1, 255] if 'north' in item['img_path'] else [0, 2])
