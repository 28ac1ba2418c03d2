"""Folders of COCO files and of their images, and the split of each file."""

import gc
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helpers.field import SIZE, Reading, image, reading, refusal, write
from rope_dense.data.labels import coco, coco_files
from rope_dense.data.labels.coco_folders import find_coco
from rope_dense.data.labels.folders import find_labels
from rope_dense.data.labels.inventory import Inventory

BOX = [10, 5, 20, 10]
MANY = [
    f'{number}.jpg' for number in range(20)
]  # enough for a hash to give both splits some


def coco_text(names: Sequence[str], **top: Any) -> str:
    """A COCO file of these images, a cat in each."""
    sides = dict(height=SIZE[0], width=SIZE[1])
    content = dict(
        images=[dict(id=n, file_name=name, **sides) for n, name in enumerate(names)],
        annotations=[
            dict(id=n, image_id=n, category_id=1, bbox=BOX) for n in range(len(names))
        ],
        categories=[dict(id=1, name='cat')],
    )
    return json.dumps(content | top)


def place(
    root: Path, file: str, images: str, names: Sequence[str], prefix: str = ''
) -> None:
    """A COCO file and its images in a folder; `prefix` stands before the names in the file."""
    for name in names:
        image(root / images / name)
    write(root / file, coco_text([prefix + name for name in names]))


def taken(root: Path, **options: Any) -> dict[str, set[str]]:
    """The images of each split, each with its cat."""
    found = reading(root, **options)
    assert all(items == [('cat', (10, 5, 20, 10), 0)] for items in all_objects(found))
    return {split: {*images} for split, images in found.objects.items()}


def all_objects(found: Reading) -> list[list]:
    return [items for images in found.objects.values() for items in images.values()]


@pytest.mark.parametrize(
    'train, val, images',
    [
        ('annotations/instances_train2017.json', 'annotations/instances_val2017.json', '{}2017'),
        ('coco/annotations/instances_train2017.json', 'coco/annotations/instances_val2017.json',
         'coco/{}2017'),
        ('annotations/instances_train2014.json', 'annotations/instances_val2014.json', '{}2014'),
        ('annotations/instances_train.json', 'annotations/instances_val.json', 'images/{}'),  # CVAT
        ('annotations/train.json', 'annotations/val.json', 'images/{}'),
        ('annotations/train.json', 'annotations/test.json', 'images'),
        ('Annotations/train.json', 'Annotations/val.json', 'Images'),
        ('train.json', 'val.json', 'images'),
        ('train.json', 'val.json', '.'),
        ('train.json', 'val.json', '{}_images'),
        ('train.json', 'val.json', 'images/My {} pictures'),
        ('train/_annotations.coco.json', 'valid/_annotations.coco.json', '{}'),  # Roboflow
        ('train/labels.json', 'validation/labels.json', '{}/data'),  # FiftyOne
        ('train/annotations.json', 'val/annotations.json', '{}/images'),
        ('images/train/train.json', 'images/val/val.json', 'images/{}'),
        ('annotations/train_coco.json', 'annotations/val_coco.json', 'data/{}'),
        ('annotations/lvis_v1_train.json', 'annotations/lvis_v1_val.json', '{}2017'),
        ('export/annotations/instances_Train.json', 'export/annotations/instances_Val.json',
         'export/images'),
        ('train_task/annotations/instances_default.json',
         'val_task/annotations/instances_default.json', '{}_task/images'),
    ],
)  # fmt: skip
def test_files_of_both_splits(
    tmp_path: Path, train: str, val: str, images: str
) -> None:
    word = (
        'valid' if 'valid/' in val else 'validation' if 'validation' in val else 'val'
    )
    place(tmp_path, train, images.format('train'), ['a.jpg', 'b.jpg'])
    place(tmp_path, val, images.format(word), ['v.jpg'])
    found = find_coco(Inventory(tmp_path))
    assert found is not None and found.split_by == f'{train} and {val}'
    names = {
        split: {Path(name).name for name in images}
        for split, images in taken(tmp_path).items()
    }
    assert names == dict(train={'a.jpg', 'b.jpg'}, val={'v.jpg'})


