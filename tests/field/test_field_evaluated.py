"""The images that an evaluation of a run takes of a folder: one split, or all with labels (B20)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from mmengine.config import Config

from helpers.field import coco, image, mask, write
from rope_dense.project.contents import datasets_of
from rope_dense.project.load import load_config
from rope_dense.project.own.data import files_in
from rope_dense.project.own.recipes import find_anew
from rope_dense.utils.configs import CONFIGS
from rope_dense.utils.errors import UsageError

NUMBERS = dict(train=8, valid=4, test=6)
BOX = dict(bbox=[4, 5, 20, 18], area=360)
VOC = (
    '<annotation><filename>{0}.jpg</filename><size><width>40</width><height>30</height>'
    '</size><object><name>{1}</name><bndbox><xmin>5</xmin><ymin>6</ymin><xmax>24</xmax>'
    '<ymax>22</ymax></bndbox></object></annotation>'
)
YAML = 'train: ../train/images\nval: ../valid/images\ntest: ../test/images\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty current folder."""
    monkeypatch.chdir(tmp_path)


def coco_file(
    folder: Path, names: list[str], classes: tuple[str, ...] = ('red', 'green')
) -> None:
    """Roboflow's file of images, each with an object of each class."""
    images = []
    objects = []
    for number, name in enumerate(names, start=1):
        image(folder / name)
        images.append(dict(id=number, file_name=name))
        for category in range(1, len(classes) + 1):
            objects.append(dict(BOX, image_id=number, category_id=category))
    text = coco(images, objects, dict(enumerate(classes, start=1)))
    write(folder / '_annotations.coco.json', text)


def coco_export(root: Path) -> None:
    """Roboflow's COCO export with three splits."""
    for split, number in NUMBERS.items():
        coco_file(root / split, [f'{split}{index}.jpg' for index in range(number)])


def yolo_export(root: Path) -> None:
    """Roboflow's YOLO export with three splits."""
    for split, number in NUMBERS.items():
        for index in range(number):
            image(root / split / 'images' / f'{split}{index}.jpg')
            line = f'{index % 2} .5 .5 .4 .4\n'
            write(root / split / 'labels' / f'{split}{index}.txt', line)
    write(root / 'data.yaml', f'{YAML}nc: 2\nnames: [red, green]\n')


def voc_lists(root: Path) -> None:
    """Pascal VOC with lists of three splits."""
    for split, number in NUMBERS.items():
        names = [f'{split}{index}' for index in range(number)]
        for index, name in enumerate(names):
            image(root / 'JPEGImages' / f'{name}.jpg')
            text = VOC.format(name, ('red', 'green')[index % 2])
            write(root / 'Annotations' / f'{name}.xml', text)
        word = split.replace('valid', 'val')
        write(root / 'ImageSets' / 'Main' / f'{word}.txt', '\n'.join(names))


def cvat_subsets(root: Path) -> None:
    """One file of CVAT, whose project has three subsets."""
    lines = []
    for split, number in NUMBERS.items():
        for index in range(number):
            name = f'{split}{index}.jpg'
            image(root / 'images' / name)
            label = ('red', 'green')[index % 2]
            box = f'<box label="{label}" xtl="5" ytl="6" xbr="24" ybr="22"/>'
            size = 'width="40" height="30"'
            about = f'id="{len(lines)}" name="{name}" subset="{split}" {size}'
            lines.append(f'<image {about}>{box}</image>')
    images = ''.join(lines)
    text = f'<annotations><version>1.1</version>{images}</annotations>'
    write(root / 'annotations.xml', text)


def createml_export(root: Path) -> None:
    """Roboflow's CreateML export with three splits."""
    for split, number in NUMBERS.items():
        entries = []
        for index in range(number):
            name = f'{split}{index}.jpg'
            image(root / split / name)
            place = dict(x=15, y=14, width=20, height=16)
            item = dict(label=('red', 'green')[index % 2], coordinates=place)
            entries.append(dict(image=name, annotations=[item]))
        write(root / split / '_annotations.createml.json', json.dumps(entries))


def dota_export(root: Path) -> None:
    """DOTA's folders with three splits."""
    for split, number in NUMBERS.items():
        for index in range(number):
            image(root / split / 'images' / f'{split}{index}.jpg')
            label = ('red', 'green')[index % 2]
            line = f'5 10 20 5 24 17 9 22 {label} 0\n'
            write(root / split / 'labelTxt' / f'{split}{index}.txt', line)


def maps(root: Path, masks: str = 'masks') -> None:
    """Images with masks, or with depth maps in millimetres, in three splits."""
    for split, number in NUMBERS.items():
        for index in range(number):
            image(root / split / 'images' / f'{split}{index}.jpg')
            labels = np.zeros((30, 40), np.uint8)
            labels[10:] = 1
            values = (
                labels if masks == 'masks' else labels.astype(np.uint16) * 900 + 800
            )
            mask(root / split / masks / f'{split}{index}.png', values)


def masks_export(root: Path) -> None:
    maps(root)
    write(root / 'classes.txt', 'red\ngreen\n')


def depth_export(root: Path) -> None:
    maps(root, 'depths')


EXPORTS = {
    'realtime': [coco_export, yolo_export, voc_lists, cvat_subsets, createml_export],
    'oriented': [dota_export],
    'semantic': [masks_export],
    'depth': [depth_export],
}
EACH = [(task, export) for task, some in EXPORTS.items() for export in some]


