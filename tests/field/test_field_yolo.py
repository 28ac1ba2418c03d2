"""YOLO data sets as people have them: the reading that is right, or the line that is said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from PIL import Image

from helpers.field import Reading, files, image, reading, refusal, write
from rope_dense.data.convert_data import convert_data
from rope_dense.data.labels.folders import find_labels
from rope_dense.data.labels.inventory import Inventory
from rope_dense.data.labels.objects import NO_IMAGE
from rope_dense.data.labels.yolo_folders import find_yolo

LINE = '0 .5 .5 .5 .4'
DOG_LINE = '1 .5 .5 .5 .4'
BOX = (10, 9, 20, 12)  # of LINE in an image of 40 x 30
CAT, DOG = [('cat', BOX, 0)], [('dog', BOX, 0)]
FOLDERS = 'train: images/train\nval: images/val\n'
NAMES = 'names: [cat, dog]\n'
YAML = FOLDERS + NAMES


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / 'data'


def pair(images: str, labels: str, line: str = LINE) -> dict[str, str | bytes | None]:
    """An image and its label file, by their paths without suffix."""
    return {f'{images}.jpg': None, f'{labels}.txt': line}


def split_pairs(train: str = LINE, val: str = LINE) -> dict[str, str | bytes | None]:
    """images/ and labels/ with train/ and val/, an image in each."""
    return {
        **pair('images/train/a', 'labels/train/a', train),
        **pair('images/val/b', 'labels/val/b', val),
    }


def many(images: str, labels: str, line: str = LINE) -> dict[str, str | bytes | None]:
    """Ten images, of which the hash takes some for validation."""
    return {
        k: v
        for n in range(10)
        for k, v in pair(f'{images}{n}', f'{labels}{n}', line).items()
    }


def of_lines(root: Path, *lines: str, yaml: str = YAML) -> Reading:
    """The reading of a training image with these lines."""
    return reading(files(root, {'data.yaml': yaml, **split_pairs('\n'.join(lines))}))


# Names of the classes


@pytest.mark.parametrize(
    'names, classes',
    [
        ('names: {0: cat, 1: dog}', ('cat', 'dog')),
        ('names:\n  1: dog\n  0: cat', ('cat', 'dog')),  # B18: by the order of lines
        ("names: {'1': dog, '0': cat}", ('cat', 'dog')),
        ('names: [cat, dog]\nnc: 2', ('cat', 'dog')),
        ('names:\n- cat\n- dog', ('cat', 'dog')),
        ('names: [yes, no]', ('yes', 'no')),  # F6: True, False
        ('names: [on, off]', ('on', 'off')),
        ('names: [~, null]', ('~', 'null')),
        ('names: [1.10, 2.20]', ('1.10', '2.20')),
        ('names: [0, 1]', ('0', '1')),  # F6b: a checkpoint that could not predict
        ('names: [1_000, 0x1F, 2024-01-01]', ('1_000', '0x1F', '2024-01-01')),
        ('names: {0: traffic light, 1: "stop: sign"}', ('traffic light', 'stop: sign')),
        ('names: [" cat ", dog]', ('cat', 'dog')),  # F10
    ],
)
def test_names_are_text_by_number(
    root: Path, names: str, classes: tuple[str, ...]
) -> None:
    found = of_lines(root, LINE, DOG_LINE, yaml=FOLDERS + names)
    assert found.classes == classes
    assert [item[0] for item in found.objects['train']['a.jpg']] == list(classes[:2])


def test_names_of_a_yaml_without_names_are_in_classes_txt(root: Path) -> None:
    found = reading(
        files(root, {'data.yaml': FOLDERS, 'classes.txt': 'cat\ndog', **split_pairs()})
    )
    assert found.classes == ('cat', 'dog')


@pytest.mark.parametrize(
    'names, said',
    [
        ('names: {0: cat, 2: dog}', 'they have to be 0 to 1: 1 is missing'),  # B18
        ('names: {1: cat, 2: dog}', '0 is missing'),
        ('names: {0: cat, 0: dog}', 'given twice'),
        ('names: {cat: 0, dog: 1}', 'a key of `names` is no class number'),
        ('names: cat', "`names` is 'cat': give a list"),  # F6: classes c, a, t
        ('names: cat, dog', 'give a list'),
        ('names: [cat, cat]', "classes 0 and 1 are both 'cat'"),  # F6
        ('names: [cat, ""]', 'class 1 has no name'),
        ('names: [cat, [dog]]', 'give a list'),
        ('names: []', 'no class in it'),
        ('names: [cat]\nnc: 3', 'nc is 3, and `names` has 1'),  # F6
        ('nc: 2', 'no `names`'),
    ],
)
def test_names_that_are_wrong_are_refused(root: Path, names: str, said: str) -> None:
    found = refusal(files(root, {'data.yaml': FOLDERS + names, **split_pairs()}))
    assert said in found and 'data.yaml' in found


def test_a_byte_order_mark_and_crlf_are_no_part_of_names(root: Path) -> None:  # B7
    given = split_pairs('\ufeff' + LINE.replace(' ', '\t') + ' \r\n\r\n' + DOG_LINE)
    found = reading(
        files(root, {'classes.txt': '\ufeffcat\r\ndog\r\n'.encode(), **given})
    )
    assert (
        found.classes == ('cat', 'dog') and found.objects['train']['a.jpg'] == CAT + DOG
    )


# Places of images and labels


def test_ultralytics(root: Path) -> None:
    """With args.yaml and a cache beside it, hidden files, and an image without a label file."""
    more = {
        'args.yaml': 'task: detect\nmode: train\ndata: coco8.yaml\nval: true\nsplit: val\n',
        'images/train/none.jpg': None,
        'images/train/._a.jpg': b'Mac OS X',  # B10
        'images/train/@eaDir/a.jpg/SYNOFILE_THUMB_M.jpg': None,
        'images/train/#recycle/old.jpg': None,
        'labels/train/._a.txt': b'\x00\x05',
        'labels/train.cache': b'',
        'labels/train/empty.txt': '',
        'images/train/empty.jpg': None,
    }
    found = reading(files(root, {'data.yaml': YAML, **split_pairs(), **more}))
    assert found.objects['train'] == {'a.jpg': CAT, 'empty.jpg': [], 'none.jpg': []}
    assert found.objects['val'] == {'b.jpg': CAT}
    assert found.text.startswith(
        'YOLO, 3 training images and 1 validation images, by data.yaml'
    )
    assert '1 x image without a label file (no objects): none.jpg' in found.text


def test_two_images_of_one_label_file_are_named(root: Path) -> None:
    """A converted copy, or another picture: only one of both is trained."""
    more = {'images/train/a.png': None}
    found = reading(files(root, {'data.yaml': YAML, **split_pairs(), **more}))
    assert found.objects['train'] == {'a.jpg': CAT}
    line = '1 x two images of one name (the first is taken): a.jpg and a.png'
    assert line in found.text


@pytest.mark.parametrize('val', ['../valid/images', 'valid/images', './valid/images/'])
def test_roboflow(root: Path, val: str) -> None:
    yaml = (
        f'train: ../train/images\nval: {val}\ntest: ../test/images\n\nnc: 2\n{NAMES}\n'
        'roboflow:\n  workspace: w\n  version: 1\n  license: CC BY 4.0\n'
    )
    given = {
        'data.yaml': yaml,
        'README.roboflow.txt': 'Exported by a user\n640 images\n',
        **pair('train/images/a_jpg.rf.1f', 'train/labels/a_jpg.rf.1f'),
        **pair('valid/images/b', 'valid/labels/b', DOG_LINE),
        **pair('../train/images/other', '../train/labels/other'),  # of another data set
    }
    found = reading(files(root, given))
    assert found.objects == {'train': {'a_jpg.rf.1f.jpg': CAT}, 'val': {'b.jpg': DOG}}


def test_roboflow_darknet(root: Path) -> None:
    """Images, labels and _darknet.labels in the folder of each split."""
    given = {f'{split}/_darknet.labels': 'cat\ndog' for split in ('train', 'valid')}
    given |= pair('train/a', 'train/a') | pair('valid/b', 'valid/b', DOG_LINE)
    found = reading(files(root, given))
    assert found.objects == {'train': {'a.jpg': CAT}, 'val': {'b.jpg': DOG}}


@pytest.mark.parametrize('prefix', ['', 'data/', '/home/me/project/'])
def test_cvat_1_1_and_darknet(root: Path, prefix: str) -> None:
    given = {
        'obj.data': f'classes = 2\ntrain = {prefix}train.txt\nvalid={prefix}valid.txt\n'
        f'names = {prefix}obj.names\nbackup = backup/\n',
        'obj.names': 'cat\ndog\n',
        'train.txt': f'{prefix}obj_train_data/a.jpg\n{prefix}obj_train_data/sub/c.jpg\n',
        'valid.txt': f'{prefix}obj_valid_data/b.jpg\n',
        **pair('obj_train_data/a', 'obj_train_data/a'),
        **pair('obj_train_data/sub/c', 'obj_train_data/sub/c', DOG_LINE),
        **pair('obj_valid_data/b', 'obj_valid_data/b', DOG_LINE),
    }
    found = reading(files(root, given))
    assert found.objects == {
        'train': {'a.jpg': CAT, 'sub/c.jpg': DOG},
        'val': {'b.jpg': DOG},
    }
    for name in ('obj.data', 'train.txt', 'valid.txt'):
        (root / name).unlink()
    assert reading(root).objects == found.objects


def test_darknet_voc(root: Path) -> None:
    """labels/ beside JPEGImages/, and lists of absolute paths of another machine."""
    home = '/home/pjreddie/data/voc/VOCdevkit/VOC2007/JPEGImages'
    given = {
        'voc.data': 'classes= 2\ntrain  = /home/pjreddie/data/voc/train.txt\n'
        'valid  = /home/pjreddie/data/voc/2007_test.txt\nnames = data/voc.names\n',
        'voc.names': 'cat\ndog\n',
        'train.txt': f'{home}/a.jpg\n',
        '2007_test.txt': f'{home}/b.jpg\n',
    }
    folder = 'VOCdevkit/VOC2007'
    for name in 'abc':
        given |= pair(f'{folder}/JPEGImages/{name}', f'{folder}/labels/{name}')
    found = reading(files(root, given))
    assert found.objects == {'train': {'a.jpg': CAT}, 'val': {'b.jpg': CAT}}


def test_cvat_ultralytics_without_val(root: Path) -> None:
    """A list with one split: a hash splits it."""
    given = many('images/train/', 'labels/train/')
    lines = ''.join(f'data/{name}\n' for name in given if name.endswith('.jpg'))
    yaml = (
        'path: ./ # dataset root dir\ntrain: train.txt\n\nnames:\n  0: cat\n  1: dog\n'
    )
    found = reading(files(root, {'data.yaml': yaml, 'train.txt': lines, **given}))
    assert sum(map(len, found.objects.values())) == 10 and all(found.objects.values())
    assert 'by data.yaml, which has no `val`, and a hash of the name' in found.text


@pytest.mark.parametrize(
    'val', ['', 'val:', 'val: ~', 'val: null', 'val: []', 'val: [""]']
)
def test_a_yaml_without_val(root: Path, val: str) -> None:
    yaml = f'train: images/train\n{val}\n{NAMES}'
    found = reading(
        files(root, {'data.yaml': yaml, **many('images/train/', 'labels/train/')})
    )
    assert sum(map(len, found.objects.values())) == 10 and all(found.objects.values())


@pytest.mark.parametrize('name', ['valid', 'validation', 'test'])
def test_other_names_of_val(root: Path, name: str) -> None:
    yaml = f'train: images/train\nval: \n{name}: images/val\n{NAMES}'
    found = reading(files(root, {'data.yaml': yaml, **split_pairs()}))
    assert found.objects == {'train': {'a.jpg': CAT}, 'val': {'b.jpg': CAT}}


LABEL_STUDIO = {
    'classes.txt': 'cat\ndog\n',
    'notes.json': '{"categories": [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}], '
    '"info": {"year": 2024, "version": "1.0", "contributor": "Label Studio"}}',
}


@pytest.mark.parametrize(
    'given',
    [
        LABEL_STUDIO | many('images/1a2b3c-', 'labels/1a2b3c-', DOG_LINE),
        many('', '', DOG_LINE)
        | {'classes.txt': 'cat\ndog'},  # LabelImg, beside the images
        many('images/', 'labels/', DOG_LINE) | {'labels/classes.txt': 'cat\ndog'},
        many('images/', 'images/', DOG_LINE) | {'images/classes.txt': 'cat\ndog'},
        many('obj_train_data/', 'obj_train_data/', DOG_LINE)
        | {'obj.names': 'cat\ndog'},
        many('images/', 'labels/', DOG_LINE) | {'dataset.yaml': NAMES},
        many('images/', 'labels/', DOG_LINE) | {'data.yaml': 'train: images\n' + NAMES},
        many('', '') | {'labels.txt': 'dog'},  # makesense.ai
        many('data/', 'data/')
        | {'obj.names': 'dog', 'images.txt': 'data/0.jpg'},  # FiftyOne, v4
        many('images/t/', 'labels/t/')
        | {'dataset.yaml': 'names:\n  0: dog\npath: /a/b\ntrain: ./images/t/\n'},  # v5
        many('project/images/', 'project/labels/', DOG_LINE)
        | {'project/classes.txt': 'cat\ndog'},
        many('cam1/images/', 'cam1/labels/', DOG_LINE)
        | {'data.yaml': 'train: [cam1/images]\n' + NAMES},
    ],
)
def test_without_a_split_a_hash_says_it(
    root: Path, given: Mapping[str, str | None]
) -> None:
    found = reading(files(root, given))
    assert sum(map(len, found.objects.values())) == 10 and all(found.objects.values())
    assert {
        items[0][0] for part in found.objects.values() for items in part.values()
    } == {'dog'}


@pytest.mark.parametrize(
    'given',
    [
        split_pairs() | {'classes.txt': 'cat\ndog'},
        split_pairs() | {'labels/train/classes.txt': 'cat\ndog'},
        split_pairs() | {'obj.names': 'cat\ndog'},
        split_pairs() | {'data.yaml': NAMES},
        pair('train/images/a', 'train/labels/a')
        | pair('valid/images/b', 'valid/labels/b')
        | {
            'train/labels/classes.txt': 'cat\ndog',
            'valid/labels/classes.txt': 'cat\ndog\n',
        },
        pair('train/a', 'train/a')
        | pair('val/b', 'val/b')
        | {'classes.txt': 'cat\ndog'},
        pair('Images/Train/a', 'Labels/Train/a')
        | pair('Images/Test/b', 'Labels/Test/b')
        | {'classes.txt': 'cat\ndog'},
        pair('images/a', 'labels/a')
        | pair('images/b', 'labels/b')
        | {
            'train.txt': 'images/a.jpg',
            'val.txt': './images/b.jpg\n',
            'classes.txt': 'cat\ndog',
        },
        {f'export/{name}': text for name, text in split_pairs().items()}
        | {'export/classes.txt': 'cat\ndog'},
    ],
)
def test_folders_of_the_common_names(
    root: Path, given: Mapping[str, str | None]
) -> None:
    found = reading(files(root, given))
    assert found.classes == ('cat', 'dog')
    assert found.objects == {'train': {'a.jpg': CAT}, 'val': {'b.jpg': CAT}}


@pytest.mark.parametrize(
    'prefix', ['', './', 'data/project/', '/home/you/data/', 'C:\\data\\']
)
def test_lists_of_images(
    root: Path, prefix: str
) -> None:  # B20: ultralytics' coco.yaml
    given = {
        'coco.yaml': f'path: ../datasets/coco\ntrain: train.txt\nval: val.txt\n{NAMES}',
        'train.txt': f'{prefix}images/t/a.jpg\n\n{prefix}images/t/sub/c.jpg\n',
        'val.txt': f'{prefix}images/t/b.jpg\n',
    }
    for name in ('a', 'b', 'sub/c', 'd'):
        given |= pair(f'images/t/{name}', f'labels/t/{name}')
    folder = find_labels(Inventory(files(root, given)))
    assert folder.splits['train'].images == root / 'images/t'
    assert reading(root).objects == {
        'train': {'a.jpg': CAT, 'sub/c.jpg': CAT},
        'val': {'b.jpg': CAT},
    }


@pytest.mark.parametrize(
    'train, names',
    [
        ('[images/one, images/two]', {'one/a', 'two/a'}),  # B20
        ('\n- images/one\n- ./images/two/\n', {'one/a', 'two/a'}),
        ('[one.txt, two.txt]', {'one/a', 'two/a'}),
        ('[one.txt, images/two]', {'one/a', 'two/a'}),
    ],
)
def test_several_folders_or_lists(root: Path, train: str, names: set[str]) -> None:
    given = {'data.yaml': f'train: {train}\nval: images/val\n{NAMES}'}
    for name in ('one', 'two', 'val'):
        given |= pair(
            f'images/{name}/a', f'labels/{name}/a', LINE if name == 'one' else DOG_LINE
        )
        given[f'{name}.txt'] = f'./images/{name}/a.jpg'
    folder = find_labels(Inventory(files(root, given)))
    assert folder.splits['train'].images == root / 'images'
    images = folder.splits['train'].files.pairs.values()
    assert {
        x.relative_to(root / 'images').with_suffix('').as_posix() for x in images
    } == names
    assert reading(root).objects['train'] == {'one/a.jpg': CAT, 'two/a.jpg': DOG}


def test_several_folders_of_splits(root: Path) -> None:
    """Images and labels in each, one of them without objects."""
    given = {
        'data.yaml': f'train: [a/images, b/images, none/images]\nval: c/images\n{NAMES}'
    }
    for name in 'abc':
        given |= pair(
            f'{name}/images/x', f'{name}/labels/x', DOG_LINE if name == 'b' else LINE
        )
    found = reading(files(root, {**given, 'none/images/x.jpg': None}))
    assert found.objects == {
        'train': {
            'a/images/x.jpg': CAT,
            'b/images/x.jpg': DOG,
            'none/images/x.jpg': [],
        },
        'val': {'x.jpg': CAT},
    }
    assert 'without an image' not in found.text


@pytest.mark.parametrize(
    'yaml',
    [
        'path: /content/datasets/mine\n' + FOLDERS,
        'path: ../datasets/mine\n' + FOLDERS,
        'path: C:\\Users\\me\\mine\ntrain: images\\train\nval: images\\val\n',
        'train: /content/mine/images/train\nval: /content/mine/images/val\n',
        'train: mine/images/train\nval: mine/images/val/\n',
        'train: /images/train\nval: /images/val\n',
        'path: .\n' + FOLDERS,
        'path:\n' + FOLDERS,
        'path: ""\n' + FOLDERS,
    ],
)
def test_paths_of_another_machine(root: Path, yaml: str) -> None:
    found = reading(files(root, {'data.yaml': yaml + NAMES, **split_pairs()}))
    assert found.objects == {'train': {'a.jpg': CAT}, 'val': {'b.jpg': CAT}}


@pytest.mark.parametrize(
    'path', ['sub/data', './sub/data', '{root}/sub/data', '../outside']
)
def test_path_says_where_the_data_are(root: Path, path: str) -> None:
    home = root.parent / 'outside' if 'outside' in path else root / 'sub/data'
    files(home, split_pairs())
    files(root, {'data.yaml': f'path: {path.format(root=root)}\n{YAML}'})
    assert reading(root).objects == {'train': {'a.jpg': CAT}, 'val': {'b.jpg': CAT}}


def test_a_copy_whose_path_is_that_of_the_original(root: Path) -> None:
    """Neither is taken without a word."""
    original = files(root.parent / 'original', split_pairs())
    files(root, {'data.yaml': f'path: {original}\n{YAML}', **split_pairs(DOG_LINE)})
    assert 'correct `path`' in refusal(root)


def test_images_outside_are_said(root: Path) -> None:  # B11
    other = files(root.parent / 'other', split_pairs())
    files(root, {'data.yaml': f'path: {other}\n{YAML}'})
    assert f'by data.yaml (images in {other}/images/train);' in reading(root).text


@pytest.mark.parametrize('val', ['images/train', './images/train/'])
def test_val_may_be_train(root: Path, val: str) -> None:  # coco128, F8
    files(
        root,
        {'data.yaml': f'train: images/train\nval: {val}\n{NAMES}', **split_pairs()},
    )
    assert '1 of 1 validation images are training images, too' in reading(root).text


def test_a_yaml_in_a_folder_below(root: Path) -> None:  # F9
    files(root, {'README.md': 'mine', 'runs/args.yaml': 'task: detect\nval: true\n'})
    files(root / 'mine-1', {'data.yaml': YAML, **split_pairs()})
    assert reading(root).objects == {'train': {'a.jpg': CAT}, 'val': {'b.jpg': CAT}}
    files(root / 'mine-2', {'data.yaml': YAML, **split_pairs()})
    assert 'has several YOLO data sets' in refusal(root)


@pytest.mark.parametrize('entry', ['../images/{}', 'images/{}', '/data/images/{}'])
def test_a_yaml_in_a_folder_beside_the_images(root: Path, entry: str) -> None:
    yaml = f'train: {entry.format("train")}\nval: {entry.format("val")}\n{NAMES}'
    found = reading(files(root, {'cfg/data.yaml': yaml, **split_pairs(DOG_LINE)}))
    assert found.objects == {'train': {'a.jpg': DOG}, 'val': {'b.jpg': CAT}}


def test_several_yaml_files(root: Path) -> None:
    files(root, {'data.yaml': YAML, 'again.yml': YAML + 'nc: 2\n', **split_pairs()})
    assert reading(root).classes == ('cat', 'dog')
    files(root, {'other.yaml': FOLDERS + 'names: [dog, cat]\n'})
    assert (
        'again.yml, data.yaml, other.yaml, which declare different data sets'
        in refusal(root)
    )


# Data sets that lack something


@pytest.mark.parametrize(
    'given, said',
    [
        (  # F9: COCO's message
            pair('train/images/a', 'train/labels/a')
            | pair('valid/images/b', 'valid/labels/b'),
            [
                'train/labels has YOLO labels',
                'names of the classes are missing',
                'classes.txt',
            ],
        ),
        (split_pairs(), ['labels/train has YOLO labels', 'classes.txt', 'data.yaml']),
        (many('images/', 'labels/'), ['labels has YOLO labels', 'classes.txt']),
        (split_pairs() | {'data.yaml': FOLDERS}, ['names of the classes are missing']),
        (
            split_pairs() | {'data.yaml': 'val: images/val\n' + NAMES},
            ['data.yaml has no `train`'],
        ),
        (
            split_pairs()
            | {'data.yaml': 'train: images/train\nval: images/nowhere\n' + NAMES},
            ["data.yaml: 'images/nowhere' is no folder", 'images/nowhere'],
        ),
        (
            split_pairs()
            | {'data.yaml': YAML.replace('images/train', 'images/train/a.jpg')},
            ["'images/train/a.jpg' is no folder and no list"],
        ),
        (
            split_pairs()
            | {f'more/{name}': text for name, text in split_pairs().items()}
            | {'classes.txt': 'cat', 'more/data.yaml': YAML},
            ['several YOLO data sets', 'more/images/train and', 'leave one'],
        ),
        (
            split_pairs()
            | {'data.yaml': 'train: a.txt\nval: images/val\n' + NAMES, 'a.txt': ''},
            ['a.txt: none of its 0 images'],
        ),
        (
            split_pairs()
            | {'data.yaml': YAML.replace('images/val', 'v.txt'), 'v.txt': 'x/q.jpg'},
            ['v.txt: none of its 1 images, x/q.jpg,'],
        ),
        (
            {'data.yaml': YAML, 'images/train/a.jpg': None},
            ["'images/val' is no folder"],
        ),
        (  # labels/ missing: F9
            {'data.yaml': YAML, 'images/train/a.jpg': None, 'images/val/b.jpg': None},
            [
                'no label files (.txt) for the training images',
                'labels/train',
                'beside the images',
            ],
        ),
        (
            {
                'data.yaml': YAML,
                **pair('images/train/a', 'labels/train/a'),
                'images/val/b.jpg': None,
            },
            ['no label files (.txt) for the validation images', 'labels/val'],
        ),
        (
            {
                'classes.txt': 'cat',
                **split_pairs(),
                'labels/val/b.txt': '',
                'images/val/c.jpg': None,
            },
            ['images/val has images, but no labels'],
        ),
        (
            {'classes.txt': 'cat', **pair('images/val/b', 'labels/val/b')},
            [
                'labels/val has labels for validation, and no train/ beside it has labels'
            ],
        ),
        (
            {
                'data.yaml': YAML,
                **split_pairs(),
                'images/train/a.jpg': b'',
                'labels/train/a.txt': '',
            },
            ['images/train'],
        ),
        (
            {'data.yaml': 'train: [images/train\n' + NAMES, **split_pairs()},
            ['data.yaml is no YAML'],
        ),
        (
            {
                'data.yaml': 'train: x/images\nval: y/images\n' + NAMES,
                **pair('images/a', 'labels/a'),
            },
            ["'x/images' and 'y/images' are both found in", 'is a folder missing?'],
        ),
        (
            split_pairs()
            | {
                'labels/train/classes.txt': 'cat\ndog',
                'labels/val/classes.txt': 'dog\ncat',
            },
            [
                'labels/train/classes.txt',
                'labels/val/classes.txt',
                'have different classes',
            ],
        ),
        (
            {
                'data.yaml': YAML,
                **pair('images/val/b', 'labels/val/b'),
                **pair('images/train/a', 'b'),
            },
            ['no label files (.txt) for the training images'],
        ),
        (
            {'classes.txt': 'cat', 'obj.names': 'dog', **many('images/', 'labels/')},
            ['classes.txt', 'obj.names', 'have different classes: leave one'],
        ),
        (
            {'classes.txt': 'cat', **pair('images/a', 'labels/a')},
            ['1 labelled image, so none for validation'],
        ),
        (
            {'data.yaml': YAML, **pair('images/val/b', 'labels/val/b')}
            | {**pair('images/train/c', 'labels/train/d'), 'images/train/a.jpg': None},
            ['images/train: none of its 2 images has a label file'],
        ),
    ],
)
def test_what_is_missing_is_said(
    root: Path, given: Mapping[str, str | None], said: list[str]
) -> None:
    found = refusal(files(root, given))
    assert all(text in found for text in said), found


@pytest.mark.parametrize(
    'given',
    [
        {
            'labels/a.txt': LINE,
            'classes.txt': 'cat\ndog',
            'notes.json': '{}',
        },  # without images
        {'labels/train/a.txt': LINE, 'classes.txt': 'cat', 'pictures/b.jpg': None},
    ],
)
def test_labels_that_no_image_is_found_for_are_said(
    root: Path, given: Mapping[str, str | None]
) -> None:
    found = refusal(files(root, given))
    assert (
        'a.txt has labels as of YOLO, but none of its folders has their images' in found
    )


@pytest.mark.parametrize(
    'given',
    [
        many('images/', 'labels/val/') | pair('images/a', 'labels/train/a'),
        many('pictures/', 'annotations/'),
        {f'one/two/{name}': text for name, text in many('images/', 'labels/').items()},
        {
            f'export/export/{name}': text
            for name, text in many('train/images/', 'train/labels/').items()
        },
        many(
            'images/', 'labels/0a1b2c3d-'
        ),  # Label Studio, beside the images under their names
    ],
)
def test_other_layouts_are_read(root: Path, given: Mapping[str, str | None]) -> None:
    """F10 b and its kind."""
    names = {'export/export/data.yaml': NAMES} if 'export/export' in str(given) else {}
    found = reading(files(root, {'classes.txt': 'cat', **given, **names}))
    images = [name for name in given if name.endswith('.jpg')]
    assert sum(map(len, found.objects.values())) == len(images) and all(
        found.objects.values()
    )
    assert {
        items[0][0] for part in found.objects.values() for items in part.values()
    } == {'cat'}


def test_images_of_one_split_in_folders_apart(root: Path) -> None:
    yaml = f'train: [images/train, ../other]\nval: images/val\n{NAMES}'
    given = {
        'data.yaml': yaml,
        **split_pairs(),
        **pair('../other/c', '../other/c', DOG_LINE),
    }
    found = reading(files(root, given)).objects
    assert {Path(name).name: items for name, items in found['train'].items()} == {
        'a.jpg': CAT,
        'c.jpg': DOG,
    }


def test_folders_that_are_not_of_yolo(root: Path) -> None:
    """Text files of other kinds, and masks in labels/."""
    for number, given in enumerate(
        [
            {
                'images/train/a.jpg': None,
                'labels/train/a.png': None,
                'classes.txt': 'cat',
            },
            {
                'images/a.jpg': None,
                'images/a.txt': 'a photograph of a cat',
                'classes.txt': 'cat',
            },
            {
                'images/a.jpg': None,
                'labelTxt/a.txt': '1 1 5 1 5 5 1 5 0 0',
                'classes.txt': '0',
            },
            {
                'train/images/a.jpg': None,
                'train/labelTxt/a.txt': '1 1 5 1 5 5 1 5 ship 0',
            },
            {'config.yaml': 'train: {lr: 1}\nval: {n: 2}\nnames: [x]\n'},
            {'broken.yaml': 'a: [', 'a.jpg': None},
        ]
    ):
        assert find_yolo(Inventory(files(root / str(number), given))) is None


# The label file of an image


@pytest.mark.parametrize(
    'given',
    [
        pair('images/train/a', 'labels/train/a'),
        pair('images/train/a', 'images/train/a'),  # beside the image: F9
        {'images/train/a.jpg': None, 'labels/train/a.TXT': LINE},  # F9
        {'images/train/a.JPG': None, 'labels/train/a.txt': LINE},
        pair('images/train/a', 'labels/a'),  # one folder of labels for all
        pair('images/train/sub/a', 'labels/train/a'),  # F9
        pair('images/train/sub/a', 'labels/train/sub/a'),
        {'images/train/a.jpg': None, 'labels/train/a.jpg.txt': LINE},
        pair('images/train/a.b.c', 'labels/train/a.b.c'),
        pair('images/train/images/a', 'images/train/labels/a'),
        pair('images/train/a b (1) #%;', 'labels/train/a b (1) #%;'),
    ],
)
def test_label_files_of_images(root: Path, given: Mapping[str, str | None]) -> None:
    val = pair(
        'images/val/v',
        'labels/v' if 'labels/a.txt' in given else 'labels/val/v',
        DOG_LINE,
    )
    found = reading(files(root, {'data.yaml': YAML, **given, **val}))
    assert list(found.objects['train'].values()) == [CAT]
    assert list(found.objects['val'].values()) == [DOG]
    assert 'left out' not in found.text


def test_labels_beside_some_images(root: Path) -> None:
    given = split_pairs() | pair('images/train/c', 'images/train/c', DOG_LINE)
    found = reading(
        files(root, {'data.yaml': YAML, **given, 'images/train/a.txt': DOG_LINE})
    )
    assert list(found.objects['train'].values()) == [CAT, DOG]


def test_equal_names_in_inner_folders(root: Path) -> None:
    given = {'data.yaml': YAML, **split_pairs()}
    given |= pair('images/train/x/a', 'labels/train/x/a', DOG_LINE)
    given |= {'images/train/y/a.jpg': None}
    found = reading(files(root, given))
    assert found.objects['train'] == {'a.jpg': CAT, 'x/a.jpg': DOG, 'y/a.jpg': []}


def test_labels_of_equal_names_in_one_folder_are_refused(root: Path) -> None:
    given = {
        'data.yaml': YAML,
        'images/train/x/a.jpg': None,
        'images/train/y/a.jpg': None,
    }
    files(
        root,
        {**given, **pair('images/val/b', 'labels/val/b'), 'labels/train/a.txt': LINE},
    )
    assert (
        'labels/train/a.txt: which images are labelled there, of x/a, y/a'
        in refusal(root)
    )


def test_predictions_in_the_data_set_are_no_labels(root: Path) -> None:
    """Of `yolo predict`, for an image without objects, where a list makes the root the source."""
    yaml = 'train: [a/images, b/images]\nval: c/images\n' + NAMES
    given = {'data.yaml': yaml, 'a/images/none.jpg': None, 'b/images/many.jpg': None}
    for name in 'abc':
        given |= pair(f'{name}/images/x', f'{name}/labels/x')
    given |= {'runs/detect/predict/labels/none.txt': LINE, 'many.txt': LINE}
    found = reading(files(root, given))
    assert found.objects['train'] == {
        'a/images/none.jpg': [],
        'a/images/x.jpg': CAT,
        'b/images/many.jpg': [],
        'b/images/x.jpg': CAT,
    }


@pytest.mark.parametrize(
    'name', ['train_0', 'test1', 'val-1', 'readme', 'notes', 'validated']
)
def test_names_of_images_that_are_words_of_lists(root: Path, name: str) -> None:
    given = pair(f'images/train/{name}', f'labels/train/{name}')
    found = reading(files(root, {'data.yaml': YAML, **split_pairs(), **given}))
    assert found.objects['train'][f'{name}.jpg'] == CAT
    for path in ('images/train/a.jpg', 'labels/train/a.txt'):
        (root / path).unlink()
    if name not in ('readme', 'notes'):
        assert reading(root).objects['train'] == {f'{name}.jpg': CAT}


def test_label_files_without_an_image_are_counted(root: Path) -> None:
    given = many('images/train/', 'labels/train/') | pair(
        'images/val/b', 'labels/val/b'
    )
    files(
        root,
        {
            'data.yaml': YAML,
            **given,
            'labels/train/gone.txt': LINE,
            'labels/log.txt': 'x',
        },
    )
    assert f'1 x {NO_IMAGE} (left out): gone.txt' in reading(root).text
    (root / 'data.yaml').write_text('train: images/train\n' + NAMES)  # of a hash, once
    assert f'1 x {NO_IMAGE} (left out): gone.txt' in reading(root).text


def test_listed_images_that_are_not_there_are_counted(root: Path) -> None:
    given = many('images/', 'labels/') | {'labels/gone.txt': LINE}
    names = [
        *(f'images/{n}.jpg' for n in range(9)),
        'images/gone.jpg',
        'images/lost.jpg',
    ]
    yaml = 'train: train.txt\nval: val.txt\n' + NAMES
    lists = {'train.txt': '\n'.join(names), 'val.txt': 'images/9.jpg'}
    text = reading(files(root, {'data.yaml': yaml, **given, **lists})).text
    assert f'1 x {NO_IMAGE} (left out): gone.txt' in text
    assert '1 x listed image that is not there (left out): lost' in text


def test_labels_follow_the_size_of_the_image(root: Path) -> None:  # B4
    files(root, {'data.yaml': YAML, **split_pairs()})
    assert reading(root).objects['train'] == {'a.jpg': CAT}
    image(root / 'images/train/a.jpg', (60, 80))
    image(root / 'images/train/negative.jpg')
    assert reading(root).objects['train'] == {
        'a.jpg': [('cat', (20, 18, 40, 24), 0)],
        'negative.jpg': [],
    }


@pytest.mark.parametrize('orientation', [1, 3, 6, 8])
def test_shares_are_of_the_image_as_it_is_shown(root: Path, orientation: int) -> None:
    files(root, {'data.yaml': YAML, **split_pairs('0 .25 .25 .5 .5')})
    exif = Image.Exif()
    exif[274] = orientation
    image(root / 'images/train/a.jpg', exif=exif)
    box = (0, 0, 15, 20) if orientation > 4 else (0, 0, 20, 15)
    assert reading(root).objects['train'] == {'a.jpg': [('cat', box, 0)]}


def test_an_image_that_cannot_be_read_is_left_out(root: Path) -> None:
    given = many('images/train/', 'labels/train/', f'{LINE}\n{DOG_LINE}')
    given |= {'images/train/bad.jpg': b'', 'labels/train/bad.txt': LINE}
    found = reading(files(root, {'data.yaml': YAML, **split_pairs(), **given}))
    assert 'bad.jpg' not in found.objects['train']
    assert (
        '1 x object of an image that cannot be read (left out): bad.jpg' in found.text
    )


# Lines


@pytest.mark.parametrize(
    'image_name, label',
    [('IMG_9', 'img_9'), ('caf\u00e9', 'cafe\u0301'), ('cafe\u0301', 'caf\u00e9')],
)
def test_names_in_another_case_or_unicode_form(
    root: Path, image_name: str, label: str
) -> None:
    given = pair(f'images/train/{image_name}', f'labels/train/{label}')
    files(root, {'data.yaml': YAML, **split_pairs(), **given})
    found = reading(root)
    assert found.objects['train'][f'{image_name}.jpg'] == CAT
    assert '1 x label file whose name has another case or Unicode form' in found.text
    write(root / f'labels/train/{label.capitalize()}.txt', LINE)
    write(root / 'images/train/new.jpg', b'')  # a new key
    assert 'which images are labelled there' in refusal(root)


@pytest.mark.parametrize('place', ['', 'labels/', 'labels/train/'])
@pytest.mark.parametrize('name', ['classes.txt', 'labels.txt', 'obj.names'])
def test_a_list_of_classes_that_differs_from_the_yaml(
    root: Path, place: str, name: str
) -> None:
    files(root, {'data.yaml': YAML, **split_pairs(), f'{place}{name}': 'dog\ncat\n'})
    found = refusal(root)
    assert (
        'data.yaml and' in found and f'{name} number the classes differently' in found
    )
    write(root / f'{place}{name}', 'cat\ndog\n')
    assert reading(root).classes == ('cat', 'dog')


@pytest.mark.parametrize(
    'lines, said',
    [
        (['0 .5 .5 .4 .2 .9 1', '0 .5 .5 .4 .3 .8 0'], 'a.txt, line 1 has 6 numbers'),
        (
            ['0 .5 .5 .4 .2 .9 7'],
            'a box with two more numbers (angle, score or track number)?',
        ),
        (
            ['0 .5 .5 .4 .2 .3 .9', '1 .4 .5 .2 .2 .1 .8'],
            'three corners, or a box with two more',
        ),
        (
            ['0 .5 .5 .4 .2 1.57'],
            'is a fifth an angle? For rotated boxes write their four corners',
        ),
        (['0 .5 .5 .4 .2 1.57 .9'], 'for rotated boxes write their four corners'),
        (
            ['0 .1 .6 .7 .9', '0 .05 .7 .4 .95'],
            'a.txt, line 1 and more have boxes that leave',
        ),
        (['10 9 30 9 30 21 10 21 cat 0'], 'as of DOTA: name the folder labelTxt'),
    ],
)
def test_lines_of_other_formats_are_refused(
    root: Path, lines: list[str], said: str
) -> None:
    given = split_pairs('\n'.join(lines))
    assert said in refusal(files(root, {'data.yaml': YAML, **given}))


@pytest.mark.parametrize(
    'line, box, note',
    [
        ('0 .5 .5 .5 .4', BOX, ''),
        ('0.0 5e-1 .5 +.5 .4', BOX, ''),  # a class 0.0 is 0
        (
            '0 .5 .5 .5 .4 .9',
            BOX,
            'a fifth number (taken as its score; an angle is not read)',
        ),
        ('0 .25 .3 .75 .3 .75 .7 .25 .7', BOX, ''),  # OBB
        ('0 .25 .3 .75 .3 .75 .7', BOX, 'polygon of three corners'),
        (
            '0 .25 .3 .75 .3 .75 .7 .25 .7 .9',
            BOX,
            'polygon with a number behind it (taken as its',
        ),  # F10
        ('0 .25 .3 .75 .3 .75 .7 .5 .7 .25 .7', BOX, ''),
        ('0 .5 .5 -.5 .4', BOX, 'box with its corners in another order'),
        ('0 .5 .5 1.04 .4', (0, 9, 40, 12), 'partly outside'),
        ('0 -.04 .3 1.04 .3 1.04 .7 -.04 .7', (0, 9, 40, 12), 'partly outside'),
    ],
)
def test_lines(root: Path, line: str, box: tuple[int, ...], note: str) -> None:
    found = of_lines(root, line)
    assert found.objects['train'] == {'a.jpg': [('cat', box, 0)]}
    assert note in found.text and len(found.text.splitlines()) == 1 + bool(note)


def test_a_polygon_is_the_outline(root: Path) -> None:
    found = of_lines(root, '0 .25 .3 .75 .3 .75 .7', LINE)
    polygon, box = found.content['train']['annotations']
    assert polygon['segmentation'] == [pytest.approx([10, 9, 30, 9, 30, 21])]
    assert 'segmentation' not in box


@pytest.mark.parametrize(
    'line, said',
    [
        ('0 .5 nan .5 .4', 'nan'),
        ('0 .5 inf .5 .4', 'inf'),
        ('0,.5,.5,.5,.4', 'the class is'),
        ('0 0,5 0,5 0,5 0,4', "'0,5', which is no number"),
        ('cat .5 .5 .5 .4', "the class is 'cat'"),
        ('1.5 .5 .5 .5 .4', "the class is '1.5'"),
        ('# class x y w h', 'which is no number'),
        ('0 .5 .5 .5', '3 numbers after the class'),
        ('0', '0 numbers after the class'),
        ('0 .1 .1 .2 .2 .3 .3 .4', '7 numbers after the class'),
        (
            '0 20 15 20 12',
            '20 is no fraction of the image size, 0 to 1: is it in pixels?',
        ),  # F9
        ('0 50 .5 .5 .4', '50 is no fraction'),
        ('0 .5 .5 .5 .4 3', '5 numbers after the class'),
        ('0 10 9 30 9 30 21 10 21', 'a corner at 30'),
        (
            '0 .5 .5 .2 .2 .45 .45 2 .55 .55 2',
            'kpt_shape',
        ),  # F4: a polygon over half the image
        ('0 .5 .5 .2 .2 .45 .45 1 .55 .55 0', 'kpt_shape'),
        ('0 .5 .5 .2 .2 .45 .45 2', 'kpt_shape'),
        ('0 .5 .5 .2 .2 ' + ' '.join(['.5 .5 2'] * 17), 'kpt_shape'),
    ],
)
def test_lines_that_are_wrong_are_refused(root: Path, line: str, said: str) -> None:
    found = refusal(
        files(root, {'data.yaml': YAML, **split_pairs(f'{LINE}\n\n{line}')})
    )
    assert 'a.txt, line 3: ' in found and said in found


def test_numbers_of_classes_from_1_are_refused(root: Path) -> None:
    files(
        root, {'data.yaml': YAML, **split_pairs(f'{DOG_LINE}\n2 .5 .5 .5 .4', DOG_LINE)}
    )
    found = refusal(root)
    assert (
        'the numbers of 2 classes are 0 to 1, and those in the labels 1 to 2' in found
    )


@pytest.mark.parametrize('shape', ['[2, 3]', "['2', 3]", '\n- 2\n- 3'])
def test_key_points_are_no_corners(root: Path, shape: str) -> None:  # F4
    lines = ['0 .5 .5 .5 .4 .45 .45 2 .55 .55 1', '1 .5 .5 .5 .4 0 0 0 0 0 0']
    given = {'data.yaml': f'{YAML}kpt_shape: {shape}\nflip_idx: [1, 0]\n'}
    found = reading(files(root, {**given, **split_pairs('\n'.join(lines), lines[0])}))
    assert found.objects == {'train': {'a.jpg': CAT + DOG}, 'val': {'b.jpg': CAT}}
    assert (
        '3 x box with key points (the points are not used): a.txt, line 1' in found.text
    )


def test_key_points_that_a_yaml_of_names_says(root: Path) -> None:
    line = '0 .5 .5 .5 .4 .45 .45 2 .55 .55 1'
    files(root, {'pose.yaml': NAMES + 'kpt_shape: [2, 3]', **split_pairs(line, line)})
    assert reading(root).objects['train'] == {'a.jpg': CAT}
    convert_data('yolo', root / 'labels/train', root / 'out.json')
    assert len(json.loads((root / 'out.json').read_text())['annotations']) == 1


def test_key_points_of_two_numbers(root: Path) -> None:
    line = '0 .5 .5 .5 .4 .45 .45 .55 .55'
    files(root, {'data.yaml': YAML + 'kpt_shape: [2, 2]\n', **split_pairs(line, line)})
    assert reading(root).objects['train'] == {'a.jpg': CAT}
    write(root / 'data.yaml', YAML)  # nothing says it, so it is a polygon, and said
    said = '2 x line read as a polygon; if it is a box with key points, write kpt_shape: [points, 2'
    assert said in reading(root).text


@pytest.mark.parametrize(
    'shape, said',
    [
        ('[3, 3]', 'a.txt, line 1: 10 numbers after the class, and by kpt_shape 13'),
        ('17', 'data.yaml: kpt_shape is'),
        ('[2, 4]', 'data.yaml: kpt_shape is'),
        ('[2]', 'data.yaml: kpt_shape is'),
        ('[two, 3]', 'data.yaml: kpt_shape is'),
    ],
)
def test_kpt_shape_that_does_not_fit_is_refused(
    root: Path, shape: str, said: str
) -> None:
    line = '0 .5 .5 .5 .4 .45 .45 2 .55 .55 1'
    given = {'data.yaml': f'{YAML}kpt_shape: {shape}\n', **split_pairs(line)}
    assert said in refusal(files(root, given))


def test_unknown_classes_are_left_out_and_counted(root: Path) -> None:
    yaml = FOLDERS + 'names: [cat, "number 7"]\n'
    lines = [LINE, '7 .5 .5 .5 .4', '-1 .5 .5 .5 .4', '2 .5 .5 .5 .4']
    files(
        root,
        {
            'data.yaml': yaml,
            **split_pairs('\n'.join(lines)),
            **pair('images/train/c', 'labels/train/c', lines[1]),
        },
    )
    found = reading(root)
    assert found.objects['train'] == {
        'a.jpg': CAT
    }  # and c.jpg is no image without objects: F11
    for number, places in ((7, 'a.txt, line 2, c.txt, line 1'), (-1, 'a.txt, line 3')):
        assert (
            f'object of the unknown class {number} (left out): {places}' in found.text
        )


def test_an_object_twice_is_taken_once(root: Path) -> None:
    found = of_lines(root, LINE, DOG_LINE, '0 0.50 .5 0.5 .4', LINE)
    assert found.objects['train'] == {'a.jpg': CAT + DOG}
    assert '2 x object that is there twice (taken once): a.txt, line 3' in found.text


def test_labels_of_a_folder_that_is_given(root: Path) -> None:
    """As `rope-dense convert-data yolo labels` reads them."""
    files(root, many('pictures/', 'texts/', DOG_LINE) | {'classes.txt': 'cat\ndog'})
    write(root / 'names.txt', 'car\nbus')
    for classes, label in ((None, 'dog'), (root / 'names.txt', 'bus')):
        out = root / f'{label}.json'
        convert_data(
            'yolo', root / 'texts', out, images=root / 'pictures', classes=classes
        )
        content = json.loads(out.read_text())
        names = {item['id']: item['name'] for item in content['categories']}
        assert {names[item['category_id']] for item in content['annotations']} == {
            label
        }
        assert len(content['images']) == 10
    (root / 'classes.txt').unlink()
    with pytest.raises(
        ValueError, match=r'no names of classes: write them to classes\.txt'
    ):
        convert_data(
            'yolo', root / 'texts', root / 'out.json', images=root / 'pictures'
        )


def test_the_split_of_a_conversion_is_that_of_training(root: Path) -> None:
    """D3: it was drawn anew."""
    files(root, many('images/', 'labels/', DOG_LINE) | {'classes.txt': 'cat\ndog'})
    convert_data('yolo', root / 'labels', root.parent / 'train.json', val_share=0.2)
    found = reading(root).objects
    for split, objects in found.items():
        content = json.loads((root.parent / f'{split}.json').read_text())
        assert {item['file_name'] for item in content['images']} == objects.keys()


def test_folders_that_differ_by_their_case_are_named(root: Path) -> None:
    given = {**split_pairs(), 'images/Train/a.jpg': None, 'classes.txt': 'cat'}
    line = (
        f'{root}/images/Train and {root}/images/train differ by their case: rename one'
    )
    assert refusal(files(root, given)) == line
