"""Labels that are broken on purpose are suspect, and right ones are not."""

import csv
import io
import os
from pathlib import Path

import mmcv
import numpy as np
import pytest

from helpers.rows import add_masks, annotations, read_json
from rope_dense.report.objects import Matches, match_truth, objects_of
from rope_dense.report.page import Page
from rope_dense.report.painter import LEGIBLE, Painter, Picture
from rope_dense.report.predictions import Part
from rope_dense.report.record import ReportRecord
from rope_dense.report.suspects import COLUMNS, Suspect, add_suspects, find_suspects
from rope_dense.utils.results import Results

OBJECT = [10, 10, 20, 20]
BESIDE = [20, 10, 20, 20]
FAR = [60, 40, 12, 12]
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
    # IoU 2/38 with the label: a missing one, nearly as sure as without it.
    'found beside another': (
        [(OBJECT, 1)],
        [(OBJECT, 1, 0.9), ([28, 10, 20, 20], 1, 0.9)],
        [('missing', 0.9 * (1 - 2 * 2 / 38), None)],
    ),
    'double': ([(OBJECT, 1), (OBJECT, 1)], [(OBJECT, 1, 0.9)], [('double', 0.9, 0)]),
    'two objects': ([(OBJECT, 1)] * 2, [(OBJECT, 1, 0.9), (OBJECT, 1, 0.8)], []),
    'not confident': ([(OBJECT, 1)], [(OBJECT, 2, 0.2), (FAR, 1, 0.24)], []),
}


def match(truth: list, predictions: list, masks: bool = False) -> Matches:
    """Matches of (box, class) and (box, class, score)."""
    labels = annotations(truth)
    found = annotations(predictions)
    if masks:
        add_masks([*labels, *found])
    return match_truth(objects_of(labels), objects_of(found), masks)


@pytest.mark.parametrize('masks', [False, True], ids=['boxes', 'masks'])
@pytest.mark.parametrize('name', CASES)
def test_suspects(name: str, masks: bool) -> None:
    labels, predictions, expected = CASES[name]
    found = find_suspects(match(labels, predictions, masks), masks)
    assert len(found) == len(expected)
    for given, (kind, suspicion, number) in zip(found, expected, strict=True):
        assert given.kind == kind
        assert given.suspicion == pytest.approx(suspicion)
        assert number == (None if given.label is None else given.label['id'])


def test_crowds_are_not_suspect() -> None:
    (crowd,) = annotations([(OBJECT, 1)])
    crowd['iscrowd'] = 1
    found = annotations([([12, 12, 9, 9], 1, 0.9)])
    assert not find_suspects(match_truth(objects_of([crowd]), objects_of(found)))


def read_picture(path: str, part: Part | None) -> np.ndarray:
    left, top, right, bottom = part or (0, 0, 80, 64)
    return np.full((64, 80, 3), 90, np.uint8)[top:bottom, left:right]


def made_painter(path: str, *classes: str) -> Painter:
    pictures = [Picture(path, height=64, width=80)]
    colours = [(255, 0, 0), (0, 0, 255)]
    return Painter(pictures, match([], []), classes, colours, read_picture)


def written_rows(
    folder: Path,
    painter: Painter,
    suspects: list[Suspect],
) -> list[list[str]]:
    with Results(folder, 'report') as results:
        page = Page(results, 'made', ReportRecord(about={}, names=[], settings={}))
        add_suspects(page, painter, suspects)
        page.write()
    text = (folder / 'suspects.csv').read_bytes().decode('utf-8', 'surrogateescape')
    return [*csv.reader(io.StringIO(text))]


