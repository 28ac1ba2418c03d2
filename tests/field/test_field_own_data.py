"""The data that a config of own data reads: another folder, labels of today, files by name.

Numbers as B11 are of a reading of the commands, as F15 of inputs that were tried.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import mmengine
import numpy as np
import pytest
from mmengine.config import Config

from helpers.field import SIZE, coco, files, image, mask, write
from helpers.grid import CONFIGS
from rope_dense.commands.train import parse_args, prepare
from rope_dense.project.checks.data import check_data
from rope_dense.project.checks.schedule import check_processes
from rope_dense.project.load import load_config
from rope_dense.utils.errors import UsageError

pytestmark = pytest.mark.usefixtures('surroundings')
BOX = '0 .5 .5 .4 .4'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder, without what a launcher sets."""
    for name in ('WORLD_SIZE', 'SLURM_NTASKS', 'OMPI_COMM_WORLD_SIZE', 'LOCAL_RANK'):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def yolo(
    root: Path, train: int = 2, val: int = 1, names: str = 'cat', label: str = BOX
) -> Path:
    """A YOLO data set; labels of the validation split are `label`."""
    for split, count in (('train', train), ('val', val)):
        for index in range(count):
            image(root / 'images' / split / f'{index}.png')
            text = BOX if split == 'train' else label
            write(root / 'labels' / split / f'{index}.txt', text)
    write(
        root / 'data.yaml', f'train: images/train\nval: images/val\nnames: [{names}]\n'
    )
    return root


def objects_of(cfg: Config) -> str:
    """The labels that are evaluated."""
    assert cfg.val_evaluator.ann_file == cfg.val_dataloader.dataset.ann_file
    return Path(cfg.val_evaluator.ann_file).read_text()


def test_data_root_is_that_of_the_labels(folder: Path) -> None:
    """B11: labels of A were evaluated, of a file that was not run and of a complete one."""
    first, second = yolo(folder / 'A'), yolo(folder / 'B', val=3)
    trained = load_config('detection', own=dict(data_root=first))
    trained.dump('complete.py')
    expected = load_config('detection', own=dict(data_root=second))
    for name, given in (
        ('detection', []),
        ('complete.py', []),
        ('complete.py', ['own']),
    ):
        options = ['own.data_root=B'] if given else []
        cfg = load_config(name, options, data_root=None if given else 'B')
        assert objects_of(cfg) == objects_of(expected) != objects_of(trained)
        assert cfg.val_dataloader.dataset.data_prefix.img == f'{second}/images/val/'
        assert cfg.own.data_root == 'B' and '3 validation images' in cfg.own_data
        check_data(cfg, ('test_dataloader',))
    yolo(folder / 'C', names='dog')
    with pytest.raises(
        UsageError, match='its classes are dog; the config was made for cat'
    ):
        load_config('complete.py', data_root='C')
    with pytest.raises(UsageError, match=r"own.data_root='D': no such folder"):
        load_config('complete.py', data_root='D')
    with pytest.raises(
        UsageError, match=r'--data-root B, own.data_root=A: give one of them'
    ):
        load_config('detection', ['own.data_root=A'], data_root='B')


def test_masks_have_another_root(folder: Path) -> None:
    for split in ('train', 'val'):
        image(folder / 'A' / 'images' / split / '0.png')
        mask(
            folder / 'A' / 'masks' / split / '0.png',
            np.resize([0, 1], SIZE).astype(np.uint8),
        )
    write(folder / 'A' / 'classes.txt', 'cat\ndog')
    shutil.copytree('A', 'B')
    load_config('semantic', own=dict(data_root='A')).dump('complete.py')
    cfg = load_config('complete.py', data_root='B')
    roots = [
        cfg[f'{name}_dataloader'].dataset.data_root for name in ('train', 'val', 'test')
    ]
    assert roots == ['B'] * 3


def test_lines_keep_their_files(folder: Path) -> None:
    """Files that a line of the user names are not those of another folder."""
    yolo(folder / 'A'), yolo(folder / 'B')
    text = (CONFIGS / 'own' / 'detection.py').read_text().replace('data/own', 'A')
    write(
        folder / 'mine.py',
        f"{text}val_dataloader = dict(dataset=dict(ann_file='x.json'))\n",
    )
    load_config('mine.py').dump('complete.py')
    with pytest.raises(
        UsageError, match=r'val_dataloader\.dataset has other files than the old one'
    ):
        load_config('complete.py', data_root='B')


