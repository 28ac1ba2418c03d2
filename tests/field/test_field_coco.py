"""Objects of COCO files as tools write them, and the line that is said where they are refused."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from helpers.field import SIZE, Reading, image, reading, refusal, write

BOX = [10, 5, 20, 10]
CAT = ('cat', (10, 5, 20, 10), 0)
CORNERS = [10, 5, 30, 5, 30, 15, 10, 15]
CATEGORIES = [dict(id=1, name='cat'), dict(id=2, name='dog')]


def entry(name: str = 'a.jpg', **more: Any) -> dict:
    return dict(dict(id=1, file_name=name, height=SIZE[0], width=SIZE[1]), **more)


def thing(**more: Any) -> dict:
    return dict(dict(image_id=1, category_id=1, bbox=BOX, area=200, iscrowd=0), **more)


def lacking(*keys: str, **more: Any) -> dict:
    return {key: value for key, value in thing(**more).items() if key not in keys}


def coco(
    images: Sequence, annotations: Sequence, categories: Any = CATEGORIES, **top: Any
) -> str:
    content = dict(images=images, annotations=annotations, categories=categories, **top)
    return json.dumps(
        {key: value for key, value in content.items() if value is not None}
    )


def folder(root: Path, train: str, names: Sequence[str] = ('a.jpg',)) -> Path:
    """A data set with this training file, and a cat in its validation image."""
    for name in names:
        image(root / 'images' / 'train' / name)
    image(root / 'images' / 'val' / 'v.jpg')
    write(root / 'annotations' / 'train.json', train)
    write(root / 'annotations' / 'val.json', coco([entry('v.jpg')], [thing()]))
    return root


def one(
    root: Path, *annotations: dict, categories: Any = CATEGORIES, **options: Any
) -> Reading:
    """The reading of one training image with these annotations, numbered unless they have ids."""
    return reading(
        folder(root, one_image(*annotations, categories=categories)), **options
    )


def one_image(*annotations: dict, categories: Any = CATEGORIES) -> str:
    given = [dict(dict(id=n), **item) for n, item in enumerate(annotations, start=10)]
    return coco([entry()], given, categories)


def objects(found: Reading) -> list[tuple]:
    return [item for items in found.objects['train'].values() for item in items]


def outlines(found: Reading) -> list[Any]:
    return [item.get('segmentation') for item in found.content['train']['annotations']]


def said(root: Path, *given: Any) -> str:
    """The one line of a data set that is refused: of annotations, or of the text of a file."""
    text = given[0] if isinstance(given[0], str) else one_image(*given)
    return refusal(folder(root, text, ('a.jpg', 'b.jpg')))


def lengths(size: tuple[int, int] = SIZE, *, is_text: bool = True) -> dict:
    """Run lengths of CORNERS."""
    mask = np.zeros(size, np.uint8, order='F')
    mask[5:15, 10:30] = 1
    if is_text:
        found = coco_mask.encode(mask)
        return dict(size=list(size), counts=found['counts'].decode())
    counts = [10 * size[0] + 5, *[10, size[0] - 10] * 19, 10]
    return dict(size=list(size), counts=[*counts, size[0] * size[1] - sum(counts)])


@pytest.mark.parametrize(
    'change, note',
    [
        pytest.param(dict(id=0), '', id='F1 id 0'),
        pytest.param(dict(id='q'), '', id='F5 id of text'),
        pytest.param(dict(area=0), '', id='F2 area 0'),
        pytest.param(dict(area=-5), '', id='F2 negative area'),
        pytest.param(dict(area=None), '', id='F2 no area'),
        pytest.param(dict(area='600'), '', id='F2 area of text'),
        pytest.param(dict(iscrowd=None), '', id='iscrowd null'),
        pytest.param(dict(iscrowd='0', ignore='0'), '', id='flags of text'),
        pytest.param(dict(iscrowd='FALSE', ignore=' 0.0'), '', id='more flags of text'),
        pytest.param(
            dict(bbox=[10, 5, 30, 15], bbox_mode=0), '', id='detectron2 XYXY_ABS'
        ),
        pytest.param(dict(bbox_mode=1), '', id='detectron2 XYWH_ABS'),
        pytest.param(dict(image_id='1'), '', id='F3 image_id of text, mmdet 4053'),
        pytest.param(dict(image_id=1.0, category_id=1.0), '', id='float ids'),
        pytest.param(dict(category_id='1'), '', id='category_id of text'),
        pytest.param(
            dict(bbox=['10', '5', '20', '10.0']), 'numbers are text', id='F9 text'
        ),
        pytest.param(
            dict(bbox=[30, 15, -20, -10]), 'negative width', id='F10 negative sides'
        ),
        pytest.param(dict(attributes=dict(rotation=0.0)), '', id='CVAT upright'),
        pytest.param(dict(attributes=[]), '', id='attributes are a list'),
        pytest.param(dict(score=0.9), 'with a score', id='F13 predictions'),
        pytest.param(
            dict(bbox=[10, 5, 20, 10.0], keypoints=[1, 2, 2]), '', id='key points'
        ),
        pytest.param(
            dict(bbox=None, segmentation=[CORNERS]), 'without a box', id='F9 bbox null'
        ),
        pytest.param(
            dict(bbox=[], segmentation=[CORNERS]), 'without a box', id='F9 bbox empty'
        ),
        pytest.param(
            dict(bbox=[], segmentation=lengths()), 'without a box', id='box of a mask'
        ),
        pytest.param(
            dict(bbox=[0, 0, 0, 0], segmentation=[CORNERS]),
            'without a box',
            id='box of zeros',
        ),
    ],
)
def test_an_object_is_read(tmp_path: Path, change: dict, note: str) -> None:
    found = one(tmp_path, thing(**change))
    assert objects(found) == [CAT]
    (item,) = found.content['train']['annotations']
    assert (item['id'], item['image_id'], item['area']) == (1, 1, 200)
    assert note in found.text and (note or len(found.text.splitlines()) == 1)


def test_ids_need_not_be_there_nor_differ(tmp_path: Path) -> None:
    """F1, F5: they are used for messages only."""
    given = [
        lacking('area', 'iscrowd'),
        thing(id=3, category_id=2),
        thing(id=3, bbox=[1] * 4),
        thing(bbox=[2] * 4),
    ]
    found = reading(folder(tmp_path, coco([entry()], given)))
    boxes = ('cat', (1, 1, 1, 1), 0), ('cat', (2, 2, 2, 2), 0)
    assert objects(found) == [CAT, ('dog', *CAT[1:]), *boxes]


@pytest.mark.parametrize('change', [dict(iscrowd=1), dict(ignore=1), dict(iscrowd='1')])
def test_ignored_objects_are_crowds(tmp_path: Path, change: dict) -> None:
    assert objects(one(tmp_path, thing(**change))) == [('cat', tuple(BOX), 1)]  # F3


@pytest.mark.parametrize(
    'change, line',
    [
        pytest.param(
            dict(bbox=[1, 2, 3]), 'bbox is [1, 2, 3], not', id='three numbers'
        ),
        pytest.param(
            dict(bbox=[1, 2, 3, 'x']), "bbox is 'x', which is no number", id='a word'
        ),
        pytest.param(dict(bbox=[1, None, 3, 4]), 'which is no number', id='null in it'),
        pytest.param(dict(bbox=[1, 2, float('nan'), 4]), 'not finite', id='F3 NaN'),
        pytest.param(dict(bbox=[1, 2, float('inf'), 4]), 'not finite', id='infinite'),
        pytest.param(dict(bbox='1 2 3 4'), "bbox is '1 2 3 4', not", id='a text'),
        pytest.param(dict(bbox=7), 'bbox is 7, not', id='a number'),
        pytest.param(
            dict(bbox_mode=4), 'bbox_mode is 4, not', id='detectron2 XYWHA_ABS'
        ),
        pytest.param(
            dict(bbox=[20, 15, 9, 5, 0.1]), 'no info.angle_version', id='five numbers'
        ),
        pytest.param(
            dict(segmentation=[[float('nan')] * 6]), 'not finite', id='NaN in a polygon'
        ),
        pytest.param(
            dict(segmentation=[['x'] * 6]),
            "is 'x', which is no number",
            id='text there',
        ),
        pytest.param(
            dict(segmentation=lengths((40, 30))),
            '[40, 30] for an image of [30, 40]',
            id='F14 RLE',
        ),
        pytest.param(
            dict(segmentation=dict(size=list(SIZE), counts=[5, 5])),
            '10 pixels',
            id='short RLE',
        ),
        pytest.param(
            dict(segmentation=dict(size=list(SIZE), counts='zzz99')),
            'broken',
            id='broken RLE',
        ),
        pytest.param(
            dict(segmentation=dict(size=list(SIZE), counts=['x', 5])),
            "a run length is 'x', which is no number",
            id='RLE of words',
        ),
        pytest.param(
            dict(segmentation=[CORNERS, lengths()]), 'has {', id='polygon and RLE'
        ),
        pytest.param(
            dict(segmentation=[CORNERS, None]), 'has None', id='polygon and null'
        ),
        pytest.param(
            dict(segmentation='polygon'), 'neither polygons nor run', id='a word'
        ),
    ],
)
def test_a_broken_object_is_named(tmp_path: Path, change: dict, line: str) -> None:
    """F9, B9: with the file and the annotation."""
    message = said(tmp_path, thing(), thing(id=7, **change))
    assert message.startswith(f'{tmp_path}/annotations/train.json, annotation 7: ')
    assert line in message


def test_a_corner_far_away_is_refused(tmp_path: Path) -> None:
    """pycocotools takes memory for each pixel on the way to it."""
    message = said(tmp_path, thing(segmentation=[[0, 0, 9, 9, 1e12, 0]]))
    assert 'annotation 10: a corner at 1e+12 pixels' in message


@pytest.mark.parametrize(
    'item, line',
    [
        pytest.param(lacking('bbox'), 'without a box, polygon or mask', id='nothing'),
        pytest.param(
            thing(bbox=None, segmentation=[]),
            'without a box, polygon or mask',
            id='null',
        ),
        pytest.param(
            thing(category_id=9), 'of category 9, which the file does not', id='F9'
        ),
        pytest.param(lacking('category_id'), 'of category None', id='make-sense 144'),
        pytest.param(
            thing(image_id=5), 'of an image that the file does not list', id='F3'
        ),
        pytest.param(
            lacking('image_id'), 'of an image that the file does not list', id='none'
        ),
        pytest.param(
            thing(bbox=[0] * 4, keypoints=[9, 9, 2]),
            'of key points without a box',
            id='F10e',
        ),
        pytest.param(
            lacking('bbox', keypoints=[9, 9, 2]),
            'of key points without a box',
            id='F10e, none',
        ),
        pytest.param(
            thing(bbox=[50, 5, 9, 9]), 'outside of its image', id='F3 outside'
        ),
    ],
)
def test_what_is_left_out_is_counted(tmp_path: Path, item: dict, line: str) -> None:
    found = one(tmp_path, thing(), item)
    assert objects(found) == [CAT]
    assert f'1 x object {line}' in found.text and 'annotation 11' in found.text


def test_an_image_that_lost_its_objects_is_no_negative(tmp_path: Path) -> None:
    """F11"""
    images = [entry(), entry('b.jpg', id=2), entry('c.jpg', id=3)]
    things = [thing(), thing(id=2, image_id=2, category_id=9)]
    found = reading(folder(tmp_path, coco(images, things), ('a.jpg', 'b.jpg', 'c.jpg')))
    assert found.objects['train'] == {'a.jpg': [CAT], 'c.jpg': []}


@pytest.mark.parametrize(
    'given, expected, note',
    [
        pytest.param([CORNERS], [CORNERS], '', id='polygon'),
        pytest.param([[*CORNERS, 10, 5]], [[*CORNERS, 10, 5]], '', id='closed'),
        pytest.param(CORNERS, [CORNERS], 'another form', id='F14 flat, VIA'),
        pytest.param(
            [[10, 5], [30, 5], [30, 15], [10, 15]],
            [CORNERS],
            'another form',
            id='pairs',
        ),
        pytest.param(
            [[[10, 5], [30, 5], [30, 15], [10, 15]]], [CORNERS], 'another', id='deeper'
        ),
        pytest.param([[*map(str, CORNERS)]], [CORNERS], 'another form', id='text'),
        pytest.param(
            [CORNERS, [1, 1, 2, 2]], [CORNERS], 'its other parts', id='a part of 2'
        ),
        pytest.param(
            [CORNERS, CORNERS[:7]], [CORNERS], 'its other parts', id='an odd part'
        ),
        pytest.param([], None, '', id='none'),
        pytest.param(None, None, '', id='null'),
        pytest.param([[]], None, 'its box is taken', id='F14 empty part'),
        pytest.param([[10, 5, 30, 15]], None, 'its box is taken', id='F14 two corners'),
        pytest.param([CORNERS[:7]], None, 'its box is taken', id='F14 odd'),
        pytest.param([[10, 5], [30, 15]], None, 'its box is taken', id='two pairs'),
        pytest.param(lengths(), lengths(), '', id='B27 RLE of an object, SAM'),
        pytest.param(lengths(is_text=False), lengths(), '', id='B27 uncompressed RLE'),
        pytest.param(
            dict(size=list(SIZE), counts=[*map(str, lengths(is_text=False)['counts'])]),
            lengths(),
            '',
            id='RLE of text',
        ),
        pytest.param(
            [lengths()], lengths(), 'lengths in another form', id='F10d list of RLE'
        ),
        pytest.param(
            [lengths()] * 2, lengths(), 'lengths in another form', id='two RLE'
        ),
        pytest.param(
            dict(size=list(SIZE), counts=str(lengths()['counts'].encode())),
            lengths(),
            'lengths in another form',
            id='F10d text of bytes',
        ),
        pytest.param(
            dict(size='[30, 40]', counts=str(lengths(is_text=False)['counts'])[1:-1]),
            lengths(),
            'lengths in another form',
            id='F10d text of numbers',
        ),
        pytest.param(
            dict(
                size=list(SIZE),
                counts=str(lengths(is_text=False)['counts']).replace(',', '')[1:-1],
            ),
            lengths(),
            'lengths in another form',
            id='F10d numbers and spaces',
        ),
        pytest.param(str(lengths()), lengths(), '', id='F10d text of Python'),
        pytest.param(json.dumps([CORNERS]), [CORNERS], '', id='F10d text of JSON'),
        pytest.param(
            dict(size=list(SIZE)), None, 'without counts', id='F14 RLE without counts'
        ),
        pytest.param(
            dict(size=list(SIZE), counts=[1200]), None, 'without a pixel', id='empty'
        ),
        pytest.param({}, None, '', id='empty object'),
    ],
)
def test_outlines(tmp_path: Path, given: Any, expected: Any, note: str) -> None:
    """F14, B27: the box stays whatever the outline is."""
    found = one(tmp_path, thing(segmentation=given))
    assert objects(found) == [CAT] and outlines(found) == [expected]
    assert note in found.text and (note or len(found.text.splitlines()) == 1)


def test_a_polygon_within_another_of_its_object_is_said(tmp_path: Path) -> None:
    """F7: it is filled, as COCO's tools do; one beside it is a part."""
    inner, beside = [14, 7, 20, 7, 20, 12, 14, 12], [32, 5, 38, 5, 38, 9]
    found = one(tmp_path, thing(segmentation=[CORNERS, inner]))
    (item,) = found.content['train']['annotations']
    assert (
        item['area'] == 200
        and '1 x polygon wholly within another of its object' in found.text
    )
    found = one(tmp_path, thing(bbox=[10, 5, 28, 10], segmentation=[CORNERS, beside]))
    assert 'polygon' not in found.text


