"""CocoMetric has pycocotools' figures with faster-coco-eval, too, and one limit of boxes."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from rope_dense.project.own.fit import set_box_limit

HEIGHT, WIDTH = 240, 320


def boxes_of(rng: np.random.Generator, count: int) -> np.ndarray:
    """Boxes (left, top, width, height) of all sizes, inside of the image."""
    corner = rng.integers(0, (WIDTH // 2, HEIGHT // 2), (count, 2))
    size = rng.integers(16, 120, (count, 2)) // rng.choice((1, 4), (count, 1))
    return np.concatenate([corner, size], 1)


def mask_of(box: np.ndarray) -> np.ndarray:
    left, top, width, height = box
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[top : top + height, left : left + width] = 1
    return mask


@pytest.fixture
def annotations(tmp_path: Path) -> Path:
    """Objects of three classes in six images, some of them crowds, and an image with none."""
    rng, objects = np.random.default_rng(0), []
    for image in range(1, 7):
        for box in boxes_of(rng, 8):
            left, top, width, height = map(int, box)
            right, bottom = left + width, top + height
            outline = [left, top, right, top, right, bottom, left, bottom]
            crowd = int(rng.random() < 0.1)
            counts = [left * HEIGHT, width * HEIGHT, (WIDTH - left - width) * HEIGHT]
            objects.append(
                dict(
                    id=len(objects) + 1,
                    image_id=image,
                    category_id=int(rng.integers(1, 4)),
                    bbox=[left, top, width, height],
                    area=width * height,
                    iscrowd=crowd,
                    segmentation=dict(size=[HEIGHT, WIDTH], counts=counts)
                    if crowd
                    else [outline],
                )
            )
    images = [
        dict(id=i, file_name=f'{i}.jpg', height=HEIGHT, width=WIDTH)
        for i in range(1, 8)
    ]
    categories = [dict(id=i, name=f'class {i}') for i in range(1, 4)]
    path = tmp_path / 'a.json'
    path.write_text(
        json.dumps(dict(images=images, annotations=objects, categories=categories))
    )
    return path


def predictions(file: Path) -> list[dict]:
    """Objects of the file, moved, some with another class, some twice, with equal scores."""
    rng, content = np.random.default_rng(1), json.loads(file.read_text())
    samples = []
    for image in content['images']:
        boxes, labels = [], []
        for found in content['annotations']:
            if found['image_id'] == image['id']:
                for _ in range(rng.integers(0, 4)):
                    boxes.append(
                        np.maximum(np.array(found['bbox']) + rng.integers(-2, 3, 4), 1)
                    )
                    wrong = rng.random() < 0.2
                    labels.append(
                        rng.integers(3) if wrong else found['category_id'] - 1
                    )
        boxes += list(boxes_of(rng, 2))
        labels += [0, 1]
        corners = np.array(boxes, np.float32)
        corners[:, 2:] += corners[:, :2]
        found = dict(
            bboxes=torch.from_numpy(corners),
            labels=torch.tensor(np.array(labels, np.int64)),
            scores=torch.from_numpy(rng.random(len(boxes)).round(1).astype(np.float32)),
            masks=torch.from_numpy(
                np.stack([mask_of(box) for box in boxes]).astype(bool)
            ),
        )
        samples.append(
            dict(img_id=image['id'], ori_shape=(HEIGHT, WIDTH), pred_instances=found)
        )
    return samples


def test_the_figures_are_equal(
    annotations: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip('faster_coco_eval')
    pytest.importorskip('mmdet')
    from mmdet.evaluation.metrics import coco_metric

    from rope_dense.project.checks.coco_eval import use_one_limit

    def figures() -> dict:
        results: dict = {}
        for metric in (['bbox', 'segm'], 'proposal'):
            evaluator = coco_metric.CocoMetric(
                ann_file=str(annotations), metric=metric, classwise=metric != 'proposal'
            )
            evaluator.dataset_meta = dict(classes=('class 1', 'class 2', 'class 3'))
            evaluator.process({}, samples)
            results |= evaluator.evaluate(len(samples))
        return results

    samples = predictions(annotations)
    expected = figures()
    monkeypatch.setattr(
        coco_metric, 'COCOeval', coco_metric.COCOeval
    )  # as it was, afterwards
    assert use_one_limit()
    assert coco_metric.COCOeval.__module__.startswith('faster_coco_eval')
    actual = figures()
    assert actual == pytest.approx(expected, abs=0, nan_ok=True)
    assert (
        len(expected) == 2 * 6 + 3 + 6
    )  # of boxes and masks; of each class; of proposals
    assert not [name for name, value in expected.items() if not 0 < value <= 1]


@pytest.fixture(params=['faster_coco_eval', 'pycocotools'])
def evaluation(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> type[COCOeval]:
    """The class that ``CocoMetric`` evaluates with, if a package is the best there is."""
    pytest.importorskip('mmdet')
    pytest.importorskip(request.param)
    from mmdet.evaluation.metrics import coco_metric

    from rope_dense.project.checks import coco_eval

    monkeypatch.setattr(coco_metric, 'COCOeval', coco_metric.COCOeval)
    has_faster = request.param == 'faster_coco_eval'
    if not has_faster:
        monkeypatch.setattr(coco_eval, 'has_faster_coco', lambda: False)
    assert coco_eval.use_one_limit() == has_faster
    assert coco_metric.COCOeval.__module__.startswith('faster') == has_faster
    return coco_metric.COCOeval


def crowded(count: int) -> COCO:
    """Objects of three classes in an image."""
    rng = np.random.default_rng(count)
    objects = []
    labels = rng.integers(1, 4, count).tolist()
    for box, label in zip(boxes_of(rng, count).tolist(), labels, strict=True):
        item = dict(id=len(objects) + 1, image_id=1, category_id=label)
        objects.append(item | dict(bbox=box, area=box[2] * box[3], iscrowd=0))
    coco = COCO()
    images = [dict(id=1, height=HEIGHT, width=WIDTH)]
    classes = [dict(id=i, name=f'class {i}') for i in (1, 2, 3)]
    coco.dataset = dict(images=images, annotations=objects, categories=classes)
    coco.createIndex()
    return coco


def limit_of(most: int) -> list[int]:
    """The limits of boxes in the evaluator of own data."""
    metric = dict(type='CocoMetric')
    set_box_limit(metric, most)
    return list(metric['proposal_nums'])


@pytest.mark.parametrize('count', [8, 500])
def test_one_limit_of_boxes_in_all_figures(
    count: int, evaluation: type[COCOeval]
) -> None:
    """B13, N6: the mean counted 100 boxes with pycocotools, AP50 beside it 1,000."""
    truth = crowded(count)
    rng = np.random.default_rng(0)
    found = []
    for item in truth.dataset['annotations']:
        box = np.maximum(np.array(item['bbox']) + rng.integers(-4, 5, 4), 1).tolist()
        one = dict(image_id=item['image_id'], category_id=item['category_id'])
        found.append(one | dict(bbox=box, score=round(rng.random(), 3)))
    limits = limit_of(count)
    assert limits[-1] == max(100, 5 * count)
    actual = evaluation(truth, truth.loadRes(copy.deepcopy(found)), 'bbox')
    expected = COCOeval(truth, truth.loadRes(found), 'bbox')
    expected.params.maxDets = limits[-1:]
    actual.params.maxDets = limits
    for one in (actual, expected):
        one.evaluate()
        one.accumulate()
    actual.summarize()
    precision = expected.eval['precision'][..., -1]  # [IoU, recall, class, size]
    parts = [precision[..., 0], precision[0, ..., 0], precision[5, ..., 0]]
    parts += [precision[..., size] for size in (1, 2, 3)]
    known = [part[part > -1].mean() if (part > -1).any() else -1 for part in parts]
    np.testing.assert_allclose(actual.stats[:6], known, atol=1e-12, rtol=0)
    assert 0.1 < known[0] < 0.9


def test_perfect_boxes_of_a_full_image(evaluation: type[COCOeval]) -> None:
    truth = crowded(400)
    scores = np.linspace(1, 0.1, len(truth.dataset['annotations'])).tolist()
    found = []
    for item, score in zip(truth.dataset['annotations'], scores, strict=True):
        found.append(dict(item, score=score))
    actual = evaluation(truth, truth.loadRes(found), 'bbox')
    actual.params.maxDets = limit_of(400)
    actual.evaluate()
    actual.accumulate()
    actual.summarize()
    assert actual.stats[:3].tolist() == [1, 1, 1]
