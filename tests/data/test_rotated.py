"""Rectangles of any orientation: geometry, readers of every format, and labels that are wrong."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rope_dense.data.convert_data import given_folder
from rope_dense.data.labels.annotations import Rules, annotate
from rope_dense.data.labels.folders import FORMATS
from rope_dense.data.labels.objects import Report
from rope_dense.data.rotated import (
    CONVENTIONS,
    check_rectangle,
    rectangle_corners,
    smallest_rectangle,
    to_convention,
)
from rope_dense.data.rotated_results import about_convention, rotated_annotation

WIDTH, HEIGHT = 120, 80
BOX = np.array([60.0, 42, 40, 12, np.deg2rad(30)])  # x, y, w, h, angle
CORNERS = rectangle_corners(BOX)


def boxes(number: int) -> np.ndarray:
    draw = np.random.default_rng(0).uniform
    low, high = [0, 0, 5, 5, -7], [9000, 9000, 90, 90, 7]
    return draw(low, high, (number, 5))


# ---------------------------------------------------------------- geometry


@pytest.mark.parametrize('convention', CONVENTIONS)
def test_conventions_and_corners_are_mmrotate_s(convention: str) -> None:
    pytest.importorskip('mmrotate')
    from mmrotate.structures.bbox import RotatedBoxes, rbox2qbox

    given = boxes(50)
    theirs = RotatedBoxes(torch.from_numpy(given))
    np.testing.assert_allclose(
        to_convention(given, convention),
        theirs.regularize_boxes(convention).numpy(),
        atol=1e-9,
    )
    corners = rectangle_corners(to_convention(given, convention)).reshape(-1, 4, 2)
    expected = rbox2qbox(torch.from_numpy(given)).numpy().reshape(-1, 4, 2)
    distances = np.linalg.norm(corners[:, :, None] - expected[:, None], axis=-1)
    assert distances.min(2).max() < 1e-9  # whichever corner is first


def test_the_smallest_rectangle_of_corners_is_the_rectangle() -> None:
    """Far from the origin, too, where float32 alone would lose a hundredth of a pixel."""
    for box in boxes(20):
        found = smallest_rectangle(rectangle_corners(box))
        np.testing.assert_allclose(found[:2], box[:2], atol=1e-4)
        np.testing.assert_allclose(
            to_convention(found, 'le90')[2:4],
            to_convention(box, 'le90')[2:4],
            atol=1e-4,
        )


@pytest.mark.parametrize(
    'box, convention, says',
    [
        (
            (9, 9, 4, 2, 90),
            'le90',
            'angle 90 is not from -1.5708 to 1.5708 radians, as le90',
        ),
        ((9, 9, 4, 2, 2.0), 'le90', 'angle 2 is not from'),
        ((9, 9, 4, 2, -1.0), 'le135', 'angle -1 is not from -0.7854 to 2.3562'),
        ((9, 9, 4, 2, 0.5), 'oc', 'angle 0.5 is not from -1.5708 to 0.0000'),
        ((9, 9, 2, 4, 0.5), 'le90', 'w=2 is less than h=4: le90 has w >= h'),
        (
            (9, 9, 2, 4, 0.5),
            'le45',
            "angle_version must be one of ('le90', 'le135', 'oc')",
        ),
    ],
)
def test_boxes_of_another_convention_are_refused(
    box: tuple[float, ...], convention: str, says: str
) -> None:
    with pytest.raises(ValueError) as error:
        check_rectangle(box, convention)
    assert says in str(error.value)


def test_boxes_in_their_convention_pass() -> None:
    for convention in CONVENTIONS:
        for box in to_convention(boxes(50), convention).astype(np.float32):
            check_rectangle(box, convention)


# ---------------------------------------------------------------- readers


def dota(folder: Path, corners: str = '') -> Path:
    corners = corners or ' '.join(f'{value:.3f}' for value in CORNERS)
    (folder / 'labelTxt').mkdir()
    head = 'imagesource:GoogleEarth\ngsd:0.146\n'
    text = f'{head}{corners} ship 0\n{corners} large vehicle 1\n'
    (folder / 'labelTxt' / 'a.txt').write_text(text)
    return folder / 'labelTxt'


def yolo(folder: Path) -> Path:
    values = CORNERS / np.tile([WIDTH, HEIGHT], 4)
    (folder / 'labels').mkdir()
    (folder / 'labels' / 'a.txt').write_text('0 ' + ' '.join(map(str, values)) + '\n')
    (folder / 'labels' / 'classes.txt').write_text('ship\n')
    return folder / 'labels'


def labelme(folder: Path) -> Path:
    points = CORNERS.reshape(4, 2).tolist()
    shape = dict(label='ship', shape_type='rotation', points=points, direction=0.5236)
    (folder / 'labels').mkdir()
    (folder / 'labels' / 'a.json').write_text(
        json.dumps(dict(imagePath='a.png', shapes=[shape]))
    )
    return folder / 'labels'


def cvat(folder: Path) -> Path:
    x, y, width, height, angle = BOX
    sides = f'xtl="{x - width / 2}" ytl="{y - height / 2}" xbr="{x + width / 2}"'
    sides += f' ybr="{y + height / 2}" rotation="{np.rad2deg(angle)}"'
    text = f'<annotations><image name="a.png" width="{WIDTH}" height="{HEIGHT}">'
    text += f'<box label="ship" {sides}/></image></annotations>'
    (folder / 'a.xml').write_text(text)
    return folder / 'a.xml'


def coco_file(folder: Path, info: dict | None = None, **annotation: object) -> Path:
    """With polygons, or what is given in their place."""
    polygon = dict(
        segmentation=[CORNERS.tolist()], bbox=[0, 0, 9, 9], area=9, iscrowd=0
    )
    item = dict(id=7, image_id=1, category_id=1, **(annotation or polygon))
    image = dict(id=1, file_name='a.png', width=WIDTH, height=HEIGHT)
    content = dict(
        images=[image], annotations=[item], categories=[dict(id=1, name='ship')]
    )
    (folder / 'a.json').write_text(
        json.dumps(content | (dict(info=info) if info else {}))
    )
    return folder / 'a.json'


def coco(folder: Path) -> Path:
    return coco_file(folder)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    (tmp_path / 'images').mkdir()
    Image.new('RGB', (WIDTH, HEIGHT)).save(tmp_path / 'images' / 'a.png')
    return tmp_path / 'images'


CLASSES = 'large vehicle', 'ship'


def rectangles(name: str, source: Path, images: Path) -> tuple[list[dict], Report]:
    """The annotations of oriented boxes in a format, and the report."""
    numbers, report = {label: n for n, label in enumerate(CLASSES, start=1)}, Report()
    rules = Rules(numbers=numbers, oriented=True)
    (part,) = given_folder(name, source, images, None, None).splits.values()
    _, items = FORMATS[name].read(part, None, report)
    found = list(annotate(items, part, rules, report))
    return [item for _, annotations, _ in found for item in annotations], report


@pytest.mark.parametrize('write', [dota, yolo, labelme, cvat, coco])
def test_every_format_gives_the_same_rectangle(
    write: Callable[[Path], Path], tmp_path: Path, images: Path
) -> None:
    found, report = rectangles(write.__name__, write(tmp_path), images)
    assert found and not report.left_out
    for annotation in found:
        box = to_convention(smallest_rectangle(annotation['segmentation'][0]), 'le90')
        np.testing.assert_allclose(box, BOX, atol=2e-3)
        assert annotation['area'] == pytest.approx(40 * 12, rel=1e-3)


def test_results_are_read_as_labels(tmp_path: Path, images: Path) -> None:
    """A file of predictions in any convention is a file of labels."""
    for convention in CONVENTIONS:
        item = rotated_annotation(BOX, convention)
        source = coco_file(tmp_path, about_convention(convention), **item)
        (found,), _ = rectangles('coco', source, images)
        box = to_convention(smallest_rectangle(found['segmentation'][0]), 'le90')
        np.testing.assert_allclose(box, BOX, atol=1e-4)


def test_difficult_objects_are_ignored(tmp_path: Path, images: Path) -> None:
    found, _ = rectangles('dota', dota(tmp_path), images)
    assert [item['iscrowd'] for item in found] == [0, 1]
    assert [CLASSES[item['category_id'] - 1] for item in found] == [
        'ship',
        'large vehicle',
    ]


# ---------------------------------------------------------------- wrong labels


@pytest.mark.parametrize(
    'corners, says, is_left',
    [
        ('5 5 9 9 9 9 5 5', 'rectangle of less than a pixel (left out)', False),
        ('5 5 50 5 50 5.4 5 5.4', 'rectangle of less than a pixel', False),
        (
            '-50 5 -20 5 -20 20 -50 20',
            'rectangle with its centre outside of its image',
            False,
        ),
    ],
)
def test_odd_quadrilaterals_are_in_the_report(
    tmp_path: Path, images: Path, corners: str, says: str, is_left: bool
) -> None:
    found, report = rectangles('dota', dota(tmp_path, corners), images)
    text = '\n'.join(report.lines())
    assert f'2 x {says}' in text and 'a.txt, line 3, a.txt, line 4' in text
    assert len(found) == 2 * is_left


def test_five_numbers_need_their_convention(tmp_path: Path, images: Path) -> None:
    for info, box, says in [
        (
            None,
            BOX,
            'a.json, annotation 7: a box of five numbers, and no info.angle_version',
        ),
        (
            {'angle_version': 'oc'},
            BOX,
            'a.json, annotation 7: angle 0.523599 is not from -1.5708',
        ),
        (
            {'angle_version': 'le90'},
            [9, 9, 4, 2, 30],
            'annotation 7: angle 30 is not from',
        ),
    ]:
        with pytest.raises(ValueError) as error:
            rectangles('coco', coco_file(tmp_path, info, bbox=list(box)), images)
        assert says in str(error.value)