def test_a_box_at_the_origin_is_no_pair_of_corners(tmp_path: Path) -> None:
    found = one(
        tmp_path, thing(bbox=[0, 0, 3, 3], segmentation=[[1, 1, 5, 1, 5, 5, 1, 5]])
    )
    assert (
        'box unlike its polygon or mask' in found.text
        and 'shows to be' not in found.text
    )


def test_images_of_lvis_that_are_not_labelled_for_all_classes(tmp_path: Path) -> None:
    """F13: a class without an object is background where it was looked for, all of it labelled."""
    names = [*CATEGORIES, dict(id=3, name='cow')]
    kinds = dict(not_exhaustive_category_ids=[], neg_category_ids=[])
    cases = (
        (dict(kinds, neg_category_ids=[2]), ['cow']),
        (dict(kinds, neg_category_ids=[2, 3]), []),
        (
            dict(kinds, not_exhaustive_category_ids=[1], neg_category_ids=[2]),
            ['cat', 'cow'],
        ),
        (dict(not_exhaustive_category_ids=[1]), ['cat']),
        (kinds, []),  # as exported by tools that do not know LVIS
    )
    for number, (given, expected) in enumerate(cases):
        root = tmp_path / str(number)
        root.mkdir()
        found = reading(folder(root, coco([entry(**given)], [thing()], names)))
        (objects_of,) = found.objects['train'].values()
        whole = [(name, (0, 0, *SIZE[::-1]), 1) for name in expected]
        assert objects_of == [CAT, *whole]
        line = f'{len(expected)} x class that not all training images label'
        assert (line in found.text) == bool(expected)


