"""LabelMe's and X-AnyLabeling's files as people have them, and the line that is said else."""

import base64
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps
from pycocotools import mask as coco_mask

from helpers.field import SIZE, Reading, image, reading, refusal, write

BOX = [[10, 5], [30, 15]]
SQUARE = [[10, 5], [30, 5], [30, 15], [10, 15]]
CAT = ('cat', (10, 5, 20, 10), 0)
MANY = [
    f'{number}' for number in range(20)
]  # enough for a hash to give both splits some


def shape(kind: str | None = 'polygon', points: Any = SQUARE, **more: Any) -> dict:
    given = dict(label='cat', points=points, group_id=None, shape_type=kind, flags={})
    return given | more


def labelme(*shapes: Any, name: str | None = 'a.jpg', **more: Any) -> str:
    content = dict(
        version='5.4.1', flags={}, shapes=list(shapes), imagePath=name, imageData=None
    )
    return json.dumps(content | dict(imageHeight=SIZE[0], imageWidth=SIZE[1]) | more)


def folder(root: Path, text: str) -> Path:
    """A data set whose training image has this file, beside a validation image with a cat."""
    for split, content in (('train', text), ('val', labelme(shape()))):
        image(
            root / split / 'a.jpg', mode='RGB' if split == 'train' else 'L'
        )  # no copies
        write(root / split / 'a.json', content)
    return root


def one(root: Path, *shapes: Any, options: dict | None = None, **more: Any) -> Reading:
    return reading(folder(root, labelme(*shapes, **more)), **options or {})


def objects(found: Reading) -> list[tuple]:
    return [item for items in found.objects['train'].values() for item in items]


def outlines(found: Reading) -> list[Any]:
    return [item.get('segmentation') for item in found.content['train']['annotations']]


def png(mask: Any, mode: str | None = None) -> str:
    """A mask as LabelMe has it: a PNG in base64."""
    file = io.BytesIO()
    picture = Image.fromarray(np.asarray(mask))
    (picture.convert(mode) if mode else picture).save(file, 'PNG')
    return base64.b64encode(file.getvalue()).decode()


MASK = np.zeros(
    (11, 21), bool
)  # of the points 10, 5 and 30, 15: the last pixel is in it
MASK[:10, :20] = True


@pytest.mark.parametrize(
    'item',
    [
        pytest.param(shape(), id='polygon'),
        pytest.param(shape(points=[*SQUARE, SQUARE[0]]), id='closed'),
        pytest.param(shape(None), id='null shape_type'),
        pytest.param(
            dict(label='cat', points=SQUARE, line_color=None), id='of version 3'
        ),
        pytest.param(shape('rectangle', BOX), id='rectangle'),
        pytest.param(shape('rectangle', BOX[::-1]), id='reversed rectangle'),
        pytest.param(shape('rectangle', [[30, 5], [10, 15]]), id='other diagonal'),
        pytest.param(shape('rectangle', SQUARE), id='X-AnyLabeling rectangle'),
        pytest.param(
            shape('rotation', SQUARE, direction=0.0), id='X-AnyLabeling rotation'
        ),
        pytest.param(
            shape('oriented_rectangle', SQUARE), id='LabelMe oriented rectangle'
        ),
        pytest.param(shape('quadrilateral', SQUARE), id='quadrilateral'),
        pytest.param(shape('mask', BOX, mask=png(MASK)), id='F11 AI mask'),
        pytest.param(shape('mask', BOX, mask=png(MASK, 'L')), id='mask in grey'),
        pytest.param(shape('mask', BOX, mask=png(MASK, 'RGB')), id='mask in colours'),
        pytest.param(
            shape('mask', BOX, mask=f'data:image/png;base64,{png(MASK)}'),
            id='mask as an address',
        ),
        pytest.param(
            shape('mask', [[9.8, 5.2], [29.9, 15]], mask=png(MASK)), id='rounded place'
        ),
        pytest.param(
            shape(points=[[str(x), str(y)] for x, y in SQUARE]), id='points of text'
        ),
        pytest.param(shape(label=' cat '), id='F10 spaces'),
        pytest.param(
            shape(description='seen', score=0.5, attributes={}, kie_linking=[]),
            id='more',
        ),
        pytest.param(shape(flags=None, difficult='false'), id='no flags'),
        pytest.param(shape(flags=dict(difficult='FALSE')), id='a flag of text'),
        pytest.param(shape(group_id=4), id='a group of one'),
    ],
)
def test_a_shape_is_read(tmp_path: Path, item: dict) -> None:
    found = one(tmp_path, item)
    assert objects(found) == [CAT] and found.classes == ('cat',)
    assert len(found.text.splitlines()) == 1
    (given,) = found.content['train']['annotations']
    is_box = item.get('shape_type') == 'rectangle'
    assert given['area'] == pytest.approx(200) and ('segmentation' in given) != is_box


