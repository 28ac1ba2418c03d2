"""Each kind of error, made on purpose: found as that kind, with exact counts and costs."""

import copy
from collections import Counter

import numpy as np
import pytest
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from helpers.rows import annotations
from rope_dense.measure.scores import RECALLS
from rope_dense.project.own.detectors import IOU_THRESHOLDS
from rope_dense.report.objects import (
    AREAS,
    ERRORS,
    KINDS,
    THRESHOLDS,
    Matches,
    best_threshold,
    coco_aps,
    confusion,
    error_costs,
    fix_errors,
    match_truth,
    mean_ap,
    objects_of,
)

OBJECT = [10, 10, 20, 20]
CASES = {  # predictions (box, class, score) for one object of class 1 at OBJECT: their kinds
    'right': ([(OBJECT, 1, 0.9)], {'right': 1}),
    'class': ([(OBJECT, 2, 0.9)], {'class': 1}),
    'localisation': ([([20, 10, 20, 20], 1, 0.9)], {'localisation': 1}),  # IoU 1/3
    'both': ([([20, 10, 20, 20], 2, 0.9)], {'both': 1, 'missed': 1}),
    'duplicate': ([(OBJECT, 1, 0.9), (OBJECT, 1, 0.8)], {'right': 1, 'duplicate': 1}),
    'background': (
        [(OBJECT, 1, 0.9), ([60, 60, 9, 9], 1, 0.8)],
        {'right': 1, 'background': 1},
    ),
    'missed': ([], {'missed': 1}),
}


def match(
    truth: list[dict],
    predictions: list[dict],
    masks: bool = False,
    limit: int | None = None,
) -> Matches:
    return match_truth(objects_of(truth), objects_of(predictions), masks, limit)


def kinds(matches: Matches) -> Counter:
    numbers = Counter(KINDS[kind] for kind in matches.kinds)
    return numbers + Counter(missed=int(matches.missed.sum()))


@pytest.mark.parametrize('name', CASES)
def test_kind_of_a_made_error(name: str) -> None:
    predictions, expected = CASES[name]
    matches = match(annotations([(OBJECT, 1)]), annotations(predictions))
    assert kinds(matches) == expected
    assert mean_ap(*fix_errors(matches, ERRORS)) == 1


def all_cases() -> tuple[list[dict], list[dict]]:
    """Each case once, on an image of its own."""
    truth = []
    predictions = []
    for image, (items, _) in enumerate(CASES.values()):
        truth += annotations([(OBJECT, 1)], image, start=image + 1)
        predictions += annotations(items, image)
    return truth, predictions


def test_all_cases_together_are_counted_and_fixed() -> None:
    matches = match(*all_cases())
    expected = sum((Counter(numbers) for _, numbers in CASES.values()), Counter())
    assert kinds(matches) == expected
    assert 0 < mean_ap(*fix_errors(matches)) < 1
    assert mean_ap(*fix_errors(matches, ERRORS)) == 1


def test_each_fix_alone_gains_and_is_the_cost() -> None:
    matches = match(*all_cases())
    gains = error_costs(matches)
    assert set(gains) == set(ERRORS)
    assert min(gains.values()) >= 0
    assert gains['class'] > 0
    assert gains['localisation'] > 0
    assert gains['missed'] > 0


OTHER = [60, 60, 9, 9]


@pytest.mark.parametrize(
    'errors, expected',
    [
        ([(OTHER, 2, 0.8)], {'class': 50 / 101}),
        ([([64, 60, 9, 9], 1, 0.8)], {'localisation': 50 / 101}),  # IoU 5/13
        # Class 2 has no truth.
        ([([64, 60, 9, 9], 2, 0.8)], {'both': 0, 'missed': 50 / 101}),
        ([(OBJECT, 1, 0.8), (OTHER, 1, 0.7)], {'duplicate': 50 / 3 / 101}),
        ([([30, 70, 9, 9], 1, 0.8), (OTHER, 1, 0.7)], {'background': 50 / 3 / 101}),
    ],
)
def test_cost_of_each_kind_beside_a_right_prediction(
    errors: list,
    expected: dict,
) -> None:
    """At half of the recalls, precision is 0 or, with a wrong prediction before, 2/3."""
    truth = annotations([(OBJECT, 1), (OTHER, 1)])
    gains = error_costs(match(truth, annotations([(OBJECT, 1, 0.9), *errors])))
    assert gains == pytest.approx(dict.fromkeys(ERRORS, 0) | expected)