def test_crowds_keep_their_run_lengths(tmp_path: Path) -> None:
    found = one(tmp_path, thing(iscrowd=1, segmentation=lengths(is_text=False)))
    assert outlines(found) == [lengths()] and objects(found) == [('cat', tuple(BOX), 1)]


def test_a_polygon_that_leaves_the_image_keeps_its_slope(tmp_path: Path) -> None:
    """B5: only the box is clipped, to what is seen of it."""
    triangle = [-20, 10, 20, 0, 20, 20]
    found = one(tmp_path, thing(bbox=[-20, 0, 40, 20], segmentation=[triangle]))
    assert outlines(found) == [[triangle]] and objects(found) == [
        ('cat', (0, 0, 20, 20), 0)
    ]
    assert found.content['train']['annotations'][0]['area'] == pytest.approx(
        300, abs=15
    )


def test_a_box_unlike_its_outline_is_said(tmp_path: Path) -> None:
    found = one(tmp_path, thing(segmentation=[[1, 1, 9, 1, 9, 9]]))
    assert objects(found) == [CAT] and 'box unlike its polygon or mask' in found.text


@pytest.mark.parametrize('rotation', [45, 45.0, '45', -135.0, 405])
def test_rotated_boxes_of_cvat(tmp_path: Path, rotation: object) -> None:
    """F27: about the centre; for upright boxes, too."""
    item = thing(
        bbox=[10, 12, 20, 6], segmentation=[], attributes=dict(rotation=rotation)
    )
    side = 26 / 2**0.5
    expected = [20 - side / 2, 15 - side / 2, side, side]
    for oriented in (False, True):
        (found,) = one(tmp_path, item, oriented=oriented).content['train'][
            'annotations'
        ]
        np.testing.assert_allclose(found['bbox'], expected, atol=1e-4)
        assert oriented is False or found['area'] == pytest.approx(120)


