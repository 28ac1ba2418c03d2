"""DOTA and what is like it: the reading that is right, or the line that is said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from helpers.field import Reading, files, image, reading, refusal, write
from rope_dense.data.convert_data import convert_data
from rope_dense.data.labels.dota import find_dota
from rope_dense.data.labels.inventory import Inventory
from rope_dense.data.labels.objects import NO_IMAGE

CORNERS = '10 9 30 9 30 21 10 21'
BOX = (10, 9, 20, 12)  # of CORNERS
HEAD = 'imagesource:GoogleEarth\ngsd:0.146\n'
LINE = f'{CORNERS} ship 0'
PLANE = f'{CORNERS} large plane 1'
SHIP = [('ship', BOX, 0)]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / 'data'


def pair(
    images: str, labels: str, text: str = f'{LINE}\n{PLANE}\n'
) -> dict[str, str | None]:
    """An image and its label file, by their paths without suffix."""
    return {f'{images}.png': None, f'{labels}.txt': text}


def of_texts(root: Path, *train: str, val: str = '') -> Reading:
    """The reading of training images with these label files."""
    given = pair('val/images/v', 'val/labelTxt/v', val or train[0])
    for number, text in enumerate(train):
        given |= pair(f'train/images/{number}', f'train/labelTxt/{number}', text)
    return reading(files(root, given))


# Folders


@pytest.mark.parametrize(
    'images, labels',
    [
        ('{}/images', '{}/labelTxt'),
        ('{}/images', '{}/labelTxt-v1.0/labelTxt'),
        ('{}/images', '{}/labelTxt-v1.5/DOTA-v1.5_{}'),
        ('{}/images', '{}/labelTxt-v2.0/DOTA-v2.0_{}'),
        ('{}/images', '{}/annfiles'),  # mmrotate's img_split.py
        ('{}/images/part1/images', '{}/labelTxt-v1.0/labelTxt'),
        ('{}/images/part1', '{}/labelTxt/part1'),
        ('images/{}', 'labelTxt/{}'),
        ('images/{}', 'annfiles/{}'),
        ('images/{}', '{}/labelTxt'),
        ('{}/images', 'labelTxt/{}'),
        ('{}', '{}/labelTxt'),
        ('images', 'labelTxt/{}'),
        ('images/{}', 'labelTxt'),
        ('DOTA/{}/images', 'DOTA/{}/labelTxt'),
        ('Images/{}', 'LabelTxt/{}'),
    ],
)
def test_folders(root: Path, images: str, labels: str) -> None:
    given = pair(
        images.replace('{}', 'train') + '/P0', labels.replace('{}', 'train') + '/P0'
    )
    given |= pair(
        images.replace('{}', 'val') + '/P1', labels.replace('{}', 'val') + '/P1', LINE
    )
    found = reading(files(root, given))
    objects = {
        split: {Path(k).stem: v for k, v in x.items()}
        for split, x in found.objects.items()
    }
    plane = ('large plane', BOX, 1)  # difficult
    assert objects == {'train': {'P0': [*SHIP, plane]}, 'val': {'P1': SHIP}}
    assert 'by folder' in found.text and 'left out' not in found.text


@pytest.mark.parametrize('prefix', ['', 'trainval/', 'my ships/'])
@pytest.mark.parametrize(
    'names', [('images/', 'labelTxt/'), ('images/', 'annfiles/'), ('', 'labelTxt/')]
)
def test_without_a_split_a_hash_says_it(
    root: Path, prefix: str, names: tuple[str, str]
) -> None:
    images, labels = names
    given: dict[str, str | None] = {f'{prefix}{images}unlabelled.png': None}
    for number in range(10):
        given |= pair(f'{prefix}{images}P{number}', f'{prefix}{labels}P{number}')
    found = reading(files(root, given))
    assert sum(map(len, found.objects.values())) == 10 and all(found.objects.values())
    assert 'a hash of the name' in found.text


def test_only_a_training_folder(root: Path) -> None:
    given: dict[str, str | None] = {
        'test/images/t.png': None
    }  # without labels, as DOTA's
    for number in range(10):
        given |= pair(f'train/images/P{number}', f'train/labelTxt/P{number}')
    found = reading(files(root, given))
    assert sum(map(len, found.objects.values())) == 10 and all(found.objects.values())
    image(root / 'val/images/v.png')
    assert 'val has images, but no labels' in refusal(root)


def test_upright_boxes_of_the_same_objects_are_not_read(root: Path) -> None:
    given = {}
    for split in ('train', 'val'):
        home = f'{split}/labelTxt-v1.5/DOTA-v1.5_{split}'
        given |= pair(f'{split}/images/P0', f'{home}/P0')
        given[f'{home}_hbb/P0.txt'] = '0 0 9 0 9 9 0 9 ship 0'
        given[
            f'{split}/labelTxt-v1.5/{split}_Task2_gt/{split}set_reclabelTxt/P0.txt'
        ] = 'x'
    assert reading(files(root, given)).objects['train']['P0.png'][:1] == SHIP


@pytest.mark.parametrize(
    'given, said',
    [
        (
            pair('train/images/a', 'train/labelTxt-v1.0/a') | pair('val/images/a', 'val/labelTxt/a')
            | {'train/labelTxt-v1.5/a.txt': LINE},
            'train/labelTxt-v1.0 and',
        ),
        (pair('val/images/a', 'val/labelTxt/a'), 'labels for validation, and no train/ beside'),
        (
            {f'{home}/images/{n}.png': None for home in 'ab' for n in range(9)}
            | {f'{home}/labelTxt/{n}.txt': LINE for home in 'ab' for n in range(9)},
            'several DOTA data sets: set own.data_root to one',
        ),
        ({'train/labelTxt/a.txt': LINE, 'val/labelTxt/a.txt': LINE}, 'it has 2 .txt in train'),
    ],
)  # fmt: skip
def test_folders_that_are_refused(
    root: Path, given: Mapping[str, str | None], said: str
) -> None:
    assert said in refusal(files(root, given))


# Lines


def test_difficult_objects_are_neither_trained_nor_evaluated(root: Path) -> None:
    text = f'\ufeff{HEAD}{LINE}\r\n{PLANE}\r\n\r\n{CORNERS} small  vehicle\t2\n'  # B26: a mark
    found = of_texts(root, text)
    names = ['ship', 'large plane', 'small vehicle']
    assert found.classes == tuple(sorted(names))
    assert found.objects['train']['0.png'] == [
        (name, BOX, flag) for name, flag in zip(names, (0, 1, 1), strict=True)
    ]
    assert [item[2] for item in found.objects['val']['v.png']] == [0, 1, 1]
    assert (
        'folder of labels with a difficulty behind each class: train/labelTxt'
        in found.text
    )


@pytest.mark.parametrize(
    'names, classes',
    [
        (('ship', 'plane'), ('plane', 'ship')),
        (('small vehicle', 'ship'), ('ship', 'small vehicle')),
        (('type 1', 'type 2'), ('type 1', 'type 2')),  # F28: one class, all difficult
        (('class 3', 'class 1'), ('class 1', 'class 3')),
        (('Boeing 737', 'Boeing 747'), ('Boeing 737', 'Boeing 747')),
        (('Boeing 737', 'ship'), ('Boeing 737', 'ship')),
        (('type 1', 'ship'), ('ship', 'type 1')),
        (('1', '2'), ('1', '2')),
        (('ship 3', 'ship 0'), ('ship 0', 'ship 3')),  # 3 is no difficulty
        (('ship 0', 'ship 0'), ('ship',)),
        (('ship 0', 'plane 1'), ('plane', 'ship')),
        (('type 1 0', 'type 2 0'), ('type 1', 'type 2')),
        (('Boeing 737 0', 'ship 1'), ('Boeing 737', 'ship')),
        (('0 0', '1 0'), ('0', '1')),
        (('ship 0.0', 'plane 1.0'), ('plane', 'ship')),
        (('model 1.0', 'model 2.0'), ('model 1.0', 'model 2.0')),
        (('ship -1', 'plane 0'), ('plane 0', 'ship -1')),
        (('type 1 0', 'type 1 1'), None),
    ],
)
def test_whether_lines_have_a_difficulty(
    root: Path, names: tuple[str, str], classes: tuple[str, ...] | None
) -> None:
    texts = [f'{CORNERS} {name}' for name in names]
    if classes is None:
        files(root, pair('train/images/a', 'train/labelTxt/a', texts[0]))
        files(root, pair('val/images/b', 'val/labelTxt/b', texts[1]))
        said = refusal(root)
        assert "train/labelTxt/a.txt, line 1 ends with 'type 1 0' and " in said
        assert (
            "val/labelTxt/b.txt, line 1 with 'type 1 1': is the number a diff" in said
        )
        return
    found = of_texts(root, HEAD + texts[0], val=texts[1])
    assert found.classes == classes
    has = any(name not in classes for name in names)
    kind = (
        'with a difficulty behind each class'
        if has
        else 'without a difficulty in its lines'
    )
    assert f'folder of labels {kind}' in found.text


def test_numbers_that_may_be_difficulties_or_not(root: Path) -> None:
    text = f'{CORNERS} plane 3\n{LINE}'
    files(root, pair('train/images/a', 'train/labelTxt/a', text))
    files(root, pair('val/images/b', 'val/labelTxt/b', LINE))
    assert "ends with 'plane 3' and" in refusal(root)
    write(root / 'classes.txt', 'plane 3\nship 0')
    assert reading(root).classes == ('plane 3', 'ship 0')


def test_names_in_another_case(root: Path) -> None:
    files(
        root,
        pair('train/images/P1', 'train/labelTxt/p1')
        | pair('val/images/v', 'val/labelTxt/v'),
    )
    assert reading(root).objects['train']['P1.png'][0] == SHIP[0]


def test_one_class_with_difficulties(root: Path) -> None:
    """mmrotate's script writes difficulties; else classes.txt says it."""
    lines = {
        name: f'{CORNERS} ship {number}' for name, number in (('train', 0), ('val', 1))
    }
    for name, line in lines.items():
        files(root, pair(f'{name}/images/a', f'{name}/labelTxt/a', line))
        files(
            root.parent / 'mmrotate',
            pair(f'{name}/images/a', f'{name}/annfiles/a', line),
        )
    assert reading(root.parent / 'mmrotate').classes == ('ship',)
    assert "a.txt, line 1 with 'ship 1': is the number a difficulty" in refusal(root)
    write(root / 'classes.txt', 'ship\n')
    assert reading(root).objects['val'] == {'a.png': [('ship', BOX, 1)]}
    write(root / 'classes.txt', 'ship 0\nship 1\n')
    write(root / 'train/images/b.png', b'')  # a new key
    assert reading(root).classes == ('ship 0', 'ship 1')


