"""CreateML's files as Roboflow and labelImg write them, and the line that is said else."""

import json
from pathlib import Path
from typing import Any

import pytest

from helpers.field import image, objects_in, reading, refusal, write
from rope_dense.data.convert_data import convert_data

MANY = [
    f'{number}.jpg' for number in range(20)
]  # enough for a hash to give both splits some
PLACE = dict(x=20, y=10, width=20, height=10)
CAT = ('cat', (10, 5, 20, 10), 0)


def entry(name: str = 'a.jpg', *objects: Any, **more: Any) -> dict:
    return dict(image=name, annotations=list(objects or [thing()])) | more


def thing(label: Any = 'cat', **place: Any) -> dict:
    return dict(label=label, coordinates=PLACE | place)


def roboflow(root: Path, *entries: Any, images: tuple[str, ...] = ('a.jpg',)) -> Path:
    """Training images with these entries, beside a validation image with a cat."""
    for name in images:
        image(root / 'train' / name)
    image(root / 'valid' / 'v.jpg')
    write(root / 'train' / '_annotations.createml.json', json.dumps(entries))
    write(root / 'valid' / '_annotations.createml.json', json.dumps([entry('v.jpg')]))
    return root


def test_roboflow(tmp_path: Path) -> None:
    root = roboflow(
        tmp_path / 'a',
        entry(),
        entry('b.jpg', annotations=[]),
        images=('a.jpg', 'b.jpg'),
    )
    found = reading(root)
    assert found.objects == dict(
        train={'train/a.jpg': [CAT], 'train/b.jpg': []}, val={'valid/v.jpg': [CAT]}
    )
    assert found.classes == ('cat',)
    assert found.text.startswith(
        'CreateML, 2 training images and 1 validation images, by folder'
    )


@pytest.mark.parametrize(
    'given',
    [
        dict(imagefilename='a.jpg', annotation=[thing()]),
        dict(imageFilename='a.jpg', annotations=[thing()]),
        dict(imageURL='https://host.org/some/a.jpg?x=1', annotations=[thing()]),
        dict(imageURL='C:\\pictures\\a.jpg', annotations=[thing()]),
        dict(image='a.jpg', verified=True, annotations=[thing()]),
        dict(image='a.jpg', annotations=[thing(x='20', height='10.0')]),
        dict(image='A.JPG', annotations=[thing(' cat ', width=-20)]),
    ],
)
def test_variants(tmp_path: Path, given: dict) -> None:
    assert reading(roboflow(tmp_path / 'a', given)).objects['train'] == {
        'train/a.jpg': [CAT]
    }


@pytest.mark.parametrize(
    'given, line',
    [
        ('text', "train/_annotations.createml.json, entry 2: it is 'text'"),
        (
            dict(annotations=[]),
            "createml.json, entry 2: it is {'annotations': []}, not",
        ),
        (
            entry(annotations=5),
            "entry 2: it is {'image': 'a.jpg', 'annotations': 5}, not",
        ),
        (entry('a.jpg', 7), 'entry 2, annotation 1: it is 7, without "coordinates"'),
        (entry('a.jpg', dict(label='cat')), 'entry 2, annotation 1: it is'),
        (
            entry('a.jpg', thing(), thing(None)),
            'entry 2, annotation 2: its label is None',
        ),
        (
            entry('a.jpg', thing(x='left')),
            "entry 2, annotation 1: x is 'left', which is no number",
        ),
        (entry('a.jpg', thing(y=float('nan'))), 'entry 2, annotation 1: y is nan'),
        (
            entry('a.jpg', dict(label='a', coordinates=dict(x=1, y=2, width=3))),
            'height',
        ),
        (
            entry('a.jpg', thing(x=0.5, y=0.5, width=0.2, height=0.1)),
            'fractions of the image size',
        ),
    ],
)
def test_broken_entries(tmp_path: Path, given: Any, line: str) -> None:
    said = refusal(roboflow(tmp_path / 'a', entry(), given))
    assert line in said and '_annotations.createml.json' in said


