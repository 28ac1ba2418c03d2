"""Folders of several tools in one folder, each labelled for its classes (own.format=folders)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.field import Reading, coco, files, image, reading, refusal, write
from rope_dense.data.labels.annotations import Rules
from rope_dense.data.labels.canonical import write_canonical
from rope_dense.data.labels.folders import find_labels
from rope_dense.data.labels.inventory import Inventory
from rope_dense.project.load import load_config
from rope_dense.project.model import build_shapes
from rope_dense.project.weights import check_initial_weights
from rope_dense.utils.errors import UsageError

BOX = [4, 5, 20, 18]
WHOLE = (0, 0, 40, 30)
YAML = 'train: images/train\nval: images/val\nnames: [cat, fox]\n'
YOLO_LINE = '1 0.5 0.5 0.5 0.5\n'  # a fox
VOC = (
    '<annotation><object><name>{}</name><bndbox><xmin>5</xmin><ymin>6</ymin><xmax>24</xmax>'
    '<ymax>22</ymax></bndbox></object></annotation>'
)


def make_folders(root: Path) -> Path:
    """COCO's dogs and cats, YOLO's cats and foxes, and Pascal VOC's owls (and, validated, emus)."""
    for split in ('train', 'val'):
        image(root / 'one' / split / 'a.jpg')
        entry = dict(id=1, file_name='a.jpg')
        objects = [
            dict(bbox=BOX, category_id=1),
            dict(bbox=[0, 0, 9, 9], category_id=2),
        ]
        text = coco([entry], objects, {1: 'dog', 2: 'cat'})
        write(root / 'one' / 'annotations' / f'{split}.json', text)
        place = f'two/images/{split}/a.jpg'
        files(root, {place: None, f'two/labels/{split}/a.txt': YOLO_LINE})
        name = 'owl' if split == 'train' else 'emu'
        files(
            root,
            {f'three/{split}/a.jpg': None, f'three/{split}/a.xml': VOC.format(name)},
        )
    write(root / 'two' / 'data.yaml', YAML)
    return root


def unlabelled(found: Reading, split: str) -> dict[str, set[str]]:
    """The classes that are ignored in all of an image."""
    classes = {}
    for name, objects in found.objects[split].items():
        classes[name] = {
            label for label, box, crowd in objects if crowd and box == WHOLE
        }
    return classes


def test_each_folder_is_labelled_for_its_classes(tmp_path: Path) -> None:
    found = reading(make_folders(tmp_path / 'all'), 'folders')
    assert found.classes == ('dog', 'cat', 'owl', 'emu', 'fox')
    for split, bird in (('train', 'owl'), ('val', 'emu')):
        assert unlabelled(found, split) == {
            f'one/{split}/a.jpg': {'fox', 'owl', 'emu'},
            f'two/images/{split}/a.jpg': {'dog', 'owl', 'emu'},
            f'three/{split}/a.jpg': {'dog', 'cat', 'fox'},
        }
        seen = {
            label
            for objects in found.objects[split].values()
            for label, _, crowd in objects
            if not crowd
        }
        assert seen == {'dog', 'cat', 'fox', bird}
    assert found.text.startswith(
        'COCO and Pascal VOC and YOLO, 3 training images and 3 validation images, by one/: '
    )
    assert 'dog (1 of 3)' in found.text


def test_labelled_says_otherwise(tmp_path: Path) -> None:
    """A folder of cats and foxes that has no dog, by its owner."""
    labelled = dict(two=frozenset(['cat', 'fox', 'dog']))
    found = reading(make_folders(tmp_path / 'all'), 'folders', labelled=labelled)
    assert unlabelled(found, 'train')['two/images/train/a.jpg'] == {'owl', 'emu'}
    beyond = 'object of a class that its image is not labelled for (learned)'
    assert beyond not in found.text
    labelled = dict(two=frozenset(['cat']))
    found = reading(tmp_path / 'all', 'folders', labelled=labelled)
    assert f'2 x {beyond}' in found.text  # foxes