def test_a_circle(tmp_path: Path) -> None:
    for points in (
        [[20, 15], [28, 15]],
        [[20, 15], [20, 7]],
    ):  # centre, and any point on it
        found = one(tmp_path, shape('circle', points))
        assert objects(found) == [('cat', (12, 7, 16, 16), 0)]
        assert found.content['train']['annotations'][0]['area'] == pytest.approx(
            201, rel=0.05
        )


def test_rotated_rectangles_keep_their_angle(tmp_path: Path) -> None:
    diamond = [[20, 5], [30, 15], [20, 25], [10, 15]]
    for kind in ('rotation', 'oriented_rectangle', 'polygon', 'rectangle'):
        (item,) = one(
            tmp_path, shape(kind, diamond), options=dict(oriented=True)
        ).content['train']['annotations']
        assert item['area'] == pytest.approx(200) and item['bbox'] == pytest.approx(
            [10, 5, 20, 20]
        )


def test_a_mask_is_where_its_first_point_is(tmp_path: Path) -> None:
    """F11: a part of it may be outside of the image; without a size the header has it."""
    mask = np.zeros((8, 8), bool)
    mask[2:5, 1:4] = True
    more = dict(imageHeight=None, imageWidth=None)
    found = one(tmp_path, shape('mask', [[-2, 6], [5, 13]], mask=png(mask)), **more)
    assert objects(found) == [('cat', (0, 8, 2, 3), 0)]
    assert coco_mask.decode(outlines(found)[0]).sum() == 6


@pytest.mark.parametrize(
    'change',
    [dict(difficult=True), dict(difficult='true'), dict(flags=dict(difficult=True))],
)
def test_difficult_objects_are_ignored(tmp_path: Path, change: dict) -> None:
    """X-AnyLabeling"""
    root = folder(tmp_path, labelme(shape()))
    write(root / 'val' / 'a.json', labelme(shape(label='dog'), shape(**change)))
    found = reading(root)
    assert [item[2] for item in found.objects['val']['a.jpg']] == [0, 1]