def test_a_cut_off_file(tmp_path: Path) -> None:
    root = roboflow(tmp_path / 'a', entry())
    write(root / 'train' / '_annotations.createml.json', json.dumps([entry()])[:-9])
    assert '_annotations.createml.json is no JSON, or cut off' in refusal(root)


def test_images_that_are_not_there_and_images_without_an_entry(tmp_path: Path) -> None:
    entries = entry(), entry('gone.jpg', thing(), thing())
    found = reading(roboflow(tmp_path / 'a', *entries, images=('a.jpg', 'b.jpg')))
    assert found.objects['train'] == {'train/a.jpg': [CAT]}
    assert '2 x object of an image that is not there (left out): gone.jpg' in found.text
    assert '1 x image without an entry (not labelled, so left out): b.jpg' in found.text


@pytest.mark.parametrize('folder', ['', 'images'])
def test_one_file_is_split_by_a_hash(tmp_path: Path, folder: str) -> None:
    root = tmp_path / 'a'
    for name in MANY:
        image(root / folder / name)
    missing = entry('gone.jpg')
    write(root / 'all.json', json.dumps([*map(entry, MANY), missing]))
    found = reading(root)
    assert sorted(len(some) for some in found.objects.values()) == [4, 16]
    assert {Path(x).name for some in found.objects.values() for x in some} == {*MANY}
    assert (
        '1 x object of an image that is not there' in found.text
    )  # once for both splits


@pytest.mark.parametrize('folder', ['', 'labels'])
def test_a_file_for_each_image_as_labelimg_writes_it(
    tmp_path: Path, folder: str
) -> None:
    root = tmp_path / 'a'
    for name in MANY:
        image(root / name)
        write((root / folder / name).with_suffix('.json'), json.dumps([entry(name)]))
    image(root / 'renamed.jpg')
    write(root / 'renamed.json', json.dumps([entry('img_0001.jpg')]))
    write(root / 'classes.json', '["cat"]')
    found = reading(root)
    assert sum(len(some) for some in found.objects.values()) == 21
    assert all(x == [CAT] for some in found.objects.values() for x in some.values())


def test_splits_by_the_names_of_files(tmp_path: Path) -> None:
    """Images of one name are told apart by the split of the file."""
    root = tmp_path / 'a'
    for split in ('train', 'val'):
        image(root / 'images' / split / '1.jpg')
        write(root / f'{split}.json', json.dumps([entry('1.jpg', thing(split))]))
    found = reading(root)
    boxes = [(split, (10, 5, 20, 10), 0) for split in ('train', 'val')]
    assert found.objects['train'] == {'images/train/1.jpg': boxes[:1]}
    assert '1 x object of the unknown class' not in found.text and found.classes == (
        'train',
        'val',
    )


def test_images_for_validation_without_entries_are_refused(tmp_path: Path) -> None:
    root = roboflow(tmp_path / 'a', *map(entry, MANY), images=tuple(MANY))
    (root / 'valid' / '_annotations.createml.json').unlink()
    assert f'{root}/valid has images, but no labels' in refusal(root)


def test_lists_of_the_splits(tmp_path: Path) -> None:
    root = tmp_path / 'a'
    for name in ('1', '2', '3', '4'):
        image(root / 'images' / f'{name}.jpg')
    write(root / 'train.txt', 'images/1.jpg\nimages/4.jpg\nimages/5.jpg')
    write(root / 'val.txt', 'images/2.jpg')
    write(root / 'all.json', json.dumps([entry(f'{name}.jpg') for name in (1, 2, 3)]))
    found = reading(root)
    expected = dict(train={'images/1.jpg': [CAT]}, val={'images/2.jpg': [CAT]})
    assert found.objects == expected and 'train.txt, val.txt' in found.text
    assert '1 x image without an entry (not labelled, so left out): 4.jpg' in found.text
    assert '1 x listed image that is not there: images/5' in found.text


