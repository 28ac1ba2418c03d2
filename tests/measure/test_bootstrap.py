"""Resampled metrics against metrics of resampled images, and the rule that chooses."""

import contextlib
import io
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from rope_dense.measure.per_image import (
    Sample,
    coco_precision,
    depth_error,
    mean_iou,
    top_one,
)
from rope_dense.measure.scores import (
    Difference,
    ImageMeans,
    choose_setting,
    compare_settings,
    draw_images,
)

CLASSES = ('cat', 'dog', 'bird')
IMAGES = 6
SIDE = 100


def boxes_of(rng: np.random.Generator, count: int) -> np.ndarray:
    """Boxes [count, 4] of COCO: left, top, width, height."""
    places = rng.integers(0, 50, (count, 2))
    return np.concatenate([places, rng.integers(8, 50, (count, 2))], 1)


def detections(kind: str) -> list[tuple[dict, dict]]:
    """Truth and predictions of images as ``CocoMetric`` keeps them.

    Scores of different images are equal.
    """
    rng = np.random.default_rng(2)
    results = []
    for image in range(IMAGES):
        true = boxes_of(rng, 5)
        labels = rng.integers(0, 2 if image else 3, 5)  # birds in one image only
        moved = true + rng.integers(-3, 4, true.shape)
        found = np.concatenate([moved, moved[:2], boxes_of(rng, 3)]).clip(1)
        guesses = np.concatenate([labels, labels[:2], rng.integers(0, 3, 3)])
        objects = []
        for box, label in zip(corners(true), labels.tolist(), strict=True):
            objects.append(
                dict(
                    bbox=box,
                    bbox_label=label,
                    ignore_flag=0,
                )
            )
        objects[4]['ignore_flag'] = 1
        prediction = dict(
            img_id=image + 1,
            bboxes=corners(found).astype(float),
            scores=rng.permutation(len(found)) / 10,
            labels=guesses,
        )
        if kind == 'segm':
            for item in objects:
                item['mask'] = mask_of(item['bbox'])
            prediction['masks'] = list(map(mask_of, corners(found)))
        truth = dict(
            width=SIDE,
            height=SIDE,
            img_id=image + 1,
            anns=objects,
        )
        results.append((truth, prediction))
    return results


def corners(boxes: np.ndarray) -> np.ndarray:
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)


def mask_of(box: Sequence[int]) -> dict:
    from pycocotools import mask

    left, top, right, bottom = map(int, box)
    pixels = np.zeros((SIDE, SIDE), np.uint8, order='F')
    pixels[top:bottom, left:right] = 1
    run_lengths = mask.encode(pixels)
    return dict(run_lengths, counts=run_lengths['counts'].decode())


def coco_metric(kind: str):
    metrics = pytest.importorskip('mmdet.evaluation.metrics')
    metric = metrics.CocoMetric(metric=kind)
    metric.dataset_meta = dict(classes=CLASSES)
    return metric


def quiet(compute, *arguments):
    with contextlib.redirect_stdout(io.StringIO()):
        return compute(*arguments)


def repeated(results: Sequence[tuple[dict, dict]], weights: np.ndarray) -> list:
    """Each image as often as it is drawn, with an id of its own."""
    drawn = []
    for (truth, found), weight in zip(results, weights, strict=True):
        for copy in range(int(weight)):
            number = 100 * truth['img_id'] + copy
            drawn.append((dict(truth, img_id=number), dict(found, img_id=number)))
    return drawn