def test_one_class_of_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """COCO's dogs, where YOLO's are foxes; images of both are labelled for the class."""
    root = make_folders(tmp_path / 'all')
    found = reading(root, 'folders', same_as=dict(fox='dog', emu='owl', gnu='dog'))
    assert found.classes == ('dog', 'cat', 'owl')
    seen = found.objects['train']['two/images/train/a.jpg']
    assert [label for label, _, crowd in seen if not crowd] == ['dog']
    assert unlabelled(found, 'val') == {
        'one/val/a.jpg': {'owl'},
        'two/images/val/a.jpg': {'owl'},
        'three/val/a.jpg': {'dog', 'cat'},
    }
    assert '2 x object of fox (taken as dog): a.txt, line 1' in found.text
    monkeypatch.chdir(tmp_path)
    own = dict(data_root=str(root), format='folders', weights=None)
    cfg = load_config('realtime', own=own | dict(same_as=['dog=fox', 'owl=emu']))
    assert cfg.own_renamed == ['emu', 'fox']
    assert cfg.train_dataloader.dataset.metainfo.classes == ('dog', 'cat', 'owl')
    model = build_shapes(cfg)
    check_initial_weights(cfg, model)
    cfg.own.same_as = ['dog=fox', 'dog=gnu']
    with pytest.raises(UsageError, match=r'own\.same_as: the labels have no gnu'):
        check_initial_weights(cfg, model)


def test_folders_of_one_format_keep_their_numbers(tmp_path: Path) -> None:
    """Number 1 of YOLO's labels is another class in each folder."""
    for name, classes in (('north', 'cat, fox'), ('south', '[hen, owl]')):
        for split in ('train', 'val'):
            place = f'{name}/images/{split}/a.jpg'
            files(
                tmp_path / 'all',
                {place: None, f'{name}/labels/{split}/a.txt': YOLO_LINE},
            )
        text = YAML.replace('[cat, fox]', f'[{classes.strip("[]")}]')
        write(tmp_path / 'all' / name / 'data.yaml', text)
    found = reading(tmp_path / 'all', 'folders')
    assert found.classes == ('cat', 'fox', 'hen', 'owl')
    seen = found.objects['train']['south/images/train/a.jpg']
    assert [label for label, _, crowd in seen if not crowd] == ['owl']


def test_linked_folders_and_changed_images_are_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    elsewhere = make_folders(tmp_path / 'elsewhere')
    for file in elsewhere.glob('one/annotations/*.json'):
        content = json.loads(file.read_text())
        del content['images'][0]['width'], content['images'][0]['height']
        file.write_text(json.dumps(content))
    (tmp_path / 'all').mkdir()
    for name in ('one', 'two'):
        (tmp_path / 'all' / name).symlink_to(elsewhere / name)

    def sizes() -> set[int]:
        found = write_canonical(
            Inventory(tmp_path / 'all'),
            lambda x: find_labels(x, 'folders'),
            tmp_path / 'out',
            None,
            Rules(),
        )
        file = json.loads(found.splits['train'].ann_file.read_text())
        return {entry['width'] for entry in file['images']}

    assert sizes() == {40}
    image(elsewhere / 'one' / 'train' / 'a.jpg', (30, 50))  # no label changes
    assert sizes() == {40, 50}


def test_what_is_refused_says_what_to_do(tmp_path: Path) -> None:
    root = make_folders(tmp_path / 'all')
    assert 'own.format=folders reads each folder in it' in refusal(root)
    (root / 'notes').mkdir()
    write(root / 'notes' / 'a.md', 'to do')
    with pytest.raises(ValueError, match=r'all/notes: no labels as.* move away'):
        reading(root, 'folders')
    with pytest.raises(ValueError, match=r'own\.format=folders: .*empty has no folder'):
        (tmp_path / 'empty').mkdir()
        reading(tmp_path / 'empty', 'folders')


def test_a_recipe_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = make_folders(tmp_path / 'all')
    own = dict(data_root=str(root), format='folders', weights=None)
    cfg = load_config('realtime', own=own)
    assert set(cfg.train_dataloader.dataset.metainfo.classes) == {
        'dog',
        'cat',
        'fox',
        'owl',
        'emu',
    }
    assert cfg.model.bbox_head.skip_ignored
