"""Labels that are broken on purpose are suspect, and right ones are not."""

import csv
import io
import json
import os
from pathlib import Path

import mmcv
import numpy as np
import pytest
from pycocotools import mask as coco_mask

from rope_dense.report.objects import Matches, match_truth, objects_of
from rope_dense.report.page import Page
from rope_dense.report.painter import LEGIBLE, Painter, Picture
from rope_dense.report.predictions import Part
from rope_dense.report.record import Report
from rope_dense.report.suspects import COLUMNS, Suspect, add_suspects, find_suspects
from rope_dense.utils.results import Results

OBJECT, BESIDE, FAR = [10, 10, 20, 20], [20, 10, 20, 20], [60, 40, 12, 12]
# Labels and predictions (box, class, score): kind, suspicion, number of the label
CASES = {
    'right': ([(OBJECT, 1)], [(OBJECT, 1, 0.9)], []),
    'nothing is found': ([(OBJECT, 1)], [], []),
    'missing': (
        [(OBJECT, 1)],
        [(OBJECT, 1, 0.9), (FAR, 2, 0.8)],
        [('missing', 0.8, None)],
    ),
    'no label at all': ([], [(FAR, 2, 0.8)], [('missing', 0.8, None)]),
    'one place, two classes': (
        [],
        [(FAR, 2, 0.8), (FAR, 1, 0.7)],
        [('missing', 0.8, None)],
    ),
    'class': ([(OBJECT, 1)], [(OBJECT, 2, 0.9)], [('class', 0.9, 0)]),
    'both classes': (
        [(OBJECT, 1)],
        [(OBJECT, 2, 0.9), (OBJECT, 1, 0.6)],
        [('class', 0.36, 0)],
    ),
    'box': ([(OBJECT, 1)], [(BESIDE, 1, 0.9)], [('box', 0.6, 0)]),
    'found beside another': (
        [(OBJECT, 1)],
        [(OBJECT, 1, 0.9), ([28, 10, 20, 20], 1, 0.9)],
        None,
    ),
    'double': ([(OBJECT, 1), (OBJECT, 1)], [(OBJECT, 1, 0.9)], [('double', 0.9, 1)]),
    'two objects': ([(OBJECT, 1)] * 2, [(OBJECT, 1, 0.9), (OBJECT, 1, 0.8)], []),
    'not confident': ([(OBJECT, 1)], [(OBJECT, 2, 0.2), (FAR, 1, 0.24)], []),
}


def annotations(items: list, masks: bool = False) -> list[dict]:
    results = []
    for number, (box, label, *score) in enumerate(items):
        item = dict(id=number, image_id=0, category_id=label, bbox=box, iscrowd=0)
        if masks:
            drawn = np.zeros((64, 80), np.uint8, order='F')
            drawn[box[1] : box[1] + box[3], box[0] : box[0] + box[2]] = 1
            item['segmentation'] = coco_mask.encode(drawn)
        results.append(item | (dict(score=score[0]) if score else {}))
    return results


def match(truth: list[dict], predictions: list[dict]) -> Matches:
    masks = any('segmentation' in item for item in (*truth, *predictions))
    return match_truth(objects_of(truth), objects_of(predictions), masks)


@pytest.mark.parametrize('masks', [False, True], ids=['boxes', 'masks'])
@pytest.mark.parametrize('name', CASES)
def test_suspects(name: str, masks: bool) -> None:
    labels, predictions, expected = CASES[name]
    found = find_suspects(
        match(annotations(labels, masks), annotations(predictions, masks)), masks
    )
    if (
        expected is None
    ):  # IoU 2/38 with the label: a missing one, nearly as sure as without it
        assert [(x.kind, x.suspicion) for x in found] == [
            ('missing', pytest.approx(0.9 * (1 - 2 * 2 / 38)))
        ]
        return
    labels = [None if x.label is None else x.label['id'] for x in found]
    assert [(x.kind, label) for x, label in zip(found, labels, strict=True)] == [
        (k, n) for k, _, n in expected
    ]
    assert [x.suspicion for x in found] == pytest.approx(
        [score for _, score, _ in expected]
    )


def test_crowds_are_not_suspect() -> None:
    crowd = annotations([(OBJECT, 1)])[0] | dict(iscrowd=1)
    assert not find_suspects(match([crowd], annotations([([12, 12, 9, 9], 1, 0.9)])))


def read_picture(path: str, part: Part | None) -> np.ndarray:
    left, top, right, bottom = part or (0, 0, 80, 64)
    return np.full((64, 80, 3), 90, np.uint8)[top:bottom, left:right]


def made_painter(path: str, *classes: str) -> Painter:
    pictures = [Picture(path, height=64, width=80)]
    return Painter(
        pictures, match([], []), classes, [(255, 0, 0), (0, 0, 255)], read_picture
    )


