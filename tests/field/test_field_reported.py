"""Data sets made after public reports: what each recipe says, or the line that refuses it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from helpers.field import SIZE, image, mask, write
from rope_dense.project.load import load_config
from rope_dense.utils.errors import UsageError

pytestmark = pytest.mark.usefixtures('surroundings')
NUMBERS = dict(train=6, val=3)
OUTLINE = [[10, 5, 30, 5, 30, 15, 10, 15]]
IGNORED = (
    '9 x object marked iscrowd, ignore or difficult (neither trained nor evaluated)',
    '1 x class whose training objects are all ignored: dog',
    '1 x class whose validation objects are all ignored: dog',
)


def names_of(split: str) -> list[str]:
    return [f'{split}{number}' for number in range(NUMBERS[split])]


def coco(names: Sequence[str], of_class: Mapping[int, Any] | None = None) -> str:
    """A cat and a dog in each image; `of_class` changes the objects of a class."""
    height, width = SIZE
    images = []
    objects = []
    for number, name in enumerate(names):
        images.append(dict(id=number, file_name=name, width=width, height=height))
        for label in (1, 2):
            place = dict(bbox=[10, 5, 20, 10], segmentation=OUTLINE, area=200)
            about = dict(id=len(objects), image_id=number, category_id=label)
            objects.append(about | place | dict((of_class or {}).get(label, {})))
    categories = [dict(id=1, name='cat'), dict(id=2, name='dog')]
    return json.dumps(dict(images=images, annotations=objects, categories=categories))


def coco_splits(root: Path, of_class: Mapping[int, Any] | None = None) -> None:
    for split in NUMBERS:
        names = [f'{name}.jpg' for name in names_of(split)]
        for name in names:
            image(root / 'images' / split / name)
        write(root / 'annotations' / f'{split}.json', coco(names, of_class))


def brush_masks(root: Path) -> None:
    """CVAT writes brush masks as run lengths of a crowd."""
    counts = [305, 10, *[20, 10] * 19, 315]
    lengths = dict(size=[*SIZE], counts=counts)
    coco_splits(root, {2: dict(segmentation=lengths, iscrowd=1)})


def ignored_class(root: Path) -> None:
    coco_splits(root, {2: dict(ignore=1)})


def corners(root: Path) -> None:
    wrong = dict(bbox=[10, 5, 30, 15])
    coco_splits(root, {1: wrong, 2: wrong})


def versions(root: Path) -> None:
    """Three copies of each photograph, in no split."""
    names = [f'p{n}_jpg.rf.{n}{copy}.jpg' for n in range(10) for copy in 'abc']
    for name in names:
        image(root / 'images' / name)
    write(root / '_annotations.coco.json', coco(names))


def absent_camera(root: Path) -> None:
    names = [f'camB/{number}.png' for number in range(20)]
    for name in names:
        image(root / 'images' / name)
    write(root / 'annotations.json', coco(['camA/0.png', *names]))


def yolo(root: Path, names: str, val: str = '0 .5 .5 .3 .4\n1 .3 .3 .2 .2\n') -> None:
    for split, lines in (('train', '0 .5 .5 .3 .4\n1 .3 .3 .2 .2\n'), ('val', val)):
        for name in names_of(split):
            image(root / 'images' / split / f'{name}.jpg')
            write(root / 'labels' / split / f'{name}.txt', lines)
    text = f'train: images/train\nval: images/val\nnames: [{names}]\n'
    write(root / 'data.yaml', text)


def arrows(root: Path) -> None:
    yolo(root, 'left_arrow, right_arrow')


def class_of_val(root: Path) -> None:
    yolo(root, 'cat, dog, bird', val='0 .5 .5 .3 .4\n2 .3 .3 .2 .2\n')


def twins(root: Path) -> None:
    yolo(root, 'cat, dog')
    for name in names_of('train')[:3]:
        image(root / 'images/train' / f'{name}.png')


def other_programs(root: Path) -> None:
    """A Mac, Jupyter and Synology's file server leave files beside the images."""
    yolo(root, 'cat, dog')
    for split in NUMBERS:
        for name in names_of(split):
            folder = root / 'images' / split
            write(folder / f'._{name}.jpg', b'\0\5\26\7')
            write(root / 'labels' / split / f'._{name}.txt', b'\0\5\26\7\xb0')
            image(folder / '@eaDir' / f'{name}.jpg' / 'SYNOFILE_THUMB_M.jpg')
            image(folder / '.ipynb_checkpoints' / f'{name}-checkpoint.jpg')