def test_an_outline_says_more_than_a_rotation(tmp_path: Path) -> None:
    item = thing(segmentation=[CORNERS], attributes=dict(rotation=30, occluded=False))
    assert outlines(one(tmp_path, item)) == [[CORNERS]]


def test_five_numbers_by_the_convention_that_the_file_names(tmp_path: Path) -> None:
    item = thing(bbox=[20, 15, 20, 6, np.pi / 4])
    text = coco([entry()], [item], info=dict(angle_version='le90'))
    (found,) = reading(folder(tmp_path, text), oriented=True).content['train'][
        'annotations'
    ]
    assert found['area'] == pytest.approx(120)
    assert found['bbox'][2] == pytest.approx(26 / 2**0.5)


@pytest.mark.parametrize(
    'boxes, line',
    [
        (
            [[0.25, 0.2, 0.5, 0.3], [0.1, 0.1, 0.9, 0.9]],
            'fractions of the image size',
        ),  # F3
        (
            [[10, 5, 30, 15], [25, 12, 38, 29], [20, 9, 39, 20], [3, 3, 9, 9]],
            'two corners',
        ),
    ],
)
def test_boxes_in_other_numbers(
    tmp_path: Path, boxes: list[list[float]], line: str
) -> None:
    line = line.replace('two corners', '[left, top, right, bottom]')
    message = said(tmp_path, *[thing(bbox=box) for box in boxes])
    assert line in message and 'train.json' in message