def written_rows(
    folder: Path, painter: Painter, suspects: list[Suspect]
) -> list[list[str]]:
    with Results(folder, 'report') as results:
        page = Page(results, 'made', Report(about={}, names=[], settings={}))
        add_suspects(page, painter, suspects)
        page.write()
    text = (folder / 'suspects.csv').read_bytes().decode('utf-8', 'surrogateescape')
    return [*csv.reader(io.StringIO(text))]


def test_the_file_has_all_and_the_page_the_first(tmp_path: Path) -> None:
    (label,), (found,) = (
        objects_of(annotations(x)) for x in ([(OBJECT, 1)], [(BESIDE, 2, 0.9)])
    )
    suspects = [
        Suspect(0.9, 'class', label, found, 1 / 3),
        Suspect(0.5, 'missing', None, found, 0),
    ]
    painter = made_painter('/pictures/a, b.png', 'cat', 'dog')
    rows = written_rows(tmp_path, painter, suspects * 15)
    assert rows[0] == [*COLUMNS] and len(rows) == 31
    boxes = ['10.0 10.0 20.0 20.0', '20.0 10.0 20.0 20.0']
    assert rows[1] == [
        '1',
        '0.9',
        'class',
        'cat',
        'dog 0.90',
        '0.333',
        '/pictures/a, b.png',
        *boxes,
    ]
    assert rows[2][3] == rows[2][7] == ''
    report = json.loads((tmp_path / 'report.json').read_text())
    assert len(report['suspects']) == 24 and (tmp_path / 'suspect_labels.png').is_file()
    crop = painter.crop(found, label)
    assert (crop == (255, 210, 0)).all(-1).any() and (crop == (0, 110, 255)).all(
        -1
    ).any()
    assert not (painter.crop(label) == (0, 110, 255)).all(-1).any()
    assert not (crop == 90).all()


def test_crops_read_no_more_than_they_show() -> None:
    """The same as of a whole picture, also where they reach beyond it."""
    painter = made_painter('a.png', 'cat', 'dog')
    whole, parts = (
        np.random.default_rng(0).integers(256, size=(64, 80, 3), dtype=np.uint8),
        [],
    )

    def read(path: str, part: Part | None) -> np.ndarray:
        assert part
        parts.append(part)
        return np.ascontiguousarray(whole[part[1] : part[3], part[0] : part[2]])

    painter.read = read
    for box in (
        [1.7, 2.2, 6, 8],
        [30.5, 20, 10.2, 11],
        [70, 50, 10, 14],
        [0, 0, 80, 64],
        [90, 9, 3, 3],
    ):
        (item,) = objects_of([dict(image_id=0, bbox=box, category_id=1)])
        crop = painter.crop(item)
        corners = np.array([[box[0], box[1], box[0] + box[2], box[1] + box[3]]])
        marked = mmcv.imshow_bboxes(
            whole.copy(), [corners], colors=[(255, 210, 0)], show=False
        )
        side, centre = max(*box[2:], 8), np.array(box[:2]) + np.array(box[2:]) / 2
        expected = mmcv.imcrop(
            marked, np.concatenate([centre - side, centre + side - 1]), pad_fill=128
        )
        if box[0] < 80:  # else nothing of the image is near
            np.testing.assert_array_equal(crop, expected)
        left, top, right, bottom = parts[-1]
        assert right - left <= 2 * side + 1 and bottom - top <= 2 * side + 1
        assert 0 <= left < right <= 80 and 0 <= top < bottom <= 64


@pytest.mark.parametrize(
    'box, right', [(OBJECT, True), ([3000, 1000, 20, 20], True), (OBJECT, False)]
)
def test_of_a_scene_a_part_with_objects_is_drawn(box: list[float], right: bool) -> None:
    """With an error, if there is one."""
    error = [2000, 2000, 20, 20]
    found = [(box, 1, 0.9)] if right else [(box, 1, 0.9), (error, 1, 0.5)]
    matches = match(annotations([(box, 1)]), annotations(found))
    pictures = [Picture('a.tif', height=3000, width=5000)]
    painter = Painter(pictures, matches, ['cat'], [(255, 0, 0)], read_picture)
    left, top, right_, bottom = painter.part(0)
    x, y = (box if right else error)[:2]
    assert left <= x < right_ and top <= y < bottom
    assert (right_ - left, bottom - top) == (LEGIBLE, LEGIBLE)


def test_names_are_no_formulas_and_keep_their_bytes(tmp_path: Path) -> None:
    (label,), (found,) = (
        objects_of(annotations(x)) for x in ([(OBJECT, 1)], [(BESIDE, 2, 0.9)])
    )
    path = os.fsdecode(b'=\xff\xfebad.png')
    painter = made_painter(path, '=cmd()', '$x^$')
    rows = written_rows(tmp_path, painter, [Suspect(0.9, 'class', label, found, 1 / 3)])
    assert rows[1][3:5] == ["'=cmd()", '$x^$ 0.90'] and rows[1][6] == f"'{path}"
    assert '\\udcff\\udcfebad.png' in (tmp_path / 'index.html').read_text(
        encoding='utf-8'
    )