@pytest.mark.parametrize(
    'file, images, prefix',
    [
        pytest.param('result.json', 'images', 'images/', id='Label Studio'),
        pytest.param(
            'result.json', 'images', '/data/upload/3/', id='Label Studio, not exported'
        ),
        pytest.param('result.json', 'images', 'images\\', id='Label Studio on Windows'),
        pytest.param(
            'result.json', 'images', '/data/local-files/?d=some/', id='local files'
        ),
        pytest.param(
            'result.json', 'images', 'http://host:8080/data/upload/1/', id='address'
        ),
        pytest.param('labels.json', 'data', '', id='FiftyOne'),
        pytest.param('annotations/instances_default.json', 'images', '', id='CVAT'),
        pytest.param(
            'annotations/instances_default.json', 'images/default', '', id='CVAT 2'
        ),
        pytest.param('_annotations.coco.json', '.', '', id='Roboflow'),
        pytest.param('annotations.json', 'images', '../images/', id='two points'),
        pytest.param('coco.json', '.', './', id='one point'),
        pytest.param(
            'labels_my-project-name_2024-01-26-11-44-48.json', '.', '', id='makesense'
        ),
        pytest.param('via_project_coco.json', 'images', '', id='VIA'),
        pytest.param('export/anything.json', 'export/images', '', id='in a folder'),
        pytest.param('annotations/trainval.json', 'images', '', id='both'),
        pytest.param(
            'annotations.json', 'pictures', 'pictures/', id='folder in the names'
        ),
        pytest.param(
            'annotations.json', 'images/batch', '', id='folder not in the names'
        ),
        pytest.param(
            'annotations.json', 'images', '/home/me/project/images/', id='absolute'
        ),
        pytest.param(
            'train/_annotations.coco.json', 'train', '', id='only a training split'
        ),
    ],
)
def test_one_file_of_all_images(
    tmp_path: Path, file: str, images: str, prefix: str
) -> None:
    place(tmp_path, file, images, MANY, prefix)
    found = find_coco(Inventory(tmp_path))
    assert found is not None and found.split_by.startswith('a hash of the name')
    assert found.split_by.endswith(f', of {file}')
    splits = taken(tmp_path)
    assert len(splits['train']) > len(splits['val']) > 0
    names = [Path(name).name for part in splits.values() for name in part]
    assert sorted(names) == sorted(MANY)


@pytest.mark.parametrize(
    'file, prefix', [('result.json', 'images/'), ('annotations.json', '')]
)
def test_folders_of_images_may_say_the_splits(
    tmp_path: Path, file: str, prefix: str
) -> None:
    names = [
        f'{split}/{number}.jpg'
        for split in ('train', 'Val', 'test')
        for number in range(3)
    ]
    place(tmp_path, file, 'images', names, prefix)
    found = find_coco(Inventory(tmp_path))
    assert found is not None
    assert (
        found.split_by
        == f'the folders of the images (train and val; not test), of {file}'
    )
    words = {
        s: {name.split('/')[-2] for name in names}
        for s, names in taken(tmp_path).items()
    }
    assert words == dict(train={'train'}, val={'Val'})


def test_names_of_label_studio_are_quoted(tmp_path: Path) -> None:
    image(tmp_path / 'images' / 'my cat.jpg')
    place(tmp_path, 'result.json', 'images', MANY)
    write(
        tmp_path / 'result.json',
        coco_text([*MANY, '/data/local-files/?d=images/my%20cat.jpg']),
    )
    assert 'my cat.jpg' in set.union(*taken(tmp_path).values())


