"""Where a user's data is looked for, and which classes it has."""

import json
from pathlib import Path

import pytest

from rope_dense.datasets.own_data import (
    CocoSplit,
    choose_classes,
    distinct_colour,
    find_coco,
    find_masks,
    paired_files,
    read_classes,
)


def write_coco(file: Path, names: tuple[str, ...], image: str = 'a.jpg') -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = dict(
        images=[dict(id=1, file_name=image, height=8, width=8), dict(id=2, file_name='b.jpg')],
        annotations=[dict(id=1, image_id=1, category_id=5, bbox=[0, 0, 4, 4])],
        categories=[dict(id=5 + i, name=name) for i, name in enumerate(names)],
    )
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    'ann_file, images',
    [
        ('annotations/instances_train2017.json', 'train2017'),
        ('annotations/train.json', 'images/train'),
        ('train.json', 'images'),
        ('train/_annotations.coco.json', 'train'),
    ],
)
def test_coco_files_are_found(tmp_path: Path, ann_file: str, images: str) -> None:
    write_coco(tmp_path / ann_file, ('cat', 'dog'))
    (tmp_path / images).mkdir(parents=True, exist_ok=True)
    (tmp_path / images / 'a.jpg').touch()
    found = find_coco(tmp_path, 'train')
    assert (found.ann_file, found.images, found.classes) == (ann_file, images, ('cat', 'dog'))
    assert found.count(['cat']) == 1 and found.count(['dog']) == 0


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r'no annotation file of val.*own.val=FILE'):
        find_coco(tmp_path, 'val')
    write_coco(tmp_path / 'val.json', ('cat',))
    with pytest.raises(ValueError, match=r'first image, a\.jpg, is in none of'):
        find_coco(tmp_path, 'val')
    (tmp_path / 'cut.json').write_text('{"images": [')
    with pytest.raises(ValueError, match='not in COCO format, or cut off'):
        find_coco(tmp_path, 'val', 'cut.json')
    with pytest.raises(ValueError, match=r'own.train=\[IMAGES,MASKS\]'):
        find_masks(tmp_path, 'train')


def test_classes_follow_the_file_that_mmdet_numbers_them_by() -> None:
    train, val = (CocoSplit(f'{n}.json', '', ('a', 'b', 'c'), (), 0) for n in ('train', 'val'))
    assert choose_classes(train, val, None) == ('a', 'b', 'c')
    assert choose_classes(train, val, ['c', 'a']) == ('a', 'c')
    with pytest.raises(ValueError, match=r'classes d are not categories of train\.json'):
        choose_classes(train, val, ['d'])
    other = CocoSplit('other.json', '', ('c', 'b', 'a'), (), 0)
    with pytest.raises(ValueError, match=r'train\.json and other\.json .* different orders'):
        choose_classes(train, other, None)


def test_classes_and_colours_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / 'classes.txt'
    file.write_text('road #804080\n\ntraffic light\n')
    assert read_classes(file) == (('road', 'traffic light'), [(128, 64, 128), distinct_colour(1)])
    file.write_text('road 128 64 128\nroad side,1,2,3\nlane 7 8 900\n')
    names, colours = read_classes(file)
    assert names == ('road', 'road side', 'lane 7 8 900')
    assert colours == [(128, 64, 128), (1, 2, 3), distinct_colour(2)]
    file.write_text('a\na\n')
    with pytest.raises(ValueError, match='a class appears twice'):
        read_classes(file)


def test_colours_differ() -> None:
    assert len({distinct_colour(index) for index in range(150)}) == 150


def test_no_pair_names_the_suffixes(tmp_path: Path) -> None:
    for name in ('images/a.gif', 'images/b.gif', 'masks/a.npy'):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r'Looked for images \.jpg, .*there are 2 \.gif and 1 \.n'):
        paired_files(tmp_path / 'images', tmp_path / 'masks')
