"""Thresholds and margins with a promise: the formula by hand, its risk over many draws, files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.structures import BaseDataElement

from helpers.rows import annotations
from helpers.small_configs import small_config
from rope_dense.predict.thresholds import least_scores
from rope_dense.project.identity import hash_of
from rope_dense.project.model import random_model
from rope_dense.report import segmentation
from rope_dense.report.objects import Matches, match_truth, objects_of
from rope_dense.report.page import Page
from rope_dense.report.predictions import predict_samples
from rope_dense.report.promise import (
    FOUND,
    OBJECTS,
    PIXELS,
    add_promise,
    found_objects,
    found_pixels,
    images_needed,
    promised_level,
)
from rope_dense.report.record import Promise, ReportRecord
from rope_dense.utils.results import Results
from rope_dense_command import command

DRAWS = 2000
OBJECT = [10, 10, 20, 20]


def level(needs: np.ndarray, images: np.ndarray, share: float) -> float | None:
    """The promised level of objects."""
    found = np.ones(len(needs), FOUND)
    found['image'] = images
    return promised_level(needs, found, share)


def test_few_images_by_hand() -> None:
    """One object an image: with n = 9 and a = 0.2, one image may lose its object."""
    scores = np.arange(1, 10) / 10
    assert level(-scores, np.arange(9), 0.2) == -0.2
    assert level(-scores, np.arange(9), 0.1) == -0.1  # none may
    assert level(-scores, np.arange(9), 0.099) is None
    assert [images_needed(share) for share in (0.5, 0.2, 0.1, 0.099)] == [1, 4, 9, 10]
    # Two objects in each of 4 images: at a = 0.4, half of one image may be lost, twice.
    scores = np.array([0.1, 0.9, 0.2, 0.9, 0.3, 0.9, 0.4, 0.9])
    assert level(-scores, np.arange(8) // 2, 0.4) == -0.3
    scores[:3] = -np.inf  # lost at any score: one image and a half
    assert level(-scores, np.arange(8) // 2, 0.4) is None
    assert level(-scores, np.arange(8) // 2, 0.5) == -0.3
    # A threshold does not part equal scores.
    assert level(-np.full(9, 0.5), np.arange(9), 0.2) == -0.5
    assert level(np.array([]), np.array([], int), 0.2) is None


@pytest.mark.parametrize('number, share', [(9, 0.1), (20, 0.1), (37, 0.25)])
def test_risk_of_one_object_an_image_is_exact(number: int, share: float) -> None:
    """Scores are uniform, so the threshold is the risk: floor(a (n + 1)) / (n + 1) on average."""
    generator = np.random.default_rng(0)
    risks = []
    for _ in range(DRAWS):
        scores = generator.random(number)
        risks.append(-level(-scores, np.arange(number), share))
    expected = np.floor(share * (number + 1) + 1e-9) / (number + 1)
    error = np.std(risks) / np.sqrt(DRAWS)
    assert abs(np.mean(risks) - expected) < 4 * error
    assert expected <= share + 1e-9


@pytest.mark.parametrize('share', [0.1, 0.3])
def test_risk_of_images_of_many_objects_is_within_its_bounds(share: float) -> None:
    """Objects of an image are alike, all easy or all hard: a risk from a - 2 / (n + 1) to a."""
    generator = np.random.default_rng(1)
    number = 40
    risks = []
    for _ in range(DRAWS):
        images = np.repeat(np.arange(number), generator.integers(1, 9, number))
        least = (
            generator.integers(0, 2, number) / 2
        )  # scores from 0 to 0.5, or from 0.5 to 1
        scores = least[images] + generator.random(len(images)) / 2
        risks.append(-level(-scores, images, share))  # F(t) = t
    error = np.std(risks) / np.sqrt(DRAWS)
    assert share - 2 / (number + 1) - 3 * error < np.mean(risks) < share + 3 * error


def random_matches(seed: int) -> tuple[list[dict], list[dict]]:
    """Objects of 30 images, some ignored, and predictions near them of three classes."""
    generator = np.random.default_rng(seed)
    truth = []
    found = []
    for image in range(30):
        boxes = np.hstack(
            [generator.random((4, 2)) * 60, 8 + generator.random((4, 2)) * 30]
        )
        labels = generator.integers(1, 3, 4).tolist()
        truth += annotations(zip(boxes.tolist(), labels, strict=True), image)
        near = boxes[generator.integers(4, size=12)]
        near += generator.normal(size=(12, 4)) * 2
        scores = generator.random(12).tolist()
        guesses = generator.integers(1, 3, 12).tolist()
        rows = zip(near.clip(1).tolist(), guesses, scores, strict=True)
        found += annotations(rows, image)
    for number, item in enumerate(truth):
        item['iscrowd'] = int(number % 9 == 0)
    return truth, found


def test_missed_is_what_the_report_misses_at_a_threshold() -> None:
    truth, found = random_matches(0)
    matches = match_truth(objects_of(truth), objects_of(found))
    scores = found_objects(matches)['score']
    for threshold in np.linspace(0, 1, 21):
        kept = [item for item in found if item['score'] >= threshold]
        at = match_truth(objects_of(truth), objects_of(kept))
        counted = ~at.truth['crowd']
        np.testing.assert_array_equal(at.found[counted], scores >= threshold)


def test_margins_grow_boxes_until_they_contain_their_objects() -> None:
    truth = annotations([([0, 0, 40, 20], 1)])
    found = annotations([([4, 1, 32, 10], 1, 0.9)])
    matches = match_truth(objects_of(truth), objects_of(found))
    # Left 4 / 32, top 1 / 10, right 4 / 32: nothing is found at IoU 0.4.
    assert found_objects(matches)['margin'].tolist() == [0]
    found = annotations([([4, 1, 32, 15], 1, 0.9)])
    matches = match_truth(objects_of(truth), objects_of(found))
    assert found_objects(matches)['margin'].tolist() == [4 / 15]
    truth, found = random_matches(1)
    for item in truth:
        item['iscrowd'] = 0
    matches = match_truth(objects_of(truth), objects_of(found))
    margins = found_objects(matches)['margin']
    places = matches.are('right')
    boxes = matches.predictions['box'][places]
    by = margins[matches.targets[places]][:, None] + 1e-9
    aims = matches.truth['box'][matches.targets[places]]
    starts = boxes[:, :2] - by * boxes[:, 2:]
    ends = boxes[:, :2] + (1 + by) * boxes[:, 2:]
    assert (starts <= aims[:, :2]).all()
    assert (ends >= aims[:, :2] + aims[:, 2:]).all()


def promised(
    matches: Matches | np.ndarray, folder: Path, miss: float, margin: float | None
) -> dict:
    """The promise in the report.json of matches, or pixels, of the classes cat and dog."""
    checkpoint = folder / 'best.pth'
    checkpoint.write_bytes(b'weights')
    promise = Promise(miss, margin)
    with Results(folder / 'report', 'report') as results:
        record = ReportRecord(
            about=dict(kind='boxes') if isinstance(matches, Matches) else {},
            names=[],
            settings={},
            checkpoint_sha256=hash_of(str(checkpoint)),
            promise=promise,
        )
        page = Page(results, 'made', record)
        if isinstance(matches, Matches):
            add_promise(page, found_objects(matches), ['cat', 'dog'], OBJECTS)
        else:
            add_promise(page, matches, ['cat', 'dog'], PIXELS)
        page.write()
    return json.loads((folder / 'report' / 'report.json').read_text())['promise']


def test_promised_thresholds_are_stored_and_predicted_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = annotations([])
    found = annotations([])
    for image in range(20):
        # The dog is in every fifth image, and found with less than any cat.
        dogs = [([50, 40, 20, 20], 2)] * (image % 5 == 0)
        truth += annotations([(OBJECT, 1), *dogs], image)
        score = 0.5 + image / 100
        found += annotations([(OBJECT, 1, score)], image)
        found += annotations([(*dog, score / 5) for dog in dogs], image)
    matches = match_truth(objects_of(truth), objects_of(found))
    promise = promised(matches, tmp_path, 0.2, 0.3)
    whole, cat, dog = promise['rows']
    # Of 20 images 0.2 * 21 - 1 = 3.2 may be lost: 4 dogs and a cat beside one, which are halves.
    assert (whole['images'], whole['threshold']) == (20, 0.51)
    assert (cat['images'], cat['threshold']) == (20, 0.53)
    assert (dog['images'], dog['threshold']) == (4, 0.1)  # a = 1 / 5: none may be lost
    assert (whole['margin'], dog['note']) == (0, '')
    assert promise['thresholds'] == dict(cat=0.51, dog=0.1)
    said = capsys.readouterr().out
    assert 'at score 0.5100 at most 20 % of the objects of a new image' in said
    page = (tmp_path / 'report' / 'index.html').read_text()
    assert 'another camera' in page
    assert least_scores('report', tmp_path, ['cat', 'dog'], str(tmp_path / 'best.pth'))
    least = least_scores(
        ['report', 'cat=0.9'], tmp_path, ['cat', 'dog'], str(tmp_path / 'best.pth')
    )
    assert least == dict(cat=0.9, dog=0.1)
    assert '--score report: the promised thresholds' in capsys.readouterr().out


def test_a_class_without_a_promise_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = annotations([])
    found = annotations([])
    for image in range(20):
        truth += annotations([(OBJECT, 1)], image)
        found += annotations([(OBJECT, 1, 0.5)], image)
    matches = match_truth(objects_of(truth), objects_of(found))
    promise = promised(matches, tmp_path, 0.2, None)
    assert promise['thresholds'] == dict(cat=0.5, dog=0.5)
    said = capsys.readouterr().out
    assert 'No threshold of their own: dog; the one of all is used.' in said
    assert 'Not if these images chose the checkpoint' in said
    least_scores('report', tmp_path, ['cat', 'dog'], str(tmp_path / 'best.pth'))
    said = capsys.readouterr().out
    assert 'no threshold of their own, but the one of all: dog' in said


def test_too_few_images_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = annotations([(OBJECT, 1)], 0)
    found = annotations([(OBJECT, 1, 0.9)], 0)
    matches = match_truth(objects_of(truth), objects_of(found))
    promise = promised(matches, tmp_path, 0.1, None)
    assert promise['rows'][0]['note'] == 'needs 9 images with such objects'
    assert promise['thresholds'] == {}
    said = 'no threshold keeps it: 1 images, needs 9 images with such objects'
    assert said in capsys.readouterr().out
    with pytest.raises(ValueError, match=r'--miss 0\.1 found no threshold'):
        least_scores('report', tmp_path, ['cat', 'dog'], str(tmp_path / 'best.pth'))
    matches = match_truth(objects_of(truth), objects_of([]))
    promise = promised(matches, tmp_path, 0.5, None)
    assert promise['rows'][0]['note'] == (
        '1.000 are missed at any score, of 0.000 that may be'
    )


def random_scores(seed: int, number: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Scores [2, 6, 8] and truths of images, each hard or easy; 255 is of no class."""
    generator = np.random.default_rng(seed)
    images = []
    for _ in range(number):
        first = generator.beta(generator.uniform(0.5, 3), 1, (6, 8))
        truth = generator.choice([0, 1, 255], (6, 8), p=[0.6, 0.3, 0.1])
        scores = np.where(truth == 1, 1 - first, first).astype(np.float16)
        images.append((np.stack([scores, 1 - scores]), truth))
    return images