def test_images_by_their_address_as_in_lvis(tmp_path: Path) -> None:
    for split, numbers in (('train', '12'), ('val', '34')):
        for number in numbers:
            image(tmp_path / f'{split}2017' / f'{number}.jpg')
    content = json.loads(coco_text(['a', 'b']))
    urls = [
        'http://images.cocodataset.org/train2017/2.jpg',
        'http://x.org/val2017/3.jpg',
    ]
    for entry, url in zip(content['images'], urls, strict=True):
        entry.pop('file_name')
        entry['coco_url'] = url
    write(
        tmp_path / 'lvis_v1_val.json', json.dumps(content)
    )  # has images of train2017, too
    write(tmp_path / 'lvis_v1_train.json', coco_text(['train2017/1.jpg']))
    assert taken(tmp_path)['val'] == {'train2017/2.jpg', 'val2017/3.jpg'}


def test_the_common_name_is_taken(tmp_path: Path) -> None:
    """Key points, captions and stuff lie beside COCO's instances; parts of it may, too."""
    for split in ('train', 'val'):
        place(
            tmp_path,
            f'annotations/instances_{split}2017.json',
            f'{split}2017',
            [f'{split}.jpg'],
        )
        for other in ('person_keypoints', 'stuff', 'mini'):
            write(
                tmp_path / f'annotations/{other}_{split}2017.json',
                coco_text(['none.jpg']),
            )
        captions = [dict(id=1, image_id=0, caption='A cat.')]
        write(
            tmp_path / f'annotations/captions_{split}2017.json',
            coco_text([f'{split}.jpg'], annotations=captions, categories=None),
        )
    write(
        tmp_path / 'annotations/image_info_test2017.json', json.dumps(dict(images=[]))
    )
    assert taken(tmp_path) == dict(train={'train.jpg'}, val={'val.jpg'})


def test_images_without_labels_hide_no_labels(tmp_path: Path) -> None:
    """COCO's test images: their file has no annotations."""
    place(tmp_path, 'train.json', 'train', MANY)
    write(
        tmp_path / 'test.json', json.dumps(dict(images=[dict(id=1, file_name='x.jpg')]))
    )
    assert set.union(*taken(tmp_path).values()) == {*MANY}


def test_key_points_are_taken_where_nothing_else_is(tmp_path: Path) -> None:
    place(tmp_path, 'annotations/person_keypoints_default.json', 'images', MANY)
    assert len(set.union(*taken(tmp_path).values())) == len(MANY)


def test_a_test_split_is_only_taken_for_want_of_another(tmp_path: Path) -> None:
    for split in ('train', 'valid', 'test'):
        place(tmp_path, f'{split}/_annotations.coco.json', split, [f'{split}.jpg'])
    assert taken(tmp_path) == dict(train={'train.jpg'}, val={'valid.jpg'})


def test_equal_files_are_one(tmp_path: Path) -> None:
    for split in ('train', 'val'):
        place(tmp_path, f'{split}/_annotations.coco.json', split, [f'{split}.jpg'])
        write(
            tmp_path / f'annotations/instances_{split}.json',
            coco_text([f'{split}.jpg']),
        )
    assert taken(tmp_path) == dict(train={'train.jpg'}, val={'val.jpg'})


@pytest.mark.parametrize(
    'files, line',
    [
        (
            ('train.json', 'annotations/instances_train2017.json', 'val.json'),
            'the training labels',
        ),
        (('train_v1.json', 'train_v2.json', 'val.json'), 'the training labels'),
        (('train.json', 'val.json', 'validation.json'), 'own.val=FILE'),
        (('batch1.json', 'batch2.json'), 'several COCO files could be the labels'),
        (('one/train.json', 'two/train.json'), 'several COCO data sets (one, two)'),
        (('annotations.json', 'val.json'), 'there are annotations.json, val.json'),
        (('val.json',), 'no COCO file of the training split'),
    ],
)
def test_no_file_is_taken_by_chance(
    tmp_path: Path, files: Sequence[str], line: str
) -> None:
    for number, file in enumerate(files):
        place(tmp_path, file, 'images', [f'{number}.jpg', *MANY[5:]])
    message = refusal(tmp_path)
    assert (line in message and 'own.' in message) or 'data_root' in message