@pytest.mark.parametrize(
    'item, reason',
    [
        (shape('point', [[3, 3]]), 'object of type point'),
        (shape('line', BOX), 'object of type line'),
        (shape('linestrip', SQUARE), 'object of type linestrip'),
        (shape('points', SQUARE), 'object of type points'),
        (shape('polygon', BOX), 'polygon of 2 points'),
        (shape('polygon', []), 'polygon of 0 points'),
        (shape('rectangle', BOX[:1]), 'rectangle of 1 points'),
        (shape('circle', BOX[:1]), 'circle of 1 points'),
        (shape('mask', BOX, mask=None), 'mask without its PNG'),
        (
            shape('mask', BOX, mask=png(MASK & False)),
            'mask without a pixel in its image',
        ),
        (
            shape('mask', [[50, 5], [70, 15]], mask=png(MASK)),
            'mask without a pixel in its image',
        ),
        (shape(label=None), 'object without a label'),
        (shape(label=' '), 'object without a label'),
        (shape(label='__ignore__'), 'object of __ignore__, which is no class'),
        (shape('rectangle', [[50, 5], [60, 9]]), 'object outside of its image'),
    ],
)
def test_what_is_left_out_is_counted(tmp_path: Path, item: dict, reason: str) -> None:
    """F11: with its file, and an image that has lost all of its objects is no negative."""
    found = one(tmp_path, shape(), item)
    assert objects(found) == [CAT]
    assert f'1 x {reason} (left out): a.json, shape 2' in found.text
    image(tmp_path / 'train' / 'b.jpg')
    write(tmp_path / 'train' / 'b.json', labelme(item))
    image(tmp_path / 'train' / 'empty.jpg')
    write(tmp_path / 'train' / 'empty.json', labelme())
    image(tmp_path / 'train' / 'not labelled.jpg')
    assert reading(tmp_path).objects['train'] == {'a.jpg': [CAT], 'empty.jpg': []}