def missed_share(scores: np.ndarray, truth: np.ndarray, least: list[float]) -> float:
    """The share of the pixels of some class of one image that are below the class's score."""
    missed = [scores[label][truth == label] < least[label] for label in range(2)]
    return float(np.concatenate(missed).mean())


def test_pixels_by_hand() -> None:
    """All pixels of an image weigh as much as all of another."""
    scores = np.array([[[0.5, 0.25, 0.75, 1.0]], [[0.5, 0.75, 0.25, 0.0]]], np.float16)
    truth = np.array([[0, 0, 1, 255]])
    found = found_pixels(scores, truth, 7)
    assert found['label'].tolist() == [1, 1, 2]
    assert found['score'].tolist() == [0.25, 0.5, 0.25]
    assert found['image'].tolist() == [7] * 3
    assert found_pixels(scores, np.full((1, 4), 255), 7).size == 0
    # Four images, of which the first has 9 pixels of 0.1 and one of 0.9, the others one of 0.5.
    parts = [
        found_pixels(np.full((1, 1, 1), 0.5, np.float16), truth[:, :1], i)
        for i in (1, 2, 3)
    ]
    first = np.full((1, 1, 10), 0.1, np.float16)
    first[..., -1] = 0.9
    found = np.concatenate([found_pixels(first, np.zeros((1, 10), int), 0), *parts])
    # a = 0.4: 5 a - 1 = 1 image may be lost; the nine pixels are 0.9 of one.
    assert promised_level(-found['score'], found, 0.4) == -0.5
    # a = 0.37: 0.85 of an image may be lost.
    lower = promised_level(-found['score'], found, 0.37)
    assert 0.099 < -lower <= np.float16(0.1)