def test_a_data_set_below_hides_none_above(tmp_path: Path) -> None:
    for split in ('train', 'val'):
        place(tmp_path, f'{split}.json', split, [f'{split}.jpg'])
        place(tmp_path, f'old/{split}.json', f'old/{split}', ['old.jpg'])
    assert taken(tmp_path) == dict(train={'train.jpg'}, val={'val.jpg'})


def test_splits_with_images_of_one_name(tmp_path: Path) -> None:
    for split in ('train', 'val'):
        place(
            tmp_path,
            f'annotations/{split}.json',
            f'images/{split}',
            ['1.jpg', f'{split}.jpg'],
        )
    splits = find_labels(Inventory(tmp_path)).splits
    assert [splits[split].images.name for split in ('train', 'val')] == ['train', 'val']


def test_an_image_of_another_split_stands_for_none(tmp_path: Path) -> None:
    place(tmp_path, 'annotations/train.json', 'images/train', ['1.jpg', '2.jpg'])
    place(tmp_path, 'annotations/val.json', 'images/val', ['3.jpg'])
    write(tmp_path / 'annotations/train.json', coco_text(['1.jpg', '2.jpg', '3.jpg']))
    found = reading(tmp_path)
    assert {*found.objects['train']} == {'1.jpg', '2.jpg'}
    assert '1 x object of an image that is not there (left out): 3.jpg' in found.text


def test_missing_images_count_once(tmp_path: Path) -> None:
    """F14: in one of the splits of a hash; with their objects, or as entries without one."""
    place(tmp_path, 'annotations.json', 'images', MANY)
    content = json.loads(coco_text([*MANY, 'gone.jpg', 'empty.jpg']))
    content['annotations'][-1] |= dict(image_id=99)
    write(tmp_path / 'annotations.json', json.dumps(content))
    text = reading(tmp_path).text
    assert '1 x object of an image that is not there (left out): gone.jpg' in text
    assert '1 x image that is not there, and has no object: empty.jpg' in text
    assert '1 x object of an image that the file does not list' in text


def test_no_image_at_all_names_what_is_there(tmp_path: Path) -> None:
    """F9"""
    for split in ('train', 'val'):
        write(tmp_path / f'{split}.json', coco_text(['a.jpg']))
        write(tmp_path / 'pictures' / f'{split}.txt', 'none')
    message = refusal(tmp_path)
    assert 'train.json: its images, such as a.jpg, are in none of .' in message
    assert '2 .txt' in message


def test_suffixes_may_differ(tmp_path: Path) -> None:
    for split in ('train', 'val'):
        place(tmp_path, f'{split}.json', split, [f'{split}.png'])
        write(tmp_path / f'{split}.json', coco_text([f'{split}.JPG']))
    assert taken(tmp_path) == dict(train={'train.png'}, val={'val.png'})


@pytest.mark.parametrize(
    'name', "a b|a#1|50%|a%20b|a;b|[a]|{a}|it's|猫|a.b.c|what?|x/y/z|a+b".split('|')
)
def test_names_of_images(tmp_path: Path, name: str) -> None:
    for split in ('train', 'val'):
        place(tmp_path, f'{split}.json', split, [f'{name}.JPG'])
    assert taken(tmp_path) == dict(train={f'{name}.JPG'}, val={f'{name}.JPG'})


def test_images_that_differ_in_their_suffix_are_two(tmp_path: Path) -> None:
    """B26"""
    place(tmp_path, 'train.json', 'train', ['a.jpg', 'a.png'])
    place(tmp_path, 'val.json', 'val', ['v.jpg'])
    found = reading(tmp_path)
    assert {*found.objects['train']} == {
        'a.jpg',
        'a.png',
    } and 'two images' not in found.text