@pytest.mark.parametrize(
    'text, line',
    [
        pytest.param('{"shapes": [', 'is no JSON, or cut off', id='F14 cut off'),
        pytest.param('', 'is no JSON, or cut off', id='empty'),
        pytest.param('{"imagePath": "a.jpg"}', "no list of 'shapes'", id='no shapes'),
        pytest.param('[]', "no list of 'shapes'", id='a list'),
        pytest.param(
            labelme(shape(points=[[1, 2, 3]])), 'not [[x, y], ...]', id='three numbers'
        ),
        pytest.param(
            labelme(shape(points=[10, 5, 30, 5])), 'not [[x, y], ...]', id='flat'
        ),
        pytest.param(
            labelme(shape('mask', [[1, 1], [3, 3]], mask=png(MASK))),
            'a mask of',
            id='mask size',
        ),
        pytest.param(
            labelme(shape(points=[[0, 0], [1e12, 0], [5, 5]])), 'a corner at', id='far'
        ),
        pytest.param(
            labelme(shape(points=[[1, None]] * 3)),
            'shape 1: a point is None',
            id='null',
        ),
        pytest.param(
            labelme(shape(points=[[1, float('nan')]] * 3)), 'not finite', id='NaN'
        ),
        pytest.param(
            labelme(shape('mask', BOX, mask='x')), 'shape 1: ', id='no base64'
        ),
        pytest.param(
            labelme(shape('mask', BOX, mask='aaaa')), 'no PNG in base64', id='no PNG'
        ),
        pytest.param(labelme('cat'), "a.json: shape 1 is 'cat'", id='a shape of text'),
        pytest.param(
            labelme(shape(), imageHeight='x'),
            "imageHeight or imageWidth is 'x'",
            id='x',
        ),
        pytest.param(
            labelme(shape(), imageHeight=60, imageWidth=80), '80 x 60 by its', id='B28'
        ),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, line: str) -> None:
    """B9: of one file among many."""
    for number in range(3):
        image(tmp_path / 'train' / f'{number}.jpg')
        write(tmp_path / 'train' / f'{number}.json', labelme(shape()))
    message = refusal(folder(tmp_path, text))
    assert line in message and ('a.json' in message or 'a.jpg: ' in message)


@pytest.mark.parametrize('name', [7, 1.5, True])
def test_labels_become_text(tmp_path: Path, name: object) -> None:
    """F6b"""
    folder(tmp_path, labelme(shape(label=name)))
    write(tmp_path / 'val' / 'a.json', labelme(shape(label=name)))
    assert reading(tmp_path).classes == (str(name),)


def test_the_background_is_no_class(tmp_path: Path) -> None:
    found = one(tmp_path, shape(), shape(label='_background_'))
    assert found.classes == ('cat',) and objects(found) == [CAT]
    assert (
        '1 x shape of the background, which is no class (left out): a.json, shape 2'
        in (found.text)
    )


def test_parts_of_a_group_are_one_object(tmp_path: Path) -> None:
    other = [[32, 20], [36, 20], [36, 24], [32, 24]]
    parts = [shape(group_id=1), shape(points=other, group_id=1), shape(group_id=2)]
    found = one(
        tmp_path, *parts, *(shape(label=name) for name in ('dog', 'eel', 'fox'))
    )
    assert (
        objects(found)[:2] == [('cat', (10, 5, 26, 19), 0), CAT]
        and len(objects(found)) == 5
    )
    assert found.content['train']['annotations'][0]['area'] == pytest.approx(200 + 16)
    assert [len(outline) for outline in outlines(found)] == [2, 1, 1, 1, 1]
    assert '1 x shape joined with another one of its label and group_id' in found.text


def test_groups_of_unlike_parts_keep_an_outline(tmp_path: Path) -> None:
    """F14: a rectangle beside a polygon, a mask beside a polygon, two rectangles."""
    triangle = [[32, 20], [38, 20], [38, 26]]
    parts = [
        shape('rectangle', BOX, group_id=1),
        shape(points=triangle, group_id=1),
        shape('mask', BOX, mask=png(MASK), group_id=2),
        shape(points=triangle, group_id=2),
        shape('rectangle', BOX, group_id=3),
        shape('rectangle', [[32, 20], [38, 26]], group_id=3),
    ]
    found = one(tmp_path, *parts)
    assert objects(found) == [('cat', (10, 5, 28, 21), 0)] * 3
    polygons, lengths, none = outlines(found)
    assert polygons == [[10, 5, 30, 5, 30, 15, 10, 15], [32, 20, 38, 20, 38, 26]]
    assert (
        coco_mask.decode(lengths).sum() == pytest.approx(200 + 18, abs=6)
        and none is None
    )


def test_key_points_of_an_object_are_no_lost_objects(tmp_path: Path) -> None:
    """X-AnyLabeling's pose: a box and its points have one group_id."""
    points = [
        shape('point', [[12, 7]], group_id=1, label=f'joint {n}') for n in range(9)
    ]
    found = one(tmp_path, shape('rectangle', BOX, group_id=1), *points)
    assert objects(found) == [CAT] and found.classes == ('cat',)
    assert '9 x key point in a group with an object (left out)' in found.text


def test_a_rectangle_beside_polygons_has_an_outline_for_masks(tmp_path: Path) -> None:
    """F14"""
    items = shape(), shape('rectangle', BOX, label='dog')
    found = one(tmp_path, *items, options=dict(outlines=True))
    assert outlines(found) == [[[10, 5, 30, 5, 30, 15, 10, 15]]] * 2


@pytest.mark.parametrize('orientation', [1, 3, 5, 6, 7, 8])
def test_labels_before_an_exif_rotation(tmp_path: Path, orientation: int) -> None:
    """LabelMe's older versions show the file's own pixels; the size says it."""
    root = folder(tmp_path, labelme(shape(), shape('mask', BOX, mask=png(MASK))))
    pixels = np.zeros((*SIZE, 3), np.uint8)
    pixels[5:15, 10:30] = 255
    tags = Image.Exif()
    tags[274] = orientation
    picture = Image.fromarray(pixels)
    picture.save(root / 'train' / 'a.jpg', exif=tags, quality=100, subsampling=0)
    found = reading(root)
    shown = np.asarray(picture)
    if orientation > 4:
        with Image.open(root / 'train' / 'a.jpg') as file:
            shown = np.asarray(ImageOps.exif_transpose(file))
    rows, columns = np.nonzero(shown[..., 0] > 128)
    box = (columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1)
    assert objects(found) == [('cat', box, 0)] * 2
    assert ('EXIF' in found.text) == (orientation > 4)


def place(
    root: Path, images: str, labels: str, names: Sequence[str], path: str = '{}.jpg'
) -> None:
    for name in names:
        image(root / images / f'{name}.jpg')
        write(root / labels / f'{name}.json', labelme(shape(), name=path.format(name)))


@pytest.mark.parametrize(
    'images, labels',
    [
        ('{}', '{}'),
        ('images/{}', 'images/{}'),
        ('images/{}', 'labels/{}'),
        ('images/{}', 'annotations/{}'),
        ('{}/images', '{}/annotations'),
        ('{}/img', '{}/ann'),  # Supervisely
        ('{}', 'labels/{}'),
        ('images', 'labels/{}'),
        ('images/{}', 'json'),
    ],
)
def test_folders_of_splits(tmp_path: Path, images: str, labels: str) -> None:
    for split, names in (('train', ['1', '2']), ('val', ['3'])):
        place(tmp_path, images.format(split), labels.format(split), names)
    if '{}' not in labels:  # two files of one name would be of two images
        assert not (tmp_path / labels / 'train').is_dir()
    found = reading(tmp_path)
    names = {
        split: [Path(name).name for name in items]
        for split, items in found.objects.items()
    }
    assert names == dict(train=['1.jpg', '2.jpg'], val=['3.jpg'])
    assert 'by folder' in found.text and found.objects['train'].popitem()[1] == [CAT]


@pytest.mark.parametrize(
    'images, labels, path',
    [
        ('.', '.', '{}.jpg'),
        ('images', 'images', '{}.jpg'),
        ('images', 'annotations', '..\\images\\{}.jpg'),
        ('images', 'labels', '../images/{}.jpg'),
        ('.', 'annotations', '{}.jpg'),
        ('JPEGImages', 'json', 'C:\\Users\\me\\{}.jpg'),
        ('day/one', 'day/one', '{}.jpg'),
        ('images', 'annots', '{}.jpg'),
    ],
)
def test_one_folder_is_split_by_a_hash(
    tmp_path: Path, images: str, labels: str, path: str
) -> None:
    place(tmp_path, images, labels, MANY, path)
    image(tmp_path / images / 'not labelled.jpg')
    found = reading(tmp_path)
    assert 'by a hash of the name' in found.text
    names = [Path(name).stem for items in found.objects.values() for name in items]
    assert sorted(names) == sorted(MANY)


def test_only_a_training_folder_is_split(tmp_path: Path) -> None:
    place(tmp_path, 'train', 'train', MANY)
    found = reading(tmp_path)
    assert (
        sum(map(len, found.objects.values())) == len(MANY)
        and len(found.objects['val']) > 0
    )


@pytest.mark.parametrize(
    'images, labels',
    [('images', 'labels'), ('.', '.'), ('{}', '{}'), ('images/{}', 'labels')],
)
def test_images_without_a_file_are_counted(
    tmp_path: Path, images: str, labels: str
) -> None:
    for split in ('train', 'val'):
        names = [f'{split}{name}' for name in MANY]
        place(tmp_path, images.format(split), labels.format(split), names)
    for number in range(3):
        image(tmp_path / images.format('train') / f'x{number}.jpg')
    found = reading(tmp_path)
    assert sum(map(len, found.objects.values())) == 2 * len(MANY)
    line = '3 x image without a JSON file (not labelled, so left out): x0.jpg, x1.jpg, x2.jpg'
    assert found.text.splitlines()[1:] == [line]


@pytest.mark.parametrize('labels, images', [('{}', '{}'), ('json/{}', 'images/{}')])
def test_validation_images_without_labels_are_refused(
    tmp_path: Path, labels: str, images: str
) -> None:
    place(tmp_path, images.format('train'), labels.format('train'), MANY)
    image(tmp_path / images.format('test') / 't.jpg')
    assert sum(map(len, reading(tmp_path).objects.values())) == len(MANY)
    image(tmp_path / images.format('val') / 'v.jpg')
    with pytest.raises(ValueError, match='val has images, but no labels as '):
        reading(tmp_path)


def test_the_image_of_a_file(tmp_path: Path) -> None:
    """Its own name comes first; imagePath is for files that were renamed (B8's kind)."""
    image(tmp_path / 'val' / 'a.jpg')
    write(tmp_path / 'val' / 'a.json', labelme(shape()))
    for name in ('one', 'two', 'three'):
        image(tmp_path / 'train' / f'{name}.png')
    write(tmp_path / 'train' / 'one.json', labelme(shape(), name='two.png'))  # a copy
    write(
        tmp_path / 'train' / 'two.json',
        labelme(shape(), shape(label='dog'), name='one.png'),
    )
    write(
        tmp_path / 'train' / 'other.json',
        labelme(shape(), name='C:\\pictures\\three.png'),
    )
    write(tmp_path / 'train' / 'gone.json', labelme(shape(), name='gone.png'))
    found = reading(tmp_path)
    numbers = {name: len(items) for name, items in found.objects['train'].items()}
    assert numbers == {'one.png': 1, 'two.png': 2, 'three.png': 1}
    assert (
        '1 x object of an image that is not there (left out): gone.json' in found.text
    )


def test_images_of_one_name_in_two_folders(tmp_path: Path) -> None:
    for name in ('x', 'y'):
        place(tmp_path, f'images/{name}', f'labels/{name}', MANY)
    (tmp_path / 'images/x/0.jpg').unlink()  # its labels are not of y/0.jpg
    found = reading(tmp_path)
    assert sum(map(len, found.objects.values())) == 2 * len(MANY) - 1
    assert '1 x object of an image that is not there (left out): 0.json' in found.text


def test_other_json_files_are_none_of_labelme(tmp_path: Path) -> None:
    root = folder(tmp_path, labelme(shape()))
    write(root / 'train' / 'settings.json', '{"classes": ["cat"]}')
    write(root / 'train' / '._a.json', b'\x00\x05')
    found = reading(root)
    assert objects(found) == [CAT]
    assert (
        '1 x JSON file that is not of LabelMe, and has no image (left out): settings'
        in found.text
    )
    with pytest.raises(ValueError, match='no labels as LabelMe'):
        for split in ('train', 'val'):
            write(root / split / 'a.json', '{"classes": []}')
        reading(root, 'labelme')


def test_coco_and_labelme_in_one_folder(tmp_path: Path) -> None:
    """Labels that were converted once are not taken for those that are edited since."""
    place(tmp_path, 'images', 'images', MANY)
    entries = [dict(id=n, file_name=f'{n}.jpg') for n in range(20)]
    things = [dict(image_id=n, category_id=1, bbox=[1, 1, 9, 9]) for n in range(20)]
    content = dict(
        images=entries, annotations=things, categories=[dict(id=1, name='cat')]
    )
    write(tmp_path / 'annotations.json', json.dumps(content))
    with pytest.raises(ValueError, match=r'own\.format=coco or own\.format=labelme'):
        reading(tmp_path)
    assert CAT in [
        items[0] for items in reading(tmp_path, 'labelme').objects['train'].values()
    ]
    assert reading(tmp_path, 'coco').objects['train'].popitem()[1] == [
        ('cat', (1, 1, 9, 9), 0)
    ]


@pytest.mark.parametrize('code', ['utf-8-sig', 'utf-16'])
def test_encodings(tmp_path: Path, code: str) -> None:
    """B7"""
    root = folder(tmp_path, labelme(shape()))
    (root / 'train' / 'a.json').write_bytes(labelme(shape(label='猫')).encode(code))
    (root / 'val' / 'a.json').write_bytes(labelme(shape(label='猫')).encode(code))
    assert reading(root).classes == ('猫',)


def test_another_encoding_is_named(tmp_path: Path) -> None:
    root = folder(tmp_path, labelme(shape()))
    text = labelme(shape()).replace('cat', '狗')
    (root / 'train' / 'a.json').write_bytes(text.encode('gbk'))
    with pytest.raises(
        ValueError, match=r'a\.json is no UTF-8 text .*save it as UTF-8'
    ):
        reading(root)