@pytest.mark.parametrize('share', [0.1, 0.3])
def test_risk_of_pixels_is_within_its_bounds(share: float) -> None:
    """Judged on images like the ones behind the thresholds: a risk from a - 2 / (n + 1) to a."""
    number = 30
    risks = []
    for seed in range(150):
        images = random_scores(seed, 2 * number)
        found = [found_pixels(*image, i) for i, image in enumerate(images[:number])]
        together = np.concatenate(found)
        least = [-promised_level(-together['score'], together, share)] * 2
        lost = [missed_share(*image, least) for image in images[number:]]
        risks.append(np.mean(lost))
    error = np.std(risks) / np.sqrt(len(risks))
    assert share - 2 / (number + 1) - 3 * error < np.mean(risks) < share + 3 * error


def test_promised_thresholds_of_pixels_are_stored_and_are_none_of_boxes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = random_scores(0, 20)
    found = np.concatenate([found_pixels(*image, i) for i, image in enumerate(images)])
    promise = promised(found, tmp_path, 0.2, None)
    least = [*promise['thresholds'].values()]
    lost = [missed_share(*image, least) for image in images]
    assert np.mean(lost) <= 0.2 - (1 - 0.2) / 20  # (n mean + 1) / (n + 1) <= a
    whole, cat, _ = promise['rows']
    known = [(truth < 2).sum() for _, truth in images]
    assert (whole['images'], whole['pixels']) == (20, sum(known))
    assert cat['pixels'] == sum((truth == 0).sum() for _, truth in images)
    assert '% of the pixels of a new image are missed' in capsys.readouterr().out
    page = (tmp_path / 'report' / 'index.html').read_text()
    assert 'whose probability, of predict --scores, is at least the lower' in page
    with pytest.raises(ValueError, match='--score report: is of boxes'):
        least_scores('report', tmp_path, ['cat', 'dog'], str(tmp_path / 'best.pth'))