def test_other_words_for_one_split(tmp_path: Path) -> None:
    root = tmp_path / 'a'
    for split, word in (('train2017', 'training'), ('val', 'valid')):
        image(root / 'images' / split / '1.jpg')
        write(root / f'{word}.json', json.dumps([entry('1.jpg')]))
    expected = dict(
        train={'images/train2017/1.jpg': [CAT]}, val={'images/val/1.jpg': [CAT]}
    )
    assert reading(root).objects == expected


def test_a_test_split_that_is_not_used(tmp_path: Path) -> None:
    """Roboflow's test/ beside valid/: its missing image is none of the training."""
    root = roboflow(tmp_path / 'a', entry())
    image(root / 'test' / 't.jpg')
    text = json.dumps([entry('t.jpg'), entry('gone.jpg')])
    write(root / 'test' / '_annotations.createml.json', text)
    found = reading(root)
    assert found.objects == dict(
        train={'train/a.jpg': [CAT]}, val={'valid/v.jpg': [CAT]}
    )
    assert 'gone.jpg' not in found.text


def test_no_image_is_there(tmp_path: Path) -> None:
    root = roboflow(tmp_path / 'a', entry('x.jpg'))
    write(root / 'valid' / '_annotations.createml.json', json.dumps([entry('y.jpg')]))
    assert 'none of its images is in' in refusal(root)


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    root = roboflow(tmp_path / 'a', entry())
    assert reading(root).objects['train'] == {'train/a.jpg': [CAT]}
    write(
        root / 'train' / '_annotations.createml.json',
        json.dumps([entry('a.jpg', thing('dog'))]),
    )
    assert reading(root).objects['train']['train/a.jpg'][0][0] == 'dog'


def test_a_file_for_each_image_in_folders_of_splits(tmp_path: Path) -> None:
    """A file whose image is not there is counted in its split."""
    root = tmp_path / 'a'
    for name in ('train/1', 'train/2', 'val/1'):
        image(root / f'{name}.jpg')
    for name in ('train/1', 'train/2', 'train/3', 'val/1'):
        write(root / f'{name}.json', json.dumps([entry(f'{name[-1]}.jpg')]))
    found = reading(root)
    expected = dict(
        train={'train/1.jpg': [CAT], 'train/2.jpg': [CAT]}, val={'val/1.jpg': [CAT]}
    )
    assert found.objects == expected
    assert '1 x object of an image that is not there (left out): 3.jpg' in found.text


@pytest.mark.parametrize('source', ['labels', 'all.json'])
def test_convert_data(tmp_path: Path, source: str) -> None:
    for name in MANY:
        image(tmp_path / 'images' / name)
        write(tmp_path / 'labels' / f'{name[:-4]}.json', json.dumps([entry(name)]))
    write(tmp_path / 'all.json', json.dumps([*map(entry, MANY)]))
    out = tmp_path / 'out' / 'train.json'
    convert_data(
        'createml', tmp_path / source, out, images=tmp_path / 'images', val_share=0.2
    )
    files = [
        objects_in(json.loads(out.with_name(f'{x}.json').read_text()))
        for x in ('train', 'val')
    ]
    assert {**files[0], **files[1]} == {name: [CAT] for name in MANY} and len(
        files[1]
    ) == 4


@pytest.mark.parametrize('is_one_file', [True, False])
def test_an_image_belongs_to_the_name_with_most_of_its_folders(
    tmp_path: Path, is_one_file: bool
) -> None:
    root = tmp_path / 'data'
    for name in MANY:
        image(root / 'images/camB' / name)
    lost = [entry(f'camA/{number}.jpg') for number in (0, 1)]
    there = [entry(f'camB/{name}') for name in MANY]
    write(root / 'a.json', json.dumps(lost + there if is_one_file else lost))
    write(root / 'b.json', json.dumps(there))
    if is_one_file:
        (root / 'b.json').unlink()
    found = reading(root)
    assert (
        '2 x object of an image that is not there (left out): camA/0.jpg' in found.text
    )
    assert sum(map(len, found.objects.values())) == 20
    write(root / 'a.json', json.dumps([entry(f'camA/{name}') for name in MANY]))
    (root / 'b.json').unlink(missing_ok=True)
    line = '20 x image in another folder than its name says (taken by its name)'
    assert line in reading(root).text