def test_two_boxes_that_leave_their_image_are_corners(tmp_path: Path) -> None:
    message = said(tmp_path, thing(bbox=[25, 15, 38, 28]), thing(bbox=[20, 10, 39, 29]))
    assert 'train.json: boxes are [left, top, right, bottom]' in message


@pytest.mark.parametrize(
    'box, line',
    [
        (
            [10, 5, 30, 15],
            'are unlike their polygons or masks; they are [left, top, right, bottom]: write',
        ),
        (
            [20, 10, 20, 10],
            'are unlike their polygons or masks; write',
        ),  # centre, width, height
    ],
)
def test_boxes_unlike_their_outlines(
    tmp_path: Path, box: list[float], line: str
) -> None:
    things = [thing(bbox=box, segmentation=[CORNERS], category_id=n) for n in (1, 2)]
    fits = [thing(segmentation=[CORNERS], category_id=n) for n in (1, 2)]
    assert f'train.json: 2 of 3 boxes {line}' in said(tmp_path, *things, fits[0])
    found = one(tmp_path, *things, *fits)
    if box[0] == 20:
        assert len(objects(found)) == 4
    else:  # the outlines show what they are: the same objects
        assert objects(found) == [CAT, ('dog', *CAT[1:])]
        assert '2 x box that its polygon or mask shows to be [left, top' in found.text


