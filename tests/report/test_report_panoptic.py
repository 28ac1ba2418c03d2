"""`rope-dense report` of panoptic models, and PQ of segments that went through COCO's files."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmdet.evaluation import CocoPanopticMetric
from mmdet.evaluation.functional import pq_compute_single_core
from mmdet.structures import DetDataSample
from mmengine.config import Config
from mmengine.structures import PixelData

from helpers.panoptic import provide_panopticapi, read_ids, small_panoptic
from helpers.rows import column, read_json
from rope_dense.data.panoptic import (
    OFFSET,
    panoptic_content,
    panoptic_segments,
    write_ids,
)
from rope_dense.report import segmentation as panoptic
from rope_dense.report.page import Page
from rope_dense.report.segmentation import quality_row
from rope_dense_command import command

CLASSES, THINGS = 5, 3
CATEGORY_IDS = [1, 90, 13, 7, 200]


@pytest.fixture(autouse=True)
def panopticapi(monkeypatch: pytest.MonkeyPatch) -> None:
    provide_panopticapi(monkeypatch)


def blobs(random: np.random.Generator, number: int) -> np.ndarray:
    """Numbers [24, 32], each in a region of its own: the nearest of some points."""
    places = np.moveaxis(np.indices((24, 32)), 0, -1)[:, :, None]
    points = random.uniform((0, 0), (24, 32), (number, 2))
    return np.square(places - points).sum(-1).argmin(-1)


def directly_counted(truth: np.ndarray, found: np.ndarray) -> np.ndarray:
    """IoUs, TP, FP and FN by class of mmdet's labels, where void counts in no union."""
    counts = np.zeros((CLASSES, 4))
    for label in range(CLASSES):
        left = segments_of(found, label)
        for mask in segments_of(truth, label):
            best, place = 0.5, None
            for index, other in enumerate(left):
                union = mask | other & (truth != CLASSES)
                iou = (mask & other).sum() / union.sum()
                if iou > best:
                    best = iou
                    place = index
            if place is None:
                counts[label, 3] += 1
            else:
                counts[label, :2] += best, 1
                del left[place]
        for mask in left:
            counts[label, 2] += (truth[mask] == CLASSES).mean() <= 0.5
    return counts


def segments_of(labels: np.ndarray, label: int) -> list[np.ndarray]:
    """The masks of the segments of a class."""
    return [labels == x for x in np.unique(labels) if x % OFFSET == label]


@pytest.mark.parametrize('seed', range(6))
def test_files_have_the_quality_of_the_predictions(seed: int, tmp_path: Path) -> None:
    """As mmdet's copy of panopticapi computes it; things of a class, stuff and void."""
    random = np.random.default_rng(seed)
    # Class 0 is stuff, too, whose id is 0.
    labels = np.array([0, 1001, 2001, 3002, 3, 4, CLASSES])
    truth = labels[blobs(random, len(labels))]
    found = np.roll(truth, random.integers(4), 1)  # some are found
    found[blobs(random, 9) == 0] = 90_001
    found[blobs(random, 9) == 0] = 3
    found[blobs(random, 9) == 0] = CLASSES
    written = []
    for name, given in (('true', truth), ('found', found)):
        ids, segments = panoptic_segments(given, CATEGORY_IDS)
        write_ids(ids, tmp_path / f'{name}.png')
        np.testing.assert_array_equal(read_ids(tmp_path / f'{name}.png'), ids)
        entry = dict(
            file_name='a.jpg',
            height=24,
            width=32,
            png=f'{name}.png',
            segments=segments,
        )
        colours = [(0, 0, 9)] * CLASSES
        content = panoptic_content([entry], 'abcde', colours, THINGS, CATEGORY_IDS)
        written.append(json.loads(json.dumps(content)))
    pair = tuple(content['annotations'][0] for content in written)
    categories = {x['id']: x for x in written[0]['categories']}
    stat = pq_compute_single_core(0, [pair], str(tmp_path), str(tmp_path), categories)
    expected = directly_counted(truth, found)
    for category, counts in zip(CATEGORY_IDS, expected, strict=True):
        x = stat[category]
        np.testing.assert_allclose([x.iou, x.tp, x.fp, x.fn], counts, atol=1e-12)
    assert expected[:, 1].any()
    assert expected[:, 2:].any()
    parts = {
        None: expected,
        True: expected[:THINGS],
        False: expected[THINGS:],
    }
    for is_thing, part in parts.items():
        mean = stat.pq_average(categories, isthing=is_thing)[0]
        row = quality_row('', part)
        for key in ('PQ', 'SQ', 'RQ'):
            assert row[key] == pytest.approx(mean[key.lower()], abs=1e-9)