@pytest.mark.parametrize('other', ['ship', 'plane'])
def test_a_difficulty_in_some_lines_only_is_refused(root: Path, other: str) -> None:
    text = f'{LINE}\n{CORNERS} car 0\n{CORNERS} {other}'
    files(root, pair('train/images/a', 'train/labelTxt/a', text))
    files(root, pair('val/images/b', 'val/labelTxt/b', LINE))
    found = refusal(root)
    assert (
        f"a.txt, line 3 ends with '{other}' and " in found
        and "line 2 with 'car 0':" in found
    )
    write(root / 'classes.txt', 'ship\ncar\nplane')
    assert 'a.txt, line 3: 9 words' in refusal(root)
    write(
        root / 'train/labelTxt/a.txt',
        f'{LINE}\n{CORNERS} car 0\n{CORNERS} large {other}',
    )
    write(root / 'classes.txt', 'ship\ncar')
    assert (
        f"line 3: ends with '{other}', where other lines have a difficulty"
        in refusal(root)
    )


@pytest.mark.parametrize(
    'line, said',
    [
        ('10 9 30 9 30 21 10 ship 0', '9 words; give x and y of four corners'),
        ('ship 10 9 30 9 30 21 10 21 0', "a corner is 'ship'"),
        (f'{CORNERS} ship', "ends with 'ship'"),
        (CORNERS, '8 words; give x and y of four corners, class'),
        (LINE.replace(' ', ','), '1 words'),
        (LINE.replace('10', 'nan'), "a corner is 'nan'"),
        (LINE.replace('10', '10,5'), "a corner is '10,5'"),
        ('# comment', '2 words'),
    ],
)
def test_lines_that_are_wrong_are_refused(root: Path, line: str, said: str) -> None:
    files(root, pair('val/images/b', 'val/labelTxt/b'))
    files(root, pair('train/images/a', 'train/labelTxt/a', f'{HEAD}{LINE}\n{line}\n'))
    found = refusal(root)
    assert 'a.txt, line 4' in found and said in found