def trained_on(task: str, root: Path, **settings: object) -> Config:
    if task == 'oriented':
        pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
    given = dict(data_root=root, weights=None, size=64) | settings
    return load_config(task, own=given)


def evaluated(cfg: Config) -> list[str]:
    """The names of the images that the test of a config has."""
    _, dataset = next(datasets_of(cfg, 'test_dataloader'))
    for name, value in cfg.own_files['val'].items():
        assert dataset[name] == value
    return sorted(path.name for path in files_in(dataset))


def numbered(split: str) -> list[str]:
    return [f'{split}{index}.jpg' for index in range(NUMBERS[split])]


@pytest.mark.parametrize('task, export', EACH)
def test_each_split_of_an_export(task: str, export, tmp_path: Path) -> None:
    export(tmp_path / 'data')
    cfg = trained_on(task, tmp_path / 'data')
    assert evaluated(cfg) == numbered('valid')
    for asked, split in (('train', 'train'), ('test', 'test'), ('val', 'valid')):
        find_anew(cfg, asked=asked)
        assert evaluated(cfg) == numbered(split)
        assert f'{NUMBERS[split]} labelled images' in cfg.own_data
        said = f'{NUMBERS[split]} images are training images of the run'
        assert (said in cfg.own_data) == (asked == 'train')
    # The data of the training in another folder: not its training images.
    shutil.copytree(tmp_path / 'data', tmp_path / 'moved')
    cfg = trained_on(task, tmp_path / 'data')
    find_anew(cfg, str(tmp_path / 'moved'), 'all')
    assert evaluated(cfg) == numbered('valid')


@pytest.mark.parametrize('task, export', EACH)
def test_other_data_are_evaluated_whole(task: str, export, tmp_path: Path) -> None:
    export(tmp_path / 'data')
    export(tmp_path / 'other')
    cfg = trained_on(task, tmp_path / 'data')
    find_anew(cfg, str(tmp_path / 'other'), 'all')
    every = sorted([*numbered('train'), *numbered('valid'), *numbered('test')])
    assert evaluated(cfg) == every
    assert '18 labelled images' in cfg.own_data
    assert 'are training images of the run' not in cfg.own_data
    if export not in (voc_lists, cvat_subsets):  # in the folder of all splits
        test = tmp_path / 'data' / 'test'
        cfg = trained_on(task, tmp_path / 'data')
        find_anew(cfg, str(test), 'all')
        assert evaluated(cfg) == numbered('test')
        for name in ('train', 'valid'):
            shutil.rmtree(tmp_path / 'other' / name)
        for asked in ('all', 'test'):
            cfg = trained_on(task, tmp_path / 'data')
            find_anew(cfg, str(tmp_path / 'other'), asked)
            assert evaluated(cfg) == numbered('test')


def test_images_of_the_training_are_counted(tmp_path: Path) -> None:
    coco_export(tmp_path / 'data')
    cfg = trained_on('realtime', tmp_path / 'data')
    names = ['one.jpg', 'two.jpg', 'three.jpg']
    coco_file(tmp_path / 'other', names)
    for name, other in zip(names, numbered('train'), strict=False):
        shutil.copy(tmp_path / 'data' / 'train' / other, tmp_path / 'other' / name)
    image(tmp_path / 'other' / 'three.jpg')
    find_anew(cfg, str(tmp_path / 'other'), 'all')
    assert evaluated(cfg) == sorted(names)
    assert '2 of 3 images are training images of the run' in cfg.own_data


def test_classes_are_the_runs(tmp_path: Path) -> None:
    coco_export(tmp_path / 'data')
    cfg = trained_on('realtime', tmp_path / 'data')
    coco_file(tmp_path / 'other', ['a.jpg', 'b.jpg'], ('blue', 'green'))
    find_anew(cfg, str(tmp_path / 'other'), 'all')
    assert evaluated(cfg) == ['a.jpg', 'b.jpg']
    said = 'class that the run does not have (not evaluated): blue'
    assert said in cfg.own_data
    assert cfg.test_dataloader.dataset.metainfo.classes == ('red', 'green')


def test_no_class_of_the_run(tmp_path: Path) -> None:
    coco_export(tmp_path / 'data')
    cfg = trained_on('realtime', tmp_path / 'data')
    coco_file(tmp_path / 'other', ['a.jpg', 'b.jpg'], ('blue', 'yellow'))
    said = 'no labelled image has an object of red, green: .* not have .*: blue, yellow'
    with pytest.raises(ValueError, match=said):
        find_anew(cfg, str(tmp_path / 'other'), 'all')


def test_a_test_that_is_not_used_is_named(tmp_path: Path) -> None:
    for export, task in ((coco_export, 'realtime'), (masks_export, 'semantic')):
        root = tmp_path / task
        export(root)
        text = trained_on(task, root).own_data
        assert '6 images in test/ are neither trained nor evaluated' in text
        shutil.rmtree(root / 'valid')
        assert 'neither' not in trained_on(task, root).own_data


def test_a_split_that_is_not_there(tmp_path: Path) -> None:
    coco_file(tmp_path / 'data', [f'{number}.jpg' for number in range(8)])
    cfg = trained_on('realtime', tmp_path / 'data')
    with pytest.raises(ValueError, match=r'--split test: .* names no labelled images'):
        find_anew(cfg, asked='test')
    with pytest.raises(UsageError, match='--split val: of a run on own data'):
        load_config(str(CONFIGS / 'demo' / 'deim_quick_shapes.py'), split='val')