def test_labels_of_today(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Edited labels, or canonical files that were deleted, give no stale figures."""
    root = yolo(folder / 'A')
    trained = load_config('detection', own=dict(data_root=root))
    trained.dump('complete.py')
    shutil.rmtree(Path(trained.val_evaluator.ann_file).parent)
    cfg = load_config('complete.py')
    check_data(cfg, ('test_dataloader',))
    before = objects_of(cfg)
    assert 'changed' not in capsys.readouterr().err
    write(root / 'labels' / 'val' / '0.txt', '0 .5 .5 .2 .2')
    cfg = load_config('complete.py')
    check_data(cfg, ('test_dataloader',))
    assert (
        f'the data in {root} have changed since the training' in capsys.readouterr().err
    )
    assert objects_of(cfg) != before
    shutil.rmtree(root)
    assert load_config(
        'complete.py'
    ).model.num_queries  # for predictions, without the data


@pytest.mark.parametrize(
    'label, says',
    [
        (
            '',
            'no validation image has an object of cat: YOLO, 2 training images',
        ),  # F15
        (f'{BOX}\n0 2 2 .1 .1', '1 of 2 validation objects are left out'),  # F9
        ('0 2 2 .1 .1', 'object outside of its image (left out): 0.txt, line 1'),
    ],
)
def test_a_split_without_objects(folder: Path, label: str, says: str) -> None:
    """The report is in the line."""
    root = yolo(folder / 'A', label=label)
    with pytest.raises(UsageError) as error:
        load_config('detection', own=dict(data_root=root))
    assert says in str(error.value) and '\n' not in str(error.value)


def test_processes_are_those_of_the_launcher(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B24: 4 processes of own.gpus=1 trained 40 epochs for 10."""
    own = dict(data_root=yolo(folder / 'A', train=8), epochs=10, batch_size=1)
    assert load_config('detection', own=own).train_cfg.max_iters == 80
    alone = load_config('detection', own={**own, 'gpus': 4})
    assert alone.train_cfg.max_iters == 20
    with pytest.raises(UsageError, match=r'own.gpus=4: .* this training has 1'):
        check_processes(alone, 'none')
    monkeypatch.setenv('SLURM_NTASKS', '4')  # of a job whose command no srun started
    assert load_config('detection', own=own).own.gpus == 1
    monkeypatch.setenv('LOCAL_RANK', '0')
    for name in ('SLURM_NTASKS', 'WORLD_SIZE', 'OMPI_COMM_WORLD_SIZE'):
        monkeypatch.setenv(name, '4')
        cfg = load_config('detection', own=own)
        assert (cfg.train_cfg.max_iters, cfg.own.gpus) == (20, 4)
        check_processes(cfg, 'pytorch')
        with pytest.raises(UsageError, match=r'own.gpus=1: 4 processes were started'):
            load_config('detection', own={**own, 'gpus': 1})
        monkeypatch.delenv(name)


def coco_files(root: Path, files: dict[str, list[str]]) -> Path:
    """COCO files with the images of each, which are in images/."""
    for file, names in files.items():
        entries = [dict(id=n, file_name=name) for n, name in enumerate(names, start=1)]
        boxes = [dict(image_id=n + 1, bbox=[5, 5, 10, 10]) for n in range(len(names))]
        write(root / file, coco(entries, boxes, {1: 'cat'}))
        for name in names:
            image(root / 'images' / name)
    return root


@pytest.mark.parametrize(
    'files, settings, counts',
    [
        (
            {'v2, new.json': ['a', 'b'], 'check.json': ['c']},
            dict(val='check.json'),
            (2, 1),
        ),
        ({'v2, new.json': ['a', 'b'], 'val.json': ['c']}, {}, (2, 1)),
        (
            {'v2, new.json': ['a', 'b', 'c', 'd', 'e', 'f', 'g'], 'v1.json': ['a']},
            {},
            (6, 1),
        ),
    ],
    ids=['both', 'one, the other by its name', 'one of all images'],
)
def test_coco_files_by_name(
    folder: Path, files: dict, settings: dict, counts: tuple[int, int]
) -> None:
    names = {file: [f'{name}.png' for name in images] for file, images in files.items()}
    coco_files(folder / 'A', names)
    cfg = load_config(
        'detection', ['own.data_root=A', 'own.train=v2, new.json'], own=settings
    )
    train, val = counts
    assert f'COCO, {train} training images and {val} validation images' in cfg.own_data


def test_coco_files_that_are_not_there(folder: Path) -> None:
    coco_files(folder / 'A', {'a.json': ['a.png'], 'b.json': ['b.png']})
    for own, says in (
        (
            dict(val='b.json'),
            'no COCO file of the training split: name it by own.train',
        ),
        (dict(train='c.json'), 'c.json: no such file; check own.train'),
        (
            dict(train='a.json', format='yolo'),
            'own.format=yolo: own.train and own.val name COCO',
        ),
        (dict(format='coc'), "own.format must be one of ('coco', 'yolo'"),
    ):
        with pytest.raises(UsageError) as error:
            load_config('detection', own=dict(data_root='A', **own))
        assert says in str(error.value)


@pytest.mark.parametrize(
    'text, says',
    [
        ('dog #010203\ncat\n', ''),
        ('dog\n', 'it lacks cat: choose classes by own.classes'),
        ('dog\ncat\nbird\n', 'it has also bird: '),
        ('person\n', 'it lacks cat, dog and has also person: '),
    ],
)
def test_classes_txt_chooses_no_classes(folder: Path, text: str, says: str) -> None:
    """All cats were left out without a word."""
    for split in ('train', 'val'):
        boxes = [dict(bbox=[5, 5, 10, 10], category_id=number) for number in (1, 2)]
        content = coco([dict(id=1, file_name='a.png')], boxes, {1: 'cat', 2: 'dog'})
        write(folder / 'A' / split / '_annotations.coco.json', content)
        image(folder / 'A' / split / 'a.png')
    write(folder / 'A' / 'classes.txt', text)
    if not says:
        cfg = load_config('detection', own=dict(data_root='A'))
        assert cfg.train_dataloader.dataset.metainfo.classes == ('cat', 'dog')
        assert cfg.train_dataloader.dataset.metainfo.palette[1] == (1, 2, 3)
        return
    with pytest.raises(UsageError, match=rf'A/classes\.txt differs from .*{says}'):
        load_config('detection', own=dict(data_root='A'))
    cfg = load_config('detection', own=dict(data_root='A', classes=['cat']))
    assert cfg.train_dataloader.dataset.metainfo.classes == ('cat',)


def test_the_root_is_a_folder(folder: Path) -> None:
    yolo(folder / 'A')
    for task in ('detection', 'semantic', 'depth'):
        settings = {} if task == 'depth' else dict(classes=['cat'])
        with pytest.raises(
            UsageError, match=r"='A/data.yaml' is a file: give its folder"
        ):
            load_config(task, own=dict(data_root='A/data.yaml', **settings))


@pytest.mark.parametrize(
    'names', ['', 'images/a.jpg', 'train/images/a.jpg train/labels/a.txt']
)
def test_a_wrong_folder_for_masks_is_said_before_its_classes(
    folder: Path, names: str
) -> None:
    (folder / 'A').mkdir()
    files(
        folder / 'A',
        {name: None if name.endswith('.jpg') else BOX for name in names.split()},
    )
    with pytest.raises(
        UsageError, match=r'A: no images with masks\. Looked for .*own_data\.md'
    ):
        load_config('semantic', own=dict(data_root='A'))


def test_names_of_masks_keep_their_numbers(folder: Path) -> None:
    """own.classes in another order than classes.txt gave each number the other name."""
    for split in ('train', 'val'):
        image(folder / 'A' / 'images' / split / '0.png')
        mask(
            folder / 'A' / 'masks' / split / '0.png',
            np.resize([0, 1], SIZE).astype(np.uint8),
        )
    write(folder / 'A' / 'classes.txt', 'bg\nroad\n')
    for classes in (['road', 'bg'], ['bg'], ['road'], ['road', 'sky']):
        with pytest.raises(
            UsageError, match=r'own\.classes=.*classes\.txt of A has bg, road: '
        ):
            load_config('semantic', own=dict(data_root='A', classes=classes))
    for values in ([0, 255], [0, 1]):
        with pytest.raises(UsageError, match=r'classes\.txt of A has bg, road'):
            given = dict(data_root='A', classes=['road', 'bg'], values=values)
            load_config('semantic', own=given)
    for settings in (
        dict(classes=['bg', 'way']),
        dict(classes=['road', 'bg'], values=[1, 0]),
    ):
        cfg = load_config('semantic', own=dict(data_root='A', **settings))
        assert (
            list(cfg.train_dataloader.dataset.metainfo.classes) == settings['classes']
        )


def test_classes_in_another_order_are_matched_by_name(folder: Path) -> None:
    """Roboflow sorts the names of each version anew."""
    first, second = (
        yolo(folder / 'A', names='cat, dog'),
        yolo(folder / 'B', names='dog, cat'),
    )
    load_config('detection', own=dict(data_root=first)).dump('complete.py')
    cfg = load_config('complete.py', data_root=str(second))
    assert tuple(cfg.val_dataloader.dataset.metainfo.classes) == ('cat', 'dog')
    content = mmengine.load(cfg.val_evaluator.ann_file)
    assert [item['name'] for item in content['categories']] == ['cat', 'dog']
    assert [item['category_id'] for item in content['annotations']] == [
        2
    ]  # dog, B's number 0


@pytest.mark.parametrize('option', ['epochs=3', 'data_root=A'])
def test_settings_without_own_are_meant_so(folder: Path, option: str) -> None:
    with pytest.raises(UsageError, match=f'{option}: did you mean own.{option}?'):
        prepare(parse_args(['detection', '--cfg-options', option]))