def test_images_without_a_file_are_counted_where_a_hash_splits(root: Path) -> None:
    given: dict[str, str | None] = {'images/x.png': None}
    for number in range(8):
        given |= pair(f'images/{number}', f'labelTxt/{number}')
    found = reading(files(root, given))
    assert sum(map(len, found.objects.values())) == 8
    assert (
        '1 x image without a label file (not labelled, so left out): x.png'
        in found.text
    )


@pytest.mark.parametrize('head', ['', HEAD])
@pytest.mark.parametrize('images', ['train/images', 'images/train', 'train'])
def test_lines_in_a_folder_of_yolo(root: Path, images: str, head: str) -> None:
    """No yaml, so no format was recognised: the line says the name that the folder needs."""
    labels = images.replace('images', 'labels')
    said = refusal(files(root, pair(f'{images}/a', f'{labels}/a', f'{head}{LINE}\n')))
    place = f'{labels}/a.txt, line {3 if head else 1}'
    assert (
        f'{place}: four corners and a class, as of DOTA: name the folder labelTxt'
        in said
    )


def test_an_empty_file_is_an_image_without_objects_and_no_file_none(root: Path) -> None:
    files(root, {'train/images/no.png': None, 'train/images/._no.png': b''})
    found = of_texts(root, LINE, '', HEAD)
    assert found.objects['train'] == {'0.png': SHIP, '1.png': [], '2.png': []}
    assert (
        '1 x image without a label file (not labelled, so left out): no.png'
        in found.text
    )