@pytest.mark.parametrize('kind', ['bbox', 'segm'])
def test_precision_is_that_of_repeated_images(
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pycocotools.cocoeval import COCOeval

    results = detections(kind)
    scores = quiet(coco_precision, coco_metric(kind), results)
    weights = np.concatenate([np.ones((1, IMAGES)), draw_images(IMAGES, 5, 3)])
    assert (weights[1:, 0] == 0).any()  # a draw without any bird
    means = []

    class Kept(COCOeval):
        def accumulate(self) -> None:
            super().accumulate()
            precision = self.eval['precision'][:, :, :, 0, 0]
            means.append(precision[precision > -1].mean())

    monkeypatch.setattr('mmdet.evaluation.metrics.coco_metric.COCOeval', Kept)
    for row in weights:
        quiet(coco_metric(kind).compute_metrics, repeated(results, row))
    assert scores.metric(weights) == pytest.approx(np.array(means), abs=1e-12)
    assert scores.value == pytest.approx(means[0])
    assert 0.1 < means[0] < 0.9
    assert scores.name == f'coco/{kind}_mAP'


@pytest.mark.parametrize('limit', [2, 100])
def test_as_many_boxes_count_as_in_a_test(
    limit: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`choose-scaling` and `test` have equal figures, whatever evaluates."""
    metric = coco_metric('bbox')
    from rope_dense.project.checks import coco_eval

    module = 'mmdet.evaluation.metrics.coco_metric.COCOeval'
    metric.proposal_nums = (1, 1, limit)
    value = quiet(coco_precision, metric, detections('bbox')).value
    faster = pytest.importorskip('faster_coco_eval').COCOeval_faster
    for evaluation in (coco_eval.OneLimit, faster):
        monkeypatch.setattr(module, evaluation)
        again = coco_metric('bbox')
        again.proposal_nums = metric.proposal_nums
        found = quiet(again.compute_metrics, detections('bbox'))
        assert found['bbox_mAP'] == round(value, 3)


def test_nothing_is_predicted() -> None:
    results = detections('bbox')
    for _, found in results:
        found['bboxes'] = found['bboxes'][:0]
        found['scores'] = found['scores'][:0]
        found['labels'] = []
    assert quiet(coco_precision, coco_metric('bbox'), results).value == 0


def test_without_objects_nothing_is_compared() -> None:
    results = detections('bbox')
    for truth, _ in results:
        truth['anns'] = []
    scores = quiet(coco_precision, coco_metric('bbox'), results)
    with pytest.raises(ValueError, match='no labels'):
        compare_settings(scores, scores, draw_images(IMAGES, 3, 0))


def test_mean_iou_is_that_of_repeated_images() -> None:
    metrics = pytest.importorskip('mmseg.evaluation.metrics')
    metric = metrics.IoUMetric()
    metric.dataset_meta = dict(classes=CLASSES)
    rng = np.random.default_rng(0)
    for image in range(IMAGES):  # birds in the first one only
        maps = torch.from_numpy(rng.integers(0, 2 if image else 3, (2, 1, 8, 8)))
        label, found = maps
        sample = dict(gt_sem_seg=dict(data=label), pred_sem_seg=dict(data=found))
        metric.process({}, [sample])
    weights = draw_images(IMAGES, 5, 3)
    values = mean_iou(metric, metric.results).metric(weights)
    for row, actual in zip(weights, values, strict=True):
        drawn = [metric.results[i] for i in np.repeat(range(IMAGES), row.astype(int))]
        expected = metric.compute_metrics(drawn)['mIoU']
        assert expected == pytest.approx(actual, abs=0.0051)


def test_means_are_those_of_repeated_images() -> None:
    from research.image_folder import TopKAccuracy

    metric = TopKAccuracy(topk=(1, 2))
    right = [[True, True], [False, True], [False, False], [True, True]]
    scores = top_one(metric, right)
    assert scores.name == 'accuracy/top1'
    assert scores.value == 50
    weights = np.array([[2.0, 1, 0, 1], [0, 4, 0, 0]])
    assert scores.metric(weights).tolist() == [75, 0]
    depths = [(torch.zeros(4), torch.full((4,), float(i))) for i in range(3)]
    error = depth_error(metric, depths)
    assert error.value == 1
    assert not error.larger_is_better


def means(values: Sequence[float], larger_is_better: bool = True) -> ImageMeans:
    return ImageMeans('a', len(values), larger_is_better, np.array(values, float))


def test_intervals_are_of_paired_differences() -> None:
    rng = np.random.default_rng(0)
    hard = rng.random(40) * 100  # images differ much more than settings
    first = means(hard)
    second = means(hard + 1 + rng.random(40))
    weights = draw_images(40, 400, 0)
    difference = compare_settings(second, first, weights)
    gains = second.values - first.values
    drawn = [np.repeat(gains, row.astype(int)).mean() for row in weights]
    low, high = np.quantile(drawn, [0.05, 0.95])
    assert (difference.low, difference.high) == pytest.approx((low, high))
    assert 1 < difference.low < difference.value < difference.high < 2
    assert weights.sum(1).tolist() == [40] * 400


@pytest.mark.parametrize('images', [1, 4, 5])
def test_a_few_images_choose_nothing(images: int) -> None:
    """Whose draws are all alike, so that any gain would be above their spread."""
    own = means([1.0] * images)
    better = means([2.0] * images)
    weights = draw_images(images, 40, 0)
    difference = compare_settings(better, own, weights)
    assert difference.value == difference.low == 1
    assert difference.is_clear == (images == 5)
    assert choose_setting([compare_settings(own, own, weights), difference])[0] == (
        images == 5
    )


def test_equal_settings_are_rarely_taken() -> None:
    """Of ten settings that are in truth equal to the config's, the best one hardly ever is."""
    rng = np.random.default_rng(0)
    weights = draw_images(100, 1000, 0)
    taken = 0
    for _ in range(60):
        shared = rng.normal(size=100)
        settings = [means(shared + rng.normal(size=100)) for _ in range(11)]
        gains = [compare_settings(x, settings[0], weights, 10) for x in settings]
        taken += choose_setting(gains)[0] > 0
    assert taken <= 7  # 60 cases, and 5 % of them or fewer


@pytest.mark.parametrize('larger_is_better', [True, False])
def test_the_best_is_taken_if_it_is_clear(larger_is_better: bool) -> None:
    sign = 1 if larger_is_better else -1
    noise = np.random.default_rng(0).normal(size=60)
    own = means(noise, larger_is_better)
    settings = {
        'own': own,
        'worse': means(noise - sign * 2, larger_is_better),
        'noisy': means(noise[::-1] + sign * 0.01, larger_is_better),
        'better': means(noise + sign * 0.3, larger_is_better),
        'best': means(noise + sign * 0.5, larger_is_better),
    }
    weights = draw_images(60, 300, 0)
    names = list(settings)
    differences = [compare_settings(x, own, weights) for x in settings.values()]
    assert differences[0] == Difference(0, 0, 0, 0)
    assert names[choose_setting(differences)[0]] == 'best'
    index, reason = choose_setting(differences[:3])
    assert index == 0
    assert 'within the spread' in reason
    index, reason = choose_setting(differences[:2])
    assert index == 0
    assert 'no setting is better' in reason
    assert choose_setting(differences[:1])[0] == 0


def test_an_unclear_best_is_not_replaced_by_a_clear_second() -> None:
    differences = [
        Difference(0, 0, 0, 0), Difference(2, -1, 5, -2), Difference(1, 0.5, 1.5, 0.1)
    ]  # fmt: skip
    assert choose_setting(differences)[0] == 0


def test_samples_are_disjoint() -> None:
    first = Sample(30, 1)
    second = Sample(30, 1, skip=30)
    indices = first.indices(100)
    assert len(set(indices)) == 30
    assert indices == sorted(indices) == first.indices(100)
    assert not set(indices) & set(second.indices(100))
    assert len(second.indices(100)) == 30
    assert Sample(30, 2).indices(100) != indices
