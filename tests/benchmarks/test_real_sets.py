"""The bench of real sets: its evaluator, the labels that it gives other tools, its tables."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / 'benchmarks'))

import real_sets
from real_sets import Split
from real_sets_predict import as_json


def split(folder: Path, content: dict, classes: list[str]) -> Split:
    file = folder / 'labels.json'
    file.write_text(json.dumps(content))
    dataset = dict(
        ann_file=str(file), data_root=str(folder), metainfo=dict(classes=classes)
    )
    dataset['data_prefix'] = dict(img=str(folder))
    return Split(dict(val_dataloader=dict(dataset=dataset)), 'val')


def objects(folder: Path, boxes: list[list[float]], **more: object) -> Split:
    """One image of 40 x 20 pixels with objects of the second of two classes."""
    item = dict(image_id=7, category_id=5, iscrowd=0)
    labels = [
        item | dict(id=n, bbox=box, area=box[2] * box[3])
        for n, box in enumerate(boxes, 1)
    ]
    content = dict(
        images=[dict(id=7, file_name='a.png', width=40, height=20)],
        categories=[dict(id=3, name='cat'), dict(id=5, name='dog')],
        annotations=[label | more for label in labels],
    )
    return split(folder, content, ['cat', 'dog'])


def answer(boxes: list[list[float]], label: int = 1) -> dict:
    corners = [[x, y, x + w, y + h] for x, y, w, h in boxes]
    return dict(boxes=corners, scores=[0.5] * len(boxes), labels=[label] * len(boxes))


def test_one_of_two_objects_is_half_of_the_recalls(tmp_path: Path):
    boxes = [[0.0, 0.0, 10.0, 10.0], [20.0, 0.0, 10.0, 10.0]]
    truth = objects(tmp_path, boxes)
    expected = pytest.approx(100 * 51 / 101)  # recalls 0, 0.01 ... 0.5
    assert truth.precision([answer(boxes[:1])], 'bbox') == dict(
        value=expected, at_50=expected
    )
    # 7.9 of 10 columns: an IoU of 0.79, right at 0.5, 0.55 ... 0.75
    narrow = truth.precision([answer([[0.0, 0.0, 7.9, 10.0]])], 'bbox')
    assert narrow['at_50'] == expected
    assert narrow['value'] == pytest.approx(100 * 51 / 101 * 6 / 10)
    assert truth.precision([answer(boxes, label=0)], 'bbox')['value'] == 0
    assert truth.precision([answer([])], 'bbox') == dict(value=0.0, at_50=0.0)


def test_objects_beyond_a_hundred_count(tmp_path: Path):
    boxes = [
        [float(x), float(y), 1.0, 1.0] for x in range(0, 40, 2) for y in range(0, 20, 2)
    ]
    truth = objects(
        tmp_path, [*boxes, *([x + 1, y + 1, 1.0, 1.0] for x, y, _, _ in boxes[:50])]
    )
    found = [item['bbox'] for item in truth.content['annotations']]
    assert len(found) == 250
    assert truth.precision([answer(found)], 'bbox')['value'] == pytest.approx(100)


def test_masks_of_a_worker_are_evaluated(tmp_path: Path):
    outline = [[0.0, 0.0, 10.0, 0.0, 10.0, 10.0, 0.0, 10.0]]
    truth = objects(tmp_path, [[0.0, 0.0, 10.0, 10.0]], segmentation=outline)
    mask = np.zeros((1, 20, 40), bool)
    mask[:, :10, :10] = True
    found = {
        key: np.array(value) for key, value in answer([[0.0, 0.0, 10.0, 10.0]]).items()
    }
    for masks, value in ((mask, 100), (~mask, 0)):
        answers = json.loads(json.dumps([as_json(found | dict(masks=masks))]))
        assert truth.precision(answers, 'segm')['value'] == pytest.approx(value)


def test_mean_iou_leaves_out_pixels_of_no_class(tmp_path: Path):
    truth = split(tmp_path, dict(pairs=[['a.png', 'b.png']]), ['road', 'sky', 'car'])
    Image.fromarray(np.array([[0, 0, 1], [1, 255, 255]], np.uint8)).save(
        tmp_path / 'b.png'
    )
    Image.fromarray(np.array([[0, 1, 1], [1, 2, 0]], np.uint8)).save(tmp_path / '0.png')
    assert truth.images == [tmp_path / 'a.png']
    expected = 100 * (1 / 2 + 2 / 3) / 2  # road 1 of 2, sky 2 of 3; no car
    assert truth.mean_iou(tmp_path)['value'] == pytest.approx(expected)


def test_labels_for_other_tools(tmp_path: Path):
    boxes = objects(tmp_path, [[10.0, 5.0, 20.0, 10.0]])
    (tmp_path / 'a.png').write_bytes(b'pixels')
    real_sets.write_yolo(tmp_path / 'boxes', boxes, boxes)
    line = (tmp_path / 'boxes' / 'labels' / 'val' / '000007.txt').read_text()
    assert line == '1 0.500000 0.500000 0.500000 0.500000\n'
    assert (
        tmp_path / 'boxes' / 'images' / 'train' / '000007.png'
    ).read_bytes() == b'pixels'
    outline = [[0.0, 0.0, 40.0, 0.0, 40.0, 10.0], [1.0, 1.0, 2.0, 1.0]]
    masks = objects(tmp_path, [[0.0, 0.0, 40.0, 10.0]], segmentation=outline)
    real_sets.write_yolo(tmp_path / 'masks', masks, masks)
    line = (tmp_path / 'masks' / 'labels' / 'train' / '000007.txt').read_text()
    assert line == '1 0.000000 0.000000 1.000000 0.000000 1.000000 0.500000\n'


def test_the_page_is_of_the_rows(tmp_path: Path):
    """That of the repository has those of the csv file."""
    page = tmp_path / 'page.md'
    page.write_text(text := real_sets.PAGE.read_text())
    real_sets.write_page(page, real_sets.read_rows())
    assert page.read_text() == text


def test_seeds_of_a_command_are_one_line(tmp_path: Path):
    """By seed, the newest of each; seconds are their mean."""
    page = tmp_path / 'page.md'
    page.write_text('before\n<!-- tables -->\n<!-- end of tables -->after\n')
    row = dict.fromkeys(real_sets.HEADERS, '1') | dict(set='cards', task='realtime')
    measured = [('1', '9.0'), ('1', '20.0'), ('0', '10.0')]
    rows = [row | dict(seed=seed, value=value) for seed, value in measured]
    rows[2]['cpu_s'] = '3'
    real_sets.write_page(page, [*rows, row | dict(options='--lr 1', value='7')])
    lines = [line for line in page.read_text().splitlines() if line.startswith('| 1 ')]
    assert lines == [
        '| 1 | 1 | 1 | 1 | 0, 1 | 10.0, 20.0 | 1.0, 1.0 | 2 | 1 | 1 |',
        '| 1 | --lr 1 | 1 | 1 | 1 | 7.0 | 1.0 | 1 | 1 | 1 |',
    ]