OTHER_JSON: dict[str, tuple[Any, str]] = {
    'results': ([dict(image_id=1, category_id=1, bbox=BOX, score=0.5)], 'predictions'),
    'list': ([1], 'a list'),
    'captions': (
        json.loads(coco_text(['a'], annotations=[dict(caption='A cat.')])),
        'captions',
    ),
    'panoptic': (
        json.loads(coco_text(['a'], annotations=[dict(segments_info=[])])),
        'panoptic',
    ),
    'LabelMe': (dict(version='5.0.1', shapes=[], imagePath='a.jpg'), 'by LabelMe'),
    'VIA': ({'a.jpg123': dict(filename='a.jpg', size=123, regions=[])}, 'VIA'),
    'VIA project': (dict(_via_settings={}, _via_img_metadata={}), 'VIA'),
    'no annotations': (dict(images=[], categories=[]), 'without a list of annotations'),
    'a text': ('cat', 'no object'),
    'YouTube-VIS': (dict(videos=[{}], annotations=[dict(bboxes=[])]), 'videos'),
    'Label Studio': (
        [dict(id=1, data=dict(image='a.jpg'), annotations=[])],
        'Label Studio',
    ),
    'Label Studio, short': ([dict(annotation_id=1, image='a.jpg')], 'Label Studio'),
    'Datumaro': (
        dict(info={}, categories={}, items=[dict(annotations=[])]),
        'Datumaro',
    ),
}
GENERAL = ('list', 'LabelMe', 'no annotations', 'a text')  # may be of anything else


@pytest.mark.parametrize('kind', OTHER_JSON)
def test_json_that_is_not_of_coco(tmp_path: Path, kind: str) -> None:
    """It is no data set of COCO; where the user names it, the message says what it is."""
    content, line = OTHER_JSON[kind]
    write(tmp_path / 'mine.json', json.dumps(content))
    if kind not in GENERAL:
        with pytest.raises(ValueError, match=f'mine.json: .*{line}'):
            reading(tmp_path)
    assert find_coco(Inventory(tmp_path)) is None
    with pytest.raises(
        ValueError, match=f'mine.json is no COCO file of objects, but .*{line}'
    ):
        find_coco(Inventory(tmp_path), train='mine.json')
    write(tmp_path / 'train.json', json.dumps(content))
    if 'images' not in content:
        assert find_coco(Inventory(tmp_path)) is None
        return
    with pytest.raises(
        ValueError, match=f'train.json is no COCO file of objects, but .*{line}'
    ):
        find_coco(Inventory(tmp_path))


@pytest.mark.parametrize(
    'text, line',
    [
        (coco_text(['v.jpg'], annotations=None), 'without a list of annotations'),
        (json.dumps(dict(images=[], categories=[])), 'without a list of annotations'),
        ('[]', 'but a list'),
        (json.dumps(OTHER_JSON['results'][0]), 'predictions'),
        (json.dumps(OTHER_JSON['VIA'][0]), 'VIA'),
    ],
)
@pytest.mark.parametrize('has_test', [False, True])
def test_a_validation_file_is_not_passed_over(
    tmp_path: Path, text: str, line: str, has_test: bool
) -> None:
    place(tmp_path, 'annotations/train.json', 'train', MANY)
    if has_test:
        place(tmp_path, 'annotations/test.json', 'test', MANY)
    write(tmp_path / 'annotations/val.json', text)
    message = refusal(tmp_path)
    assert 'val.json is no COCO file of objects, but' in message and line in message