def test_large_ids_keep_their_bytes(tmp_path: Path) -> None:
    ids = [[0, 255, 256, 65_535], [65_536, 70_000, 2**23, 2**24 - 1]]
    ids = np.array(ids, np.int32)
    write_ids(ids, tmp_path / 'a.png')
    np.testing.assert_array_equal(read_ids(tmp_path / 'a.png'), ids)


def shifted(path: Path) -> DetDataSample:
    """A prediction for an image: its true segments, some pixels beside their places, and void."""
    place = str(path).replace('val2017', 'annotations/panoptic_val2017')
    png = Path(place).with_suffix('.png')
    content = read_json(png.parent.with_suffix('.json'))
    (entry,) = (x for x in content['annotations'] if x['file_name'] == png.name)
    ids = read_ids(png)
    pixels = np.full((64, 96), 7, np.int32)
    for number, segment in enumerate(entry['segments_info'], start=1):
        pixels[ids == segment['id']] = segment['category_id'] - 1 + OFFSET * number
    last = (pixels == 6 + OFFSET * number)[None].astype(np.uint8)
    pixels = np.roll(pixels, 3, 1)
    pixels[-9:] = 7
    if png.stem.endswith('2'):
        pixels[:] = 7  # nothing is found
    about = dict(
        img_path=str(path),
        img_id=int(png.stem),
        ori_shape=(64, 96),
    )
    sample = DetDataSample(metainfo=about)
    sample.pred_panoptic_seg = PixelData(sem_seg=torch.from_numpy(pixels)[None])
    sample.gt_sem_seg = PixelData(sem_seg=torch.from_numpy(last * 6))
    return sample


def test_a_report_has_the_figures_of_the_test(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config, weights = small_panoptic(tmp_path)
    pictures = sorted(tmp_path.glob('data/panoptic/val2017/*.jpg'))
    monkeypatch.setattr(panoptic, 'predict_samples', lambda *_: map(shifted, pictures))
    # Plots take most of the time.
    monkeypatch.setattr(Page, 'add_figure', lambda *args: None)
    argv = [config, weights, '--device', 'cpu', '--out', f'{tmp_path}/out']
    assert command('report')(argv) == 0
    report = read_json(tmp_path / 'out/report.json')
    rows = {row['class']: row for row in report['classes']}

    settings = Config.fromfile(config).test_evaluator
    metric = CocoPanopticMetric(settings.ann_file, settings.seg_prefix)
    metric.dataset_meta = dict(classes=report['names'])
    for path in pictures:
        metric.process({}, [shifted(path).to_dict()])
    expected = metric.evaluate(len(pictures))
    for name, end in (('all', ''), ('things', '_th'), ('stuff', '_st')):
        for figure in ('PQ', 'SQ', 'RQ'):
            # mmdet gives percent
            given = expected[f'coco_panoptic/{figure}{end}']
            assert rows[name][figure] * 100 == pytest.approx(given, abs=1e-9)
    assert 0 < rows['all']['PQ'] < 1
    assert 0 < rows['stuff']['TP'] < len(pictures)
    entries = read_json(settings.ann_file)['annotations'][:3]
    number = sum(map(len, column(entries, 'segments_info')))
    assert rows['all']['TP'] + rows['all']['FN'] == number
    assert report['about']['images'] == 3
    worst, second, *_ = report['worst']
    assert worst['path'] == str(pictures[2])
    assert worst['PQ'] == 0 < second['PQ']
    worst = cv2.imread(str(tmp_path / 'out/worst_1.png')).astype(int)
    true, found = worst[:, :96], worst[:, -96:]  # with a gap between
    picture = cv2.imread(str(pictures[2]))
    # Matplotlib resamples.
    assert abs(found - picture).mean() < 8 < abs(true - picture).mean()