def test_label_files_without_an_image_are_counted(root: Path) -> None:
    readme = 'Labels of ships, made in the harbour by one of us in 2020'
    texts = {'gone': HEAD + LINE, 'none': HEAD, 'readme': readme}
    files(root, {f'train/labelTxt/{name}.txt': text for name, text in texts.items()})
    found = of_texts(root, *[LINE] * 10)
    assert f'1 x {NO_IMAGE} (left out): gone.txt\n' in found.text and found.classes == (
        'ship',
    )


def test_a_label_file_of_no_split_is_said(root: Path) -> None:
    given = pair('images/train/a', 'labelTxt/train/a') | pair(
        'images/val/b', 'labelTxt/val/b'
    )
    found = reading(files(root, given | {'labelTxt/test/c.txt': LINE}))
    assert {split: [*images] for split, images in found.objects.items()} == {
        'train': ['a.png'],
        'val': ['b.png'],
    }
    given = pair('images/train/a', 'labelTxt/a') | pair('images/val/b', 'labelTxt/b')
    found = reading(files(root.parent / 'flat', given | {'labelTxt/c.txt': LINE}))
    assert 'label file without an image, in no split: c.txt' in found.text


def test_names_with_dots_and_equal_names(root: Path) -> None:
    given = {}
    for name in ('P0.5', 'P0', 'x/P0', 'y/P0', 'a b'):
        given |= pair(
            f'train/images/{name}', f'train/labelTxt/{name}', f'{CORNERS} {name} 0'
        )
    files(root, given | pair('val/images/v', 'val/labelTxt/v'))
    (root / 'train/labelTxt/y/P0.txt').unlink()
    found = reading(root).objects['train']
    assert {name: items[0][0] for name, items in found.items()} == {
        f'{name}.png': name for name in ('P0.5', 'P0', 'x/P0', 'a b')
    }


def test_corners_outside_stay_where_boxes_are_rotated(root: Path) -> None:
    line = '-4 10 20 -2 26 10 2 22 ship 0'
    files(root, pair('train/images/a', 'train/labelTxt/a', f'{line}\n{LINE}'))
    files(root, pair('val/images/b', 'val/labelTxt/b'))
    (found, _) = reading(root, oriented=True).content['train']['annotations']
    corners = np.reshape(found['segmentation'][0], (4, 2)).round(2)
    assert {*map(tuple, corners.tolist())} == {(-4, 10), (20, -2), (26, 10), (2, 22)}


def test_roboflow_oriented(root: Path) -> None:
    """A data.yaml of YOLO beside DOTA's labels."""
    yaml = 'train: ../train/images\nval: ../valid/images\nnc: 2\nnames: [ship, large plane]\n'
    given = pair('train/images/a', 'train/labelTxt/a') | pair(
        'valid/images/b', 'valid/labelTxt/b'
    )
    found = reading(files(root, {'data.yaml': yaml, **given}))
    assert found.objects['train']['a.png'][:1] == SHIP and found.text.startswith('DOTA')


def test_labels_of_a_folder_that_is_given(root: Path) -> None:
    """As `rope-dense convert-data dota FOLDER` reads them."""
    files(root, pair('pictures/a', 'texts/a'))
    convert_data('dota', root / 'texts', root / 'val.json', images=root / 'pictures')
    content = json.loads((root / 'val.json').read_text())
    names = [item['name'] for item in content['categories']]
    found = [
        (names[item['category_id'] - 1], item['iscrowd'])
        for item in content['annotations']
    ]
    assert found == [
        ('ship', 0),
        ('large plane', 1),
    ]  # D3: as the canonical file of val has it
    assert find_dota(Inventory(root)) is None