@pytest.mark.parametrize(
    'file, train, val',
    [
        ('annotations/train.json', 'train', 'val'),
        ('train/_annotations.coco.json', 'train', 'valid'),  # Roboflow
        ('annotations/instances_train2017.json', 'train2017', 'val2017'),
        ('annotations.json', 'images/train', 'images/val'),
        ('train.json', 'images', 'val_images'),
    ],
)
def test_validation_images_without_labels_are_refused(
    tmp_path: Path, file: str, train: str, val: str
) -> None:
    place(tmp_path, file, train, MANY)
    image(tmp_path / val.replace('valid', 'val').replace('val', 'test') / 't.jpg')
    assert len(set.union(*taken(tmp_path).values())) == len(MANY)
    image(tmp_path / val / 'v.jpg')
    assert f'{val} has images, but no labels as {tmp_path / file} has' in refusal(
        tmp_path
    )


def test_images_that_no_file_lists_are_said(tmp_path: Path) -> None:
    for split in ('train', 'val'):
        place(tmp_path, f'{split}.json', 'images', [f'{split}.jpg'])
    assert 'lists' not in reading(tmp_path).text
    for name in ('x.jpg', 'y.jpg'):
        image(tmp_path / 'images' / name)
    assert (
        '2 x image that no COCO file lists (not labelled, so left out): x.jpg, y.jpg'
        in (reading(tmp_path).text)
    )