def bright_val(root: Path) -> None:
    """Training pictures of 12 bits, and validation pictures of 16, as PNGs of 16 bits."""
    for split, most in (('train', 4095), ('val', 65535)):
        names = [f'{name}.png' for name in names_of(split)]
        for number, name in enumerate(names):
            pixels = np.random.default_rng(number).integers(0, most, SIZE)
            mask(root / 'images' / split / name, pixels.astype(np.uint16))
        write(root / 'annotations' / f'{split}.json', coco(names))


def halves(value: int = 1) -> np.ndarray:
    labels = np.zeros(SIZE, np.uint8)
    labels[: SIZE[0] // 2] = value
    return labels


def mmseg(root: Path) -> None:
    for split in NUMBERS:
        for name in names_of(split):
            image(root / 'img_dir' / split / f'{name}.jpg')
            mask(root / 'ann_dir' / split / f'{name}.png', halves())
    write(root / 'classes.txt', 'ground\nroad\n')


def colours(root: Path) -> None:
    """CVAT's masks in colours, which are read after they are converted."""
    for split in NUMBERS:
        for name in names_of(split):
            image(root / 'images' / split / f'{name}.jpg')
            path = root / 'masks' / split / f'{name}.png'
            path.parent.mkdir(parents=True, exist_ok=True)
            table = np.array([(0, 0, 0), (128, 64, 128)], np.uint8)
            Image.fromarray(table[halves()]).save(path)
    write(root / 'labelmap.txt', 'ground:0,0,0::\nroad:128,64,128::\n')


def saturated(root: Path) -> None:
    """A sensor that writes 65535 where it measures nothing."""
    for split in NUMBERS:
        for name in names_of(split):
            image(root / 'images' / split / f'{name}.jpg')
            depth = np.full(SIZE, 2000, np.uint16)
            depth[:, :10] = 65535
            mask(root / 'depth' / split / f'{name}.png', depth)


SAID: dict[Callable[[Path], None], tuple[str, tuple[str, ...]]] = {
    brush_masks: ('instance', IGNORED),
    ignored_class: ('realtime', IGNORED),
    versions: ('realtime', ('by a hash of the name',)),
    absent_camera: (
        'realtime',
        ('2 x object of an image that is not there (left out): camA/0.png',),
    ),
    arrows: ('realtime', ('own.flip=none if that changes left_arrow and right_arrow',)),
    class_of_val: (
        'realtime',
        (
            '1 x class without a training object: bird',
            '1 x class without a validation object: dog',
        ),
    ),
    twins: (
        'realtime',
        ('3 x two images of one name (the first is taken): train0.jpg and train0.png',),
    ),
    other_programs: (
        'realtime',
        ('YOLO, 6 training images and 3 validation images, by data.yaml; 12 and 6 ',),
    ),
    bright_val: ('realtime', ('16-bit images are scaled: 65535 is white',)),
    mmseg: (
        'semantic',
        ('6 training and 3 validation images, by folder (img_dir/train with ann_dir',),
    ),
    saturated: (
        'depth',
        (
            '25.00% of the depths are above own.max_depth: neither trained nor evaluated',
            '25% of the depths are the largest, 65.5 m: where nothing was measured, store 0',
        ),
    ),
}
REFUSED: dict[Callable[[Path], None], tuple[str, str]] = {
    corners: (
        'realtime',
        '12 of 12 boxes are unlike their polygons or masks; they are [left, top, right, bottom]',
    ),
    colours: ('semantic', 'the mask has colours; `rope-dense convert-data colours`'),
}


def recipe(root: Path, task: str) -> Any:
    return load_config(task, own=dict(data_root=str(root), backbone='tiny', size=64))


@pytest.mark.parametrize('build', SAID)
def test_what_was_silent_is_said(build: Callable[[Path], None], tmp_path: Path) -> None:
    build(tmp_path)
    task, expected = SAID[build]
    said = recipe(tmp_path, task).own_data
    assert [line for line in expected if line not in said] == []
    unexpected = re.findall('^[0-9]+ x ', said, re.MULTILINE)
    assert len(unexpected) == sum(' x ' in line for line in expected)


@pytest.mark.parametrize('build', REFUSED)
def test_what_was_trained_wrong_is_refused(
    build: Callable[[Path], None], tmp_path: Path
) -> None:
    build(tmp_path)
    task, expected = REFUSED[build]
    with pytest.raises(UsageError, match=re.escape(expected)):
        recipe(tmp_path, task)


def test_copies_of_a_photograph_are_in_one_split(tmp_path: Path) -> None:
    versions(tmp_path)
    cfg = recipe(tmp_path, 'realtime')
    photographs = []
    for split in NUMBERS:
        content = json.loads(Path(cfg.own_files[split].ann_file).read_text())
        names = [item['file_name'].split('_')[0] for item in content['images']]
        photographs.append({*names})
        assert len(names) == 3 * len(photographs[-1])
    assert photographs[0] and photographs[0].isdisjoint(photographs[1])
