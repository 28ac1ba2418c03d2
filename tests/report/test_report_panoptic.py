"""`rope-dense report` of panoptic models: PQ as mmdet's copy of panopticapi computes it."""

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

from helpers.panoptic import provide_panopticapi, small_panoptic
from rope_dense.datasets.panoptic import panoptic_segments, read_ids, write_ids
from rope_dense.report import panoptic
from rope_dense.report.page import Page
from rope_dense.report.panoptic import Truth, count_segments, panoptic_labels, quality_row
from rope_dense_command import command

CLASSES, THINGS = 5, 3
IDS = [0, 7, 300, 70_000, 5_000_000, 9, 11]  # of the true segments, as COCO's: colours


@pytest.fixture(autouse=True)
def panopticapi(monkeypatch: pytest.MonkeyPatch) -> None:
    provide_panopticapi(monkeypatch)


def blobs(random: np.random.Generator, number: int) -> np.ndarray:
    """Numbers [24, 32], each in a region of its own: the nearest of some points."""
    places = np.moveaxis(np.indices((24, 32)), 0, -1)[:, :, None]
    return np.square(places - random.uniform((0, 0), (24, 32), (number, 2))).sum(-1).argmin(-1)


@pytest.mark.parametrize('seed', range(6))
def test_segments_are_counted_as_panopticapi_counts(seed: int, tmp_path: Path) -> None:
    """With void, a crowd, and segments that the file does not list."""
    random = np.random.default_rng(seed)
    numbers = blobs(random, len(IDS))
    truth = Truth(np.array(IDS)[numbers], {7: 0, 300: 1, 70_000: 1, 5_000_000: 4, 9: 2}, [70_000])
    labels = np.roll(panoptic_labels(truth, CLASSES), random.integers(4), 1)  # some are found
    labels[blobs(random, 9) == 0] = 1 + 1000 * 90
    labels[blobs(random, 9) == 0] = 3
    labels[blobs(random, 9) == 0] = CLASSES
    ids, segments = panoptic_segments(labels, range(CLASSES))
    found = [segment['category_id'] for segment in segments]
    counts = count_segments(truth, ids, found, CLASSES)

    write_ids(truth.ids, tmp_path / 'true.png')
    write_ids(ids, tmp_path / 'found.png')
    np.testing.assert_array_equal(read_ids(tmp_path / 'true.png'), truth.ids)
    given = [
        dict(id=n, category_id=label, iscrowd=int(n in truth.crowds), area=(truth.ids == n).sum())
        for n, label in truth.labels.items()
    ]
    pair = (
        dict(image_id=0, file_name='true.png', segments_info=given),
        dict(image_id=0, file_name='found.png', segments_info=segments),
    )
    categories = {label: dict(isthing=int(label < THINGS)) for label in range(CLASSES)}
    stat = pq_compute_single_core(0, [pair], str(tmp_path), str(tmp_path), categories)
    expected = [[stat[x].iou, stat[x].tp, stat[x].fp, stat[x].fn] for x in range(CLASSES)]
    np.testing.assert_allclose(counts, expected, rtol=0, atol=1e-12)
    assert counts[:, 1].any() and counts[:, 2:].any()
    parts = {None: counts, True: counts[:THINGS], False: counts[THINGS:]}
    for is_thing, part in parts.items():
        mean = stat.pq_average(categories, isthing=is_thing)[0]
        row = quality_row('', part)
        np.testing.assert_allclose(
            [row['PQ'], row['SQ'], row['RQ']], [mean['pq'], mean['sq'], mean['rq']], atol=1e-9
        )


def shifted(path: Path) -> DetDataSample:
    """A prediction for an image: its true segments, some pixels beside their places, and void."""
    png = Path(str(path).replace('val2017', 'annotations/panoptic_val2017')).with_suffix('.png')
    content = json.loads(png.parent.with_suffix('.json').read_text())
    (entry,) = (x for x in content['annotations'] if x['file_name'] == png.name)
    labels = {x['id']: x['category_id'] - 1 for x in entry['segments_info']}
    pixels = np.roll(panoptic_labels(Truth(read_ids(png), labels), 7), 3, 1)
    pixels[-9:] = 7
    if png.stem.endswith('2'):
        pixels[:] = 7  # nothing is found
    about = dict(img_path=str(path), img_id=int(png.stem), ori_shape=(64, 96))
    sample = DetDataSample(metainfo=about)
    sample.pred_panoptic_seg = PixelData(sem_seg=torch.from_numpy(pixels)[None])
    return sample


def test_a_report_has_the_figures_of_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, weights = small_panoptic(tmp_path)
    pictures = sorted(tmp_path.glob('data/panoptic/val2017/*.jpg'))
    monkeypatch.setattr(panoptic, 'predict_samples', lambda *_: map(shifted, pictures))
    monkeypatch.setattr(Page, 'add_figure', lambda *args: None)  # plots take most of the time
    assert command('report')([config, weights, '--device', 'cpu', '--out', f'{tmp_path}/out']) == 0
    report = json.loads((tmp_path / 'out/report.json').read_text())
    rows = {row['class']: row for row in report['classes']}

    settings = Config.fromfile(config).test_evaluator
    metric = CocoPanopticMetric(settings.ann_file, settings.seg_prefix)
    metric.dataset_meta = dict(classes=report['names'])
    metric.process({}, [shifted(path).to_dict() for path in pictures])
    expected = metric.evaluate(len(pictures))
    for name, end in (('all', ''), ('things', '_th'), ('stuff', '_st')):
        for figure in ('PQ', 'SQ', 'RQ'):
            # mmdet gives percent
            given = expected[f'coco_panoptic/{figure}{end}']
            assert rows[name][figure] * 100 == pytest.approx(given, abs=1e-9)
    assert 0 < rows['all']['PQ'] < 1 and 0 < rows['stuff']['TP'] < len(pictures)
    objects = [json.loads(Path(settings.ann_file).read_text())['annotations'][i] for i in range(3)]
    number = sum(len(entry['segments_info']) for entry in objects)
    assert rows['all']['TP'] + rows['all']['FN'] == number
    assert report['about']['images'] == 3 and report['worst'][0]['path'] == str(pictures[2])
    assert report['worst'][0]['PQ'] == 0 < report['worst'][1]['PQ']
    worst = cv2.imread(str(tmp_path / 'out/worst_1.png')).astype(int)
    true, found = worst[:, :96], worst[:, -96:]  # with a gap between
    picture = cv2.imread(str(pictures[2]))
    assert abs(found - picture).mean() < 8 < abs(true - picture).mean()  # matplotlib resamples
