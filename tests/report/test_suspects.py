"""Labels that are broken on purpose are suspect, and right ones are not."""

import csv
from pathlib import Path

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from rope_dense.report.matching import match_truth
from rope_dense.report.page import Page
from rope_dense.report.painter import Painter
from rope_dense.report.suspects import COLUMNS, Suspect, add_suspects, find_suspects

OBJECT, BESIDE, FAR = [10, 10, 20, 20], [20, 10, 20, 20], [60, 40, 12, 12]
# Labels and predictions (box, class, score): kind, suspicion, number of the label
CASES = {
    'right': ([(OBJECT, 1)], [(OBJECT, 1, 0.9)], []),
    'nothing is found': ([(OBJECT, 1)], [], []),
    'missing': ([(OBJECT, 1)], [(OBJECT, 1, 0.9), (FAR, 2, 0.8)], [('missing', 0.8, None)]),
    'no label at all': ([], [(FAR, 2, 0.8)], [('missing', 0.8, None)]),
    'one place, two classes': ([], [(FAR, 2, 0.8), (FAR, 1, 0.7)], [('missing', 0.8, None)]),
    'class': ([(OBJECT, 1)], [(OBJECT, 2, 0.9)], [('class', 0.9, 0)]),
    'both classes': ([(OBJECT, 1)], [(OBJECT, 2, 0.9), (OBJECT, 1, 0.6)], [('class', 0.36, 0)]),
    'box': ([(OBJECT, 1)], [(BESIDE, 1, 0.9)], [('box', 0.6, 0)]),
    'found beside another': ([(OBJECT, 1)], [(OBJECT, 1, 0.9), ([28, 10, 20, 20], 1, 0.9)], None),
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


@pytest.mark.parametrize('masks', [False, True], ids=['boxes', 'masks'])
@pytest.mark.parametrize('name', CASES)
def test_suspects(name: str, masks: bool) -> None:
    labels, predictions, expected = CASES[name]
    matches = match_truth(annotations(labels, masks), annotations(predictions, masks), masks)
    found = find_suspects(matches, masks)
    if expected is None:  # IoU 2/38 with the label: a missing one, nearly as sure as without it
        assert [(x.kind, x.suspicion) for x in found] == [
            ('missing', pytest.approx(0.9 * (1 - 2 * 2 / 38)))
        ]
        return
    assert [(x.kind, x.label and x.label['id']) for x in found] == [(k, n) for k, _, n in expected]
    assert [x.suspicion for x in found] == pytest.approx([score for _, score, _ in expected])


def test_crowds_are_not_suspect() -> None:
    crowd = annotations([(OBJECT, 1)])[0] | dict(iscrowd=1)
    assert not find_suspects(match_truth([crowd], annotations([([12, 12, 9, 9], 1, 0.9)])))


def test_the_file_has_all_and_the_page_the_first(tmp_path: Path) -> None:
    label, found = annotations([(OBJECT, 1)])[0], annotations([(BESIDE, 2, 0.9)])[0]
    suspects = [Suspect(0.9, 'class', label, found, 1 / 3), Suspect(0.5, 'missing', None, found, 0)]
    images = [dict(id=0, path='/pictures/a, b.png', height=64, width=80)]
    picture = np.full((64, 80, 3), 90, np.uint8)
    colours = [(255, 0, 0), (0, 0, 255)]
    painter = Painter(images, [], [], ['cat', 'dog'], colours, lambda path: picture)
    page = Page(tmp_path, 'made', {})
    add_suspects(page, painter, suspects * 15)
    page.write()
    with open(tmp_path / 'suspects.csv', encoding='utf-8', newline='') as file:
        rows = [*csv.reader(file)]
    assert rows[0] == [*COLUMNS] and len(rows) == 31
    boxes = ['10.0 10.0 20.0 20.0', '20.0 10.0 20.0 20.0']
    assert rows[1] == ['1', '0.9', 'class', 'cat', 'dog 0.90', '0.333', images[0]['path'], *boxes]
    assert rows[2][3] == rows[2][7] == ''
    assert len(page.figures['suspects']) == 24 and (tmp_path / 'suspect_labels.png').is_file()
    crop = painter.crop(found, label)
    assert (crop == (255, 210, 0)).all(-1).any() and (crop == (0, 110, 255)).all(-1).any()
    assert not (painter.crop(label) == (0, 110, 255)).all(-1).any()
    assert not (crop == picture[0, 0]).all()