def test_cost_of_one_missed_object_of_two() -> None:
    """Recall ends at 1/2: 51 of the 101 recalls have precision 1."""
    truth = annotations([(OBJECT, 1), ([60, 60, 9, 9], 1)])
    matches = match(truth, annotations([(OBJECT, 1, 0.9)]))
    assert mean_ap(*fix_errors(matches)) == pytest.approx(51 / 101)
    costs = dict.fromkeys(ERRORS, 0) | {'missed': 50 / 101}
    assert error_costs(matches) == pytest.approx(costs)


def test_an_object_is_won_once_by_fixed_errors() -> None:
    """Two wrong places for one object: the better one finds it, the other is removed."""
    near = [20, 10, 20, 20]
    found = annotations([(near, 1, 0.9), (near, 1, 0.8)])
    matches = match(annotations([(OBJECT, 1)]), found)
    assert kinds(matches) == {'localisation': 2}
    outcomes, counts = fix_errors(matches, ('localisation',))
    assert outcomes.score.tolist() == [0.9]
    assert outcomes.right.tolist() == [True]
    assert counts == {1: 1}


def test_predictions_in_a_crowd_are_ignored() -> None:
    crowd = annotations([([0, 0, 90, 90], 1)])
    crowd[0]['iscrowd'] = 1
    matches = match(crowd, annotations([(OBJECT, 1, 0.9), ([40, 40, 9, 9], 1, 0.8)]))
    assert kinds(matches) == {'ignored': 2}


def test_confusion_counts_every_object_and_prediction_once() -> None:
    truth, predictions = all_cases()
    table = confusion(match(truth, predictions), 2)
    # 3 found, 1 taken for class 2, 3 not found; of class 1: localisation, duplicate, background.
    np.testing.assert_array_equal(table, [[3, 1, 3], [0, 0, 0], [3, 1, 0]])


def test_best_threshold_is_the_score_with_the_best_f1() -> None:
    other = [60, 10, 20, 20]
    nothing = [10, 60, 9, 9]
    truth = annotations([(OBJECT, 1), (other, 1)])
    found = annotations([(OBJECT, 1, 0.9), (other, 1, 0.7), (nothing, 1, 0.4)])
    outcomes, counts = fix_errors(match(truth, found))
    best = best_threshold(outcomes, counts[1])
    assert best == dict(
        threshold=0.7,
        f1=1.0,
        precision=1.0,
        recall=1.0,
    )