def test_report_of_a_segmentor_has_what_its_scores_miss(
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = str(small_config('upernet_vit_rope_mixed', data, tmp_path))
    checkpoint = str(tmp_path / 'last.pth')
    weights = random_model(Config.fromfile(config)).state_dict()
    torch.save(dict(state_dict=weights), checkpoint)
    options = ['--miss', '0.5', '--device', 'cpu', '--out', str(tmp_path / 'report')]
    assert command('report')([config, checkpoint, *options]) == 0
    promise = json.loads((tmp_path / 'report' / 'report.json').read_text())['promise']
    assert promise['rows'][0]['images'] == 2
    assert 0 < promise['rows'][0]['threshold'] < 1
    assert 'of the pixels of a new image' in capsys.readouterr().out

    def without_scores(*given: Any) -> Iterator[BaseDataElement]:
        for sample in predict_samples(*given):
            del sample.seg_logits
            yield sample

    monkeypatch.setattr(segmentation, 'predict_samples', without_scores)
    assert command('report')([config, checkpoint, *options]) == 2
    assert '--miss: needs a score of each class' in capsys.readouterr().err


@pytest.mark.parametrize(
    'options, message',
    [
        (['--margin', '0.1'], '--margin: give --miss, too'),
        (['--miss', '1.5'], '--miss 1.5: give a share between 0 and 1'),
        (['--miss', '0.1', '--margin', 'nan'], '--margin nan: give a share'),
        (['--miss', '0.1', '--split', 'train'], 'knows the images of --split train'),
        (['--miss', '0.1', '--margin', '0.1'], '--margin: is of boxes, and the task'),
    ],
)
def test_a_promise_that_cannot_be_kept_is_one_line(
    options: list[str],
    message: str,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = small_config('upernet_vit_rope_mixed', data, tmp_path)
    checkpoint = tmp_path / 'last.pth'
    checkpoint.touch()
    assert command('report')([str(config), str(checkpoint), *options]) == 2
    text = capsys.readouterr().err
    assert message in text
    assert text.count('\n') == 1
    assert not [*tmp_path.rglob('report')]
