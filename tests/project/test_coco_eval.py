"""CocoMetric has the same figures with faster-coco-eval as with pycocotools."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from rope_dense.project.checks.data import use_faster_coco_eval

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
    assert use_faster_coco_eval()
    assert coco_metric.COCOeval.__module__.startswith('faster_coco_eval')
    actual = figures()
    assert actual == pytest.approx(expected, abs=0, nan_ok=True)
    assert (
        len(expected) == 2 * 6 + 3 + 6
    )  # of boxes and masks; of each class; of proposals
    assert not [name for name, value in expected.items() if not 0 < value <= 1]


def test_nothing_changes_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr('rope_dense.project.checks.data.find_spec', lambda name: None)
    assert not use_faster_coco_eval()