def test_r8_perfect_boxes_of_a_full_image() -> None:
    """The report counted 100 boxes, and its threshold dropped the others."""
    boxes = []
    for place in range(300):
        boxes.append([12 * (place % 20), 12 * (place // 20), 10, 10])
    scores = np.linspace(0.9, 0.1, 300).tolist()
    found = annotations([(box, 1, x) for box, x in zip(boxes, scores, strict=True)])
    truth = annotations([(box, 1) for box in boxes])
    for limit, right in ((None, 300), (1500, 300), (200, 200)):
        matches = match(truth, found, limit=limit)
        assert kinds(matches) == Counter(right=right, missed=300 - right)
        outcomes, counts = fix_errors(matches)
        best = best_threshold(outcomes, counts[1])
        assert best['threshold'] == pytest.approx(scores[right - 1])
        assert (coco_aps(matches, 1)[0, 0] == 1) == (right == 300)


@pytest.mark.parametrize('limit', [100, 120])
@pytest.mark.parametrize('masks', [False, True], ids=['boxes', 'masks'])
@pytest.mark.parametrize('seed', range(2))
def test_ap_is_coco_s(seed: int, masks: bool, limit: int) -> None:
    """With crowds, of all sizes, and with more predictions than count."""
    generator = np.random.default_rng(seed)
    truth = []
    predictions = []
    for image in range(8):
        places = generator.random((7, 2)) * 60
        boxes = np.hstack([places, 3 + generator.random((7, 2)) * 120])
        labels = [1, 2, 3, 1, 2, 3, 1]
        truth += annotations(zip(boxes.tolist(), labels, strict=True), image)
        near = boxes[generator.integers(7, size=400)]
        near = (near + generator.normal(size=(400, 4)) * 3).clip(1, 180).tolist()
        scores = generator.random(400).tolist()
        guesses = generator.integers(1, 4, 400).tolist()
        predictions += annotations(zip(near, guesses, scores, strict=True), image)
    for number, item in enumerate(truth):
        item.update(id=number + 1, iscrowd=int(number % 9 == 0))
    if masks:
        for item in (*truth, *predictions):
            left, top, width, height = map(round, item.pop('bbox'))
            drawn = np.zeros((200, 200), np.uint8, order='F')
            drawn[top : top + height, left : left + width] = 1
            drawn[top + height // 2, left] = 0
            item['segmentation'] = coco_mask.encode(drawn)
            item['area'] = float(coco_mask.area(item['segmentation']))
    matches = match(truth, predictions, masks, limit)
    assert len(matches.predictions) < len(predictions) * limit / 110
    aps = coco_aps(matches, 3)
    expected = coco_s(truth, predictions, masks, limit)
    np.testing.assert_allclose(aps, expected, atol=1e-12)
    assert mean_ap(*fix_errors(matches)) == pytest.approx(aps[-1].mean())
    assert mean_ap(*fix_errors(matches, ERRORS)) == 1


def test_of_equal_overlaps_the_last_object_is_found() -> None:
    """As in pycocotools: the second prediction finds its object taken."""
    truth = annotations([([0, 0, 20, 10], 1), ([10, 0, 20, 10], 1)])
    guesses = [([5, 0, 20, 10], 1, 0.9), ([10, 0, 20, 10], 1, 0.8)]
    predictions = annotations(guesses)
    for number, item in enumerate(truth):
        item['id'] = number + 1
    aps = coco_aps(match(truth, predictions), 3)
    expected = coco_s(truth, predictions, False, 100)
    np.testing.assert_allclose(aps, expected, atol=1e-12)
    assert 0 < aps[-1, 0] < 1


def test_limits_are_coco_s() -> None:
    params = COCOeval(iouType='bbox').params
    assert AREAS.tolist() == [list(limits) for limits in params.areaRng]
    assert THRESHOLDS.tolist() == params.iouThrs.tolist()
    assert RECALLS.tolist() == params.recThrs.tolist()
    assert pytest.approx(THRESHOLDS.tolist(), abs=1e-12) == IOU_THRESHOLDS


def coco_s(
    truth: list[dict],
    predictions: list[dict],
    masks: bool,
    limit: int,
) -> np.ndarray:
    """AP by size and AP50 of each class, by pycocotools."""
    coco = COCO()
    images = [
        dict(
            id=image,
            width=200,
            height=200,
        )
        for image in range(8)
    ]
    classes = [dict(id=number, name=str(number)) for number in (1, 2, 3)]
    coco.dataset = dict(
        images=images,
        annotations=truth,
        categories=classes,
    )
    coco.createIndex()
    results = coco.loadRes(copy.deepcopy(predictions))
    evaluation = COCOeval(coco, results, 'segm' if masks else 'bbox')
    evaluation.params.maxDets = [limit]
    evaluation.evaluate()
    evaluation.accumulate()
    precision = evaluation.eval['precision'][..., -1]  # [IoU, recall, class, size]
    precision = np.where(precision < 0, np.nan, precision)
    return np.concatenate([precision.mean((0, 1)).T, precision[:1, :, :, 0].mean(1)])


def test_objects_are_the_annotations_that_they_were() -> None:
    items = annotations([(OBJECT, 2, 0.9), ([1.5, 2, 3, 4], 1)], image=7, start=3)
    items[0]['segmentation'] = dict(size=[8, 8], counts='abc')
    first, second = objects_of(items)
    assert first.item()[:3] == (3, 7, 2)
    assert second['id'] == 4
    assert first['box'].tolist() == OBJECT
    assert (first['score'], second['area']) == (0.9, 12)
    assert first['mask'] == items[0]['segmentation']
    assert second['mask'] is None
    assert np.isnan(second['score'])
    assert not len(objects_of([]))
    (bare,) = objects_of([dict(category_id=1)], image=3)  # without a box
    assert bare['image'] == 3
    assert not bare['box'].any()