def test_corners_that_overlap_their_outlines_are_counted(tmp_path: Path) -> None:
    """Near the upper left corners, read as sizes, are not far from the outline."""
    near = [3, 3, 33, 33, 3, 33]
    things = [thing(bbox=[3, 3, 33, 33], segmentation=[near], category_id=1)]
    things += [thing(bbox=[3, 3, 33, 33], segmentation=[near], category_id=2)]
    assert 'train.json: 2 of 2 boxes are unlike' in said(tmp_path, *things)


def test_outlines_in_other_numbers(tmp_path: Path) -> None:
    shares = [0.25, 0.2, 0.75, 0.2, 0.75, 0.5]
    message = said(tmp_path, thing(segmentation=[shares]))
    assert 'train.json: all polygons are fractions of the image size' in message


def test_small_boxes_and_clipped_ones_are_no_other_numbers(tmp_path: Path) -> None:
    boxes = [[0.5, 0.5, 0.4, 0.4], [2, 2, 9, 9], [30, 20, 20, 20]]
    found = one(tmp_path, *[thing(bbox=box) for box in boxes])
    assert [box for _, box, _ in objects(found)] == [(2, 2, 9, 9), (30, 20, 10, 10)]
    assert 'box of less than a pixel' in found.text and '(clipped)' in found.text


