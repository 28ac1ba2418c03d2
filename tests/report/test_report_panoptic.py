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
    return (
        np.square(places - random.uniform((0, 0), (24, 32), (number, 2)))
        .sum(-1)
        .argmin(-1)
    )


def directly_counted(truth: np.ndarray, found: np.ndarray) -> np.ndarray:
    """IoUs, TP, FP and FN by class of mmdet's labels, where void counts in no union."""
    counts = np.zeros((CLASSES, 4))
    for label in range(CLASSES):
        true = [truth == x for x in np.unique(truth) if x % OFFSET == label]
        false = [found == x for x in np.unique(found) if x % OFFSET == label]
        matched = set()
        for mask in true:
            known = [
                (mask & x).sum() / (mask | x & (truth != CLASSES)).sum() for x in false
            ]
            if known and max(known) > 0.5:
                matched.add(int(np.argmax(known)))
                counts[label, :2] += max(known), 1
        counts[label, 3] = len(true) - len(matched)
        others = [mask for index, mask in enumerate(false) if index not in matched]
        counts[label, 2] = sum(
            (truth[mask] == CLASSES).mean() <= 0.5 for mask in others
        )
    return counts


@pytest.mark.parametrize('seed', range(6))
def test_files_have_the_quality_of_the_predictions(seed: int, tmp_path: Path) -> None:
    """As mmdet's copy of panopticapi computes it; things of a class, stuff and void."""
    random = np.random.default_rng(seed)
    labels = np.array(
        [0, 1001, 2001, 3002, 3, 4, CLASSES]
    )  # class 0 is stuff, too, whose id is 0
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
            file_name='a.jpg', height=24, width=32, png=f'{name}.png', segments=segments
        )
        colours = [(0, 0, 9)] * CLASSES
        content = panoptic_content([entry], 'abcde', colours, THINGS, CATEGORY_IDS)
        written.append(json.loads(json.dumps(content)))
    pair = tuple(content['annotations'][0] for content in written)
    categories = {x['id']: x for x in written[0]['categories']}
    stat = pq_compute_single_core(0, [pair], str(tmp_path), str(tmp_path), categories)
    figures = [stat[x] for x in CATEGORY_IDS]
    expected = directly_counted(truth, found)
    np.testing.assert_allclose(
        [[x.iou, x.tp, x.fp, x.fn] for x in figures], expected, atol=1e-12
    )
    assert expected[:, 1].any() and expected[:, 2:].any()
    parts = {None: expected, True: expected[:THINGS], False: expected[THINGS:]}
    for is_thing, part in parts.items():
        mean = stat.pq_average(categories, isthing=is_thing)[0]
        row = quality_row('', part)
        qualities = [row[key] for key in ('PQ', 'SQ', 'RQ')]
        np.testing.assert_allclose(
            qualities, [mean[x] for x in ('pq', 'sq', 'rq')], atol=1e-9
        )


def test_large_ids_keep_their_bytes(tmp_path: Path) -> None:
    ids = np.array(
        [[0, 255, 256, 65_535], [65_536, 70_000, 2**23, 2**24 - 1]], np.int32
    )
    write_ids(ids, tmp_path / 'a.png')
    np.testing.assert_array_equal(read_ids(tmp_path / 'a.png'), ids)


def shifted(path: Path) -> DetDataSample:
    """A prediction for an image: its true segments, some pixels beside their places, and void."""
    png = Path(
        str(path).replace('val2017', 'annotations/panoptic_val2017')
    ).with_suffix('.png')
    content = json.loads(png.parent.with_suffix('.json').read_text())
    (entry,) = (x for x in content['annotations'] if x['file_name'] == png.name)
    ids, pixels = read_ids(png), np.full((64, 96), 7, np.int32)
    for number, segment in enumerate(entry['segments_info'], start=1):
        pixels[ids == segment['id']] = segment['category_id'] - 1 + OFFSET * number
    masks = (pixels == 6 + OFFSET * number)[None].astype(
        np.uint8
    )  # of the last, as truth
    pixels = np.roll(pixels, 3, 1)
    pixels[-9:] = 7
    if png.stem.endswith('2'):
        pixels[:] = 7  # nothing is found
    about = dict(img_path=str(path), img_id=int(png.stem), ori_shape=(64, 96))
    sample = DetDataSample(metainfo=about)
    sample.pred_panoptic_seg = PixelData(sem_seg=torch.from_numpy(pixels)[None])
    sample.gt_sem_seg = PixelData(sem_seg=torch.from_numpy(masks * 6))
    return sample


def test_a_report_has_the_figures_of_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, weights = small_panoptic(tmp_path)
    pictures = sorted(tmp_path.glob('data/panoptic/val2017/*.jpg'))
    monkeypatch.setattr(panoptic, 'predict_samples', lambda *_: map(shifted, pictures))
    monkeypatch.setattr(
        Page, 'add_figure', lambda *args: None
    )  # plots take most of the time
    assert (
        command('report')(
            [config, weights, '--device', 'cpu', '--out', f'{tmp_path}/out']
        )
        == 0
    )
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
    objects = [
        json.loads(Path(settings.ann_file).read_text())['annotations'][i]
        for i in range(3)
    ]
    number = sum(len(entry['segments_info']) for entry in objects)
    assert rows['all']['TP'] + rows['all']['FN'] == number
    assert report['about']['images'] == 3 and report['worst'][0]['path'] == str(
        pictures[2]
    )
    assert report['worst'][0]['PQ'] == 0 < report['worst'][1]['PQ']
    worst = cv2.imread(str(tmp_path / 'out/worst_1.png')).astype(int)
    true, found = worst[:, :96], worst[:, -96:]  # with a gap between
    picture = cv2.imread(str(pictures[2]))
    assert (
        abs(found - picture).mean() < 8 < abs(true - picture).mean()
    )  # matplotlib resamples