@pytest.mark.parametrize(
    'text, line',
    [
        ('', 'is no JSON, or cut off'),
        ('{{}: []}', 'is no JSON, or cut off'),
        (coco_text(MANY) + '}', 'is no JSON, or cut off'),
        (coco_text(MANY)[:300], 'is no JSON, or cut off'),
        (coco_text(MANY)[:-300], 'is no JSON, or cut off'),
        (coco_text([]), 'no image in it'),
        (
            json.dumps(dict(images=[dict(id=1)], annotations=[], categories=[])),
            'no file_name',
        ),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, line: str) -> None:
    """A file that is cut off behind the images is seen when it is read."""
    place(tmp_path, 'val.json', 'images', MANY)
    write(tmp_path / 'train.json', text)
    message = refusal(tmp_path)
    assert 'train.json' in message and line in message


def test_encodings(tmp_path: Path) -> None:
    """B7: a byte-order mark, UTF-16."""
    for split, code in (('train', 'utf-8-sig'), ('val', 'utf-16')):
        place(tmp_path, f'{split}.json', split, [f'{split}.jpg'])
        (tmp_path / f'{split}.json').write_bytes(
            coco_text([f'{split}.jpg']).encode(code)
        )
    assert taken(tmp_path) == dict(train={'train.jpg'}, val={'val.jpg'})


@pytest.mark.parametrize(
    'order', ['images annotations categories', 'annotations categories images']
)
def test_keys_may_be_in_any_order(tmp_path: Path, order: str) -> None:
    content = json.loads(coco_text(MANY))
    place(tmp_path, 'annotations.json', 'images', MANY)
    text = json.dumps({key: content[key] for key in order.split()}, indent=1)
    write(tmp_path / 'annotations.json', text)
    assert len(set.union(*taken(tmp_path).values())) == len(MANY)


def test_files_that_the_user_names(tmp_path: Path) -> None:
    place(tmp_path, 'a/mine.json', 'images/train', ['1.jpg', '2.jpg'])
    write(tmp_path / 'images' / 'other' / '1.jpg', b'')
    for given in ('a/mine.json', './a/../a/mine.json', str(tmp_path / 'a/mine.json')):
        found = find_coco(Inventory(tmp_path), train=given)
        assert found is not None and found.split_by.endswith('of a/mine.json')
        images = [part.images.name for part in found.splits.values()]
        assert images == ['train', 'train']
    with pytest.raises(ValueError, match=r'none\.json: no such file; check own\.val'):
        find_coco(Inventory(tmp_path), train='a/mine.json', val='none.json')


def test_a_file_elsewhere_that_the_user_names(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    place(root, 'train.json', 'images', ['1.jpg'])
    place(root, 'unused.json', 'images', ['2.jpg'])
    file = write(tmp_path / 'labels' / 'v2' / 'mine.json', coco_text(['2.jpg']))
    found = find_coco(Inventory(root), val=str(file))
    assert found is not None and found.split_by == 'own.train and own.val'
    part = found.splits['val']
    assert (part.source, part.images) == (file, root / 'images')
    assert part.inventory.outside == [str(file)]


def categories(root: Path, given: Any, number: object = 1) -> Reading:
    """The reading of an image with an object of this category id."""
    things = [dict(id=1, image_id=0, category_id=number, bbox=BOX)]
    for split in ('train', 'val'):
        place(root, f'{split}.json', split, [f'{split}.jpg'])
        write(
            root / f'{split}.json',
            coco_text([f'{split}.jpg'], categories=given, annotations=things),
        )
    return reading(root)


ROBOFLOW = [
    dict(id=0, name='animals', supercategory='none'),
    dict(id=1, name='cat', supercategory='animals'),
]


@pytest.mark.parametrize(
    'given, number, expected',
    [
        pytest.param([dict(id=7, name='cat'), dict(id=0, name='dog')], 7, ('cat', 'dog'), id='ids'),
        pytest.param([dict(id='k', name=' cat ')], 'k', ('cat',), id='F10 spaces'),
        pytest.param([dict(id=1, name=0)], 1, ('0',), id='F6b a number'),
        pytest.param([dict(id=1.0, name='cat')], '1', ('cat',), id='float id'),
        pytest.param([dict(id=1, name='cat')] * 2, 1, ('cat',), id='an entry twice'),
        pytest.param(ROBOFLOW, 1, ('cat',), id='B26 Roboflow'),
        pytest.param(ROBOFLOW, 0, ('animals', 'cat'), id='an object has it'),
        pytest.param(
            [dict(ROBOFLOW[0], name='cat'), ROBOFLOW[1]], 1, ('cat',), id='B26 of one name'
        ),
        pytest.param(
            [dict(id=n, name=name, supercategory='none') for n, name in enumerate(['a', 'b'])],
            1, ('a', 'b'), id='none has another',
        ),
        pytest.param(
            [dict(id=0, name='_background_', supercategory=None), dict(id=1, name='cat')],
            1, ('cat',), id='labelme2coco, X-AnyLabeling',
        ),
    ],
)  # fmt: skip
def test_classes(tmp_path: Path, given: list, number: object, expected: tuple) -> None:
    found = categories(tmp_path, given, number)
    assert found.classes == expected and sum(map(len, all_objects(found))) == 2
    assert [item['id'] for item in found.content['val']['categories']] == [
        *range(1, len(expected) + 1)
    ]


@pytest.mark.parametrize(
    'given, line',
    [
        (
            [dict(id=1, name='cat'), dict(id=3, name='cat')],
            "categories 1 and 3 are both 'cat'",
        ),
        (
            [dict(id=1, name='cat'), dict(id=1, name='dog')],
            "id 1 is of 'cat' and of 'dog'",
        ),
        ([dict(id=4, name='')], "the name of id 4 is ''"),
        ([dict(id=4, name=None)], 'the name of id 4 is None'),
        ([dict(id=4)], "category number 0: 'name' is missing"),
        ([dict(id=4, name=['cat'])], "the name of id 4 is ['cat']"),
        ([dict(id=4, name=dict(en='cat'))], "the name of id 4 is {'en': 'cat'}"),
        (['cat'], "category number 0: it is 'cat', not"),
        ([dict(name='cat')], "category number 0: 'id' is missing"),
        ([], 'no class in it'),
        (None, 'no list of categories'),
    ],
)
def test_classes_that_are_refused(tmp_path: Path, given: Any, line: str) -> None:
    with pytest.raises(ValueError, match=r'train\.json') as error:
        categories(tmp_path, given)
    assert line in str(error.value)


def test_the_validation_file_may_lack_categories_or_order_them_otherwise(
    tmp_path: Path,
) -> None:
    kinds = [dict(id=1, name='cat'), dict(id=2, name='dog'), dict(id=3, name='bird')]
    categories(tmp_path, kinds)
    things = [dict(id=1, image_id=0, category_id=9, bbox=BOX)]
    others = [dict(id=4, name='bird'), dict(id=9, name='dog')]
    write(
        tmp_path / 'val.json',
        coco_text(['val.jpg'], categories=others, annotations=things),
    )
    found = reading(tmp_path)
    assert found.classes == ('cat', 'dog', 'bird')
    assert found.objects['val'] == {'val.jpg': [('dog', (10, 5, 20, 10), 0)]}


def files_in_memory() -> int:
    gc.collect()
    return sum(isinstance(one, coco_files.CocoFile) for one in gc.get_objects())


def test_a_file_of_both_splits_is_parsed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []

    def read_file(path: Path, is_whole: bool = False) -> coco_files.CocoFile:
        parsed.extend([path] * is_whole)
        return coco_files.load_coco(path, is_whole=is_whole)

    monkeypatch.setattr(coco, 'load_coco', read_file)
    place(tmp_path, 'all.json', 'images', MANY)
    before = files_in_memory()
    found = taken(tmp_path)
    assert len(parsed) == 1 and len(found['train'] | found['val']) == len(MANY)
    assert files_in_memory() <= before  # which other tests may hold


@pytest.mark.parametrize('change', [dict(bbox=['x'] * 4), dict(bbox=[1] * 3)])
def test_a_refused_file_leaves_memory(tmp_path: Path, change: dict) -> None:
    """D15"""
    content = json.loads(coco_text(MANY))
    content['annotations'][-1] |= change
    place(tmp_path, 'all.json', 'images', MANY)
    write(tmp_path / 'all.json', json.dumps(content))
    frozen = gc.get_freeze_count()
    before = files_in_memory()
    assert 'all.json, annotation 19: ' in refusal(tmp_path)
    assert gc.get_freeze_count() <= frozen
    assert files_in_memory() <= before  # which other tests may hold


def test_an_image_belongs_to_the_name_with_most_of_its_folders(tmp_path: Path) -> None:
    """Of two cameras one is not there: its boxes are not put on the other's pictures."""
    root = tmp_path / 'data'
    names = [f'camB/{name}' for name in MANY]
    place(root, 'annotations.json', 'images', names)
    write(root / 'annotations.json', coco_text(['camA/0.jpg', *names, 'camC/1.jpg']))
    found = reading(root)
    everything = [*found.objects['train'], *found.objects['val']]
    assert sorted(everything) == sorted(names)
    assert (
        '2 x object of an image that is not there (left out): camA/0.jpg' in found.text
    )
    assert 'has labels already' not in found.text


def test_a_name_without_folders_is_exact_above_all_folders(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    place(root, 'annotations.json', 'images', MANY)
    write(root / 'annotations.json', coco_text(['camA/0.jpg', *MANY]))
    text = reading(root).text
    assert '1 x object of an image that is not there (left out): camA/0.jpg' in text


def test_names_of_another_folder_are_named(tmp_path: Path) -> None:
    place(tmp_path / 'data', 'annotations.json', 'images/camB', MANY, prefix='camA/')
    line = '20 x image in another folder than its name says (taken by its name)'
    assert line in reading(tmp_path / 'data').text


def test_images_of_the_other_split_are_of_its_own_names(tmp_path: Path) -> None:
    """Where images/train is not there, its boxes are put on no image of images/val."""
    root = tmp_path / 'data'
    place(root, 'annotations/val.json', 'images/val', [f'camB/{name}' for name in MANY])
    names = [f'camA/{name}' for name in MANY]
    write(root / 'annotations/train.json', coco_text(names))
    assert '20 x object of an image that is not there (left out)' in refusal(root)