def test_the_same_annotation_twice_is_one(tmp_path: Path) -> None:
    found = one(tmp_path, thing(id=4), thing(id=4))
    assert objects(found) == [CAT] and 'twice (taken once)' in found.text


@pytest.mark.parametrize(
    'images, things, expected',
    [
        pytest.param(
            [entry(id='x'), entry('b.jpg', id='y')],
            [thing(image_id='y')],
            {'a.jpg': [], 'b.jpg': [CAT]},
            id='F5 ids of text',
        ),
        pytest.param(
            [entry(id='007'), entry('b.jpg', id=7)],
            [thing(image_id='007')],
            {'a.jpg': [CAT], 'b.jpg': []},
            id='007 is not 7',
        ),
        pytest.param(
            [entry(), entry()], [thing()], {'a.jpg': [CAT]}, id='F25 an entry twice'
        ),
        pytest.param([entry(id=0)], [thing(image_id=0)], {'a.jpg': [CAT]}, id='id 0'),
        pytest.param(
            [entry(id=0)], [thing(image_id=-0.0)], {'a.jpg': [CAT]}, id='id -0.0'
        ),
    ],
)
def test_images_by_their_ids(
    tmp_path: Path, images: list, things: list, expected: dict
) -> None:
    found = reading(folder(tmp_path, coco(images, things), ('a.jpg', 'b.jpg')))
    assert found.objects['train'] == expected
    assert [item['id'] for item in found.content['train']['images']] == [1, 2][
        : len(expected)
    ]


def test_two_images_of_one_id_are_refused(tmp_path: Path) -> None:
    text = coco([entry(), entry('b.jpg')], [thing()])
    assert 'id 1 is of a.jpg and of b.jpg' in said(tmp_path, text)  # F25, cvat 4185


@pytest.mark.parametrize(
    'sides',
    [
        dict(height='30', width='40'),
        dict(height=30.0, width=40.0),
        dict(height=None, width=None),
        dict(height=0, width=0),
        dict(height='', width=''),
        dict(height=-1, width=-1),
        dict(height='0', width='0'),
    ],
)
def test_sizes_as_they_are_written(tmp_path: Path, sides: dict) -> None:
    """F9: text is a number; what says nothing is taken from the image."""
    found = reading(folder(tmp_path, coco([entry(**sides)], [thing()])))
    assert objects(found) == [CAT]
    assert (found.content['train']['images'][0]['height'], SIZE[1]) == SIZE


def test_sizes_may_be_absent(tmp_path: Path) -> None:
    images = [dict(id=1, file_name='a.jpg')]
    assert objects(reading(folder(tmp_path, coco(images, [thing()])))) == [CAT]


@pytest.mark.parametrize(
    'sides, line',
    [
        (
            dict(height=60, width=80),
            'a.jpg: 80 x 60 by its labels, the image has 40 x 30',
        ),  # B28
        (dict(height=40, width=30), 'a.jpg: 30 x 40 by its labels'),  # F3: swapped
        (dict(height='high'), "'high', which is no number"),
    ],
)
def test_wrong_sizes_are_refused(tmp_path: Path, sides: dict, line: str) -> None:
    assert line in said(tmp_path, coco([entry(**sides)], [thing()]))


def test_labels_before_an_exif_rotation(tmp_path: Path) -> None:
    """B28: of the file's own pixels, 40 x 30, which are shown as 30 x 40."""
    exif = image(tmp_path / 'plain.jpg')
    root = folder(tmp_path / 'data', coco([entry()], [thing(segmentation=lengths())]))
    with Image.open(exif) as picture:
        tags = picture.getexif()
        tags[274] = 6
        picture.save(root / 'images' / 'train' / 'a.jpg', exif=tags)
    found = reading(root)
    assert objects(found) == [('cat', (15, 10, 10, 20), 0)]
    assert outlines(found)[0]['size'] == [40, 30] and 'EXIF' in found.text