def test_the_file_has_all_and_the_page_the_first(tmp_path: Path) -> None:
    label, found = objects_of(annotations([(OBJECT, 1), (BESIDE, 2, 0.9)]))
    suspects = [
        Suspect(0.9, 'class', label, found, 1 / 3),
        Suspect(0.5, 'missing', None, found, 0),
    ]
    painter = made_painter('/pictures/a, b.png', 'cat', 'dog')
    rows = written_rows(tmp_path, painter, suspects * 15)
    assert rows[0] == [*COLUMNS]
    assert len(rows) == 31
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
    report = read_json(tmp_path / 'report.json')
    assert len(report['suspects']) == 24
    assert (tmp_path / 'suspect_labels.png').is_file()
    crop = painter.crop(found, label)
    yellow = (255, 210, 0)
    blue = (0, 110, 255)
    assert (crop == yellow).all(-1).any()
    assert (crop == blue).all(-1).any()
    assert not (painter.crop(label) == blue).all(-1).any()
    assert not (crop == 90).all()


def test_crops_read_no_more_than_they_show() -> None:
    """The same as of a whole picture, also where they reach beyond it."""
    painter = made_painter('a.png', 'cat', 'dog')
    parts = []
    random = np.random.default_rng(0)
    whole = random.integers(256, size=(64, 80, 3), dtype=np.uint8)

    def read(path: str, part: Part | None) -> np.ndarray:
        assert part
        parts.append(part)
        left, top, right, bottom = part
        return np.ascontiguousarray(whole[top:bottom, left:right])

    painter.read = read
    for left, top, width, height in (
        (1.7, 2.2, 6, 8),
        (30.5, 20, 10.2, 11),
        (70, 50, 10, 14),
        (0, 0, 80, 64),
        (90, 9, 3, 3),
    ):
        (item,) = objects_of(annotations([((left, top, width, height), 1)]))
        crop = painter.crop(item)
        box = np.array([[left, top, left + width, top + height]])
        yellow = [(255, 210, 0)]
        marked = mmcv.imshow_bboxes(whole.copy(), [box], colors=yellow, show=False)
        side = max(width, height, 8)
        x = left + width / 2
        y = top + height / 2
        square = np.array([x - side, y - side, x + side - 1, y + side - 1])
        expected = mmcv.imcrop(marked, square, pad_fill=128)
        if left < 80:  # else nothing of the image is near
            np.testing.assert_array_equal(crop, expected)
        left, top, right, bottom = parts[-1]
        assert right - left <= 2 * side + 1
        assert bottom - top <= 2 * side + 1
        assert 0 <= left < right <= 80
        assert 0 <= top < bottom <= 64


@pytest.mark.parametrize(
    'box, right',
    [(OBJECT, True), ([3000, 1000, 20, 20], True), (OBJECT, False)],
)
def test_of_a_scene_a_part_with_objects_is_drawn(box: list[float], right: bool) -> None:
    """With an error, if there is one."""
    error = [2000, 2000, 20, 20]
    found = [(box, 1, 0.9)] if right else [(box, 1, 0.9), (error, 1, 0.5)]
    matches = match([(box, 1)], found)
    pictures = [Picture('a.tif', height=3000, width=5000)]
    painter = Painter(pictures, matches, ['cat'], [(255, 0, 0)], read_picture)
    left, top, right_, bottom = painter.part(0)
    x, y = (box if right else error)[:2]
    assert left <= x < right_
    assert top <= y < bottom
    assert (right_ - left, bottom - top) == (LEGIBLE, LEGIBLE)


def test_names_are_no_formulas_and_keep_their_bytes(tmp_path: Path) -> None:
    label, found = objects_of(annotations([(OBJECT, 1), (BESIDE, 2, 0.9)]))
    path = os.fsdecode(b'=\xff\xfebad.png')
    painter = made_painter(path, '=cmd()', '$x^$')
    rows = written_rows(tmp_path, painter, [Suspect(0.9, 'class', label, found, 1 / 3)])
    assert rows[1][3:5] == ["'=cmd()", '$x^$ 0.90']
    assert rows[1][6] == f"'{path}"
    page = (tmp_path / 'index.html').read_text(encoding='utf-8')
    assert '\\udcff\\udcfebad.png' in page
