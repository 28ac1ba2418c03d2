"""The files of a data set: listed once, known by their state and content, paired by one rule."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import rope_dense
from helpers.field import coco, files, image, mask, reading, refusal, write
from rope_dense.commands import train
from rope_dense.data.convert_data import convert_data
from rope_dense.data.labels.inventory import Inventory
from rope_dense.data.labels.kept import is_up_to_date
from rope_dense.data.labels.maps import DEPTH, MASKS, find_maps, report_text
from rope_dense.data.labels.objects import Report
from rope_dense.data.labels.splits import is_for_validation, validation_of
from rope_dense.project.checks.data import check_data
from rope_dense.project.load import load_config
from rope_dense.utils.errors import UsageError

BOX = '0 .5 .5 .4 .4'
XML = (
    '<annotation><object><name>{}</name><bndbox><xmin>5</xmin><ymin>5</ymin><xmax>20</xmax>'
    '<ymax>20</ymax></bndbox></object></annotation>'
)
LABELME = (
    '{{"imagePath": "{1}.jpg", "shapes": [{{"label": "{0}", "points": [[5, 5], [20, 20]], '
    '"shape_type": "rectangle"}}]}}'
)
LABELLED = (('.jpg', None), ('.txt', BOX))
DATA = ('train_dataloader', 'val_dataloader')
NAMES = [f'{split}/{n}' for split in ('train', 'val') for n in range(4)]
PACKAGE = f'{Path(rope_dense.__file__).parent}/'
PACKAGES = ('data', 'project')
listed = Counter[
    str
]()  # audit hooks stay for the life of the process: this one is for all tests


def count_listings(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ('os.scandir', 'os.listdir') and isinstance(
        arguments[0], (str, os.PathLike)
    ):
        listed[os.path.abspath(arguments[0])] += 1


sys.addaudithook(count_listings)


def yolo(root: Path) -> Path:
    images = {f'images/{name}.jpg': None for name in NAMES}
    labels = {f'labels/{name}.txt': BOX for name in NAMES}
    names = {'data.yaml': 'train: images/train\nval: images/val\nnames: [cat, dog]\n'}
    return files(root, images | labels | names)


def voc(root: Path) -> Path:
    images = {f'JPEGImages/{name}.jpg': None for name in NAMES}
    return files(
        root, images | {f'Annotations/{x}.xml': XML.format('cat') for x in NAMES}
    )


def coco_folder(root: Path) -> Path:
    files(root, {f'{name}.jpg': None for name in NAMES})
    for split in ('train', 'val'):
        images = [dict(id=n + 1, file_name=f'{n}.jpg') for n in range(4)]
        objects = [dict(image_id=n + 1, bbox=[5, 5, 10, 10]) for n in range(4)]
        write(
            root / f'annotations/instances_{split}.json',
            coco(images, objects, {1: 'cat'}),
        )
    return root


def masks(root: Path) -> Path:
    files(root, {f'images/{x}.jpg': None for x in NAMES} | {'classes.txt': 'a\nb\n'})
    for n, name in enumerate(NAMES):
        mask(root / f'masks/{name}.png', np.full((30, 40), n % 2, np.uint8))
    return root


BUILDERS: dict[str, tuple[Callable[[Path], Path], str]] = {
    'yolo': (yolo, 'realtime'),
    'voc': (voc, 'realtime'),
    'coco': (coco_folder, 'realtime'),
    'masks': (masks, 'semantic'),
}


@pytest.mark.parametrize('name', BUILDERS)
def test_a_start_lists_each_folder_once(name: str, tmp_path: Path) -> None:
    build, entry = BUILDERS[name]
    root = build(tmp_path / 'data')
    folders = [str(path) for path in (root, *root.rglob('*')) if path.is_dir()]
    listed.clear()
    cfg = load_config(entry, own=dict(data_root=str(root)))
    check_data(cfg, DATA)
    assert {listed[path] for path in folders} == {1}


@pytest.mark.parametrize('name', BUILDERS)
def test_a_command_lists_each_folder_once(name: str, tmp_path: Path) -> None:
    """Not when it reads its arguments, and again where labels changed meanwhile."""
    build, entry = BUILDERS[name]
    root = build(tmp_path / 'data')
    folders = [str(path) for path in (root, *root.rglob('*')) if path.is_dir()]
    listed.clear()
    args = train.parse_args([entry, '--data', str(root), '--epochs', '3'])
    assert not any(listed[path] for path in folders)
    train.prepare(args)
    given = args.config, args.cfg_options, None, args.data_root
    cfg = load_config(*given, derives=True, found=args.found)
    check_data(cfg, DATA)
    assert {listed[path] for path in folders} == {1}
    assert cfg['own_state'] == args.found.data.state and cfg.own.epochs == 3
    write(root / 'classes.txt', 'other\nnames\n')
    files(root, {f'{x}.jpg': None for x in NAMES})  # which are no longer as found
    with suppress(UsageError):  # COCO's labels have names of their own
        load_config(*given, derives=True, found=args.found)
    assert {listed[path] for path in folders} == {2}


def files_passed(run: Callable[[], object], last: str = '') -> set[str]:
    """Files of the two packages whose functions are called, until one of them is called `last`."""
    found, is_over = set[str](), False

    def profile(frame: FrameType, event: str, argument: object) -> None:
        nonlocal is_over
        path = frame.f_code.co_filename
        if event != 'call' or is_over or not path.startswith(PACKAGE):
            return
        is_over = frame.f_code.co_name == last
        name = path.removeprefix(PACKAGE)
        if (
            not is_over
            and name.split('/')[0] in PACKAGES
            and frame.f_code.co_name[0] != '<'
        ):
            found.add(name)

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return found


def test_a_line_of_yolo_passes_few_files(tmp_path: Path) -> None:
    """From the labels to the canonical files, and in the check."""
    root, other = yolo(tmp_path / 'data'), yolo(tmp_path / 'other')
    load_config(
        'realtime', own=dict(data_root=str(other))
    )  # what is imported and kept by it
    path = files_passed(lambda: reading(root))
    assert len(path) <= 20, path
    cfg = load_config('realtime', own=dict(data_root=str(root)))
    path = files_passed(lambda: check_data(cfg, DATA))
    assert len(path) <= 8, path


def test_d1_labels_of_one_size_and_time_are_read_anew(tmp_path: Path) -> None:
    root = yolo(tmp_path / 'data')
    files_of = sorted((root / 'labels').rglob('*.txt'))
    for path in files_of:
        os.utime(path, (0, 0))
    assert reading(root).objects['train']['0.jpg'][0][0] == 'cat'
    for path in files_of:
        path.write_text(BOX.replace('0', '1', 1))
        os.utime(path, (0, 0))
    assert reading(root).objects['train']['0.jpg'][0][0] == 'dog'


def twice(text: str, suffix: str, *folders: str) -> dict[str, str | None]:
    """An image with a label file of another class in each folder."""
    labels = {
        f'{folder}/{n}{suffix}': text.format(name, n)
        for folder, name in zip(folders, ('cat', 'dog'), strict=True)
        for n in range(5)
    }
    return {f'images/{n}.jpg': None for n in range(5)} | labels


@pytest.mark.parametrize(
    'given',
    [
        twice(XML, '.xml', 'annotations', 'labels'),
        twice(LABELME, '.json', 'annotations', 'labels'),
        twice('0 0 9 0 9 9 0 9 {} 0', '.txt', 'labelTxt', 'labelTxt-v1.5'),
    ],
    ids=['voc', 'labelme', 'dota'],
)
def test_d2_two_folders_of_labels_are_refused(given: dict, tmp_path: Path) -> None:
    said = refusal(files(tmp_path / 'data', given))
    assert (
        'have files of the same images' in said
        or 'which images are labelled there' in said
    )


def test_d2_two_folders_of_masks_are_refused(tmp_path: Path) -> None:
    files(tmp_path, {f'images/{n}.jpg': None for n in range(5)})
    for folder, n in ((folder, n) for folder in ('masks', 'labels') for n in range(5)):
        mask(tmp_path / folder / f'{n}.png', np.zeros((30, 40), np.uint8))
    with pytest.raises(ValueError, match='files of the same images'):
        find_maps(Inventory(tmp_path), MASKS)


def test_d4_no_image_moves_while_a_set_grows(tmp_path: Path) -> None:
    chance, inventory = random.Random(0), Inventory(tmp_path)
    for _ in range(300):
        names = [f'{chance.random()}' for _ in range(8)]
        inventory.moved.clear()
        images, val = set[str](), set[str]()
        for count in range(2, 9):
            before, images = images, set(names[:count])
            val, val_before = validation_of(images, inventory, tmp_path), val
            assert 0 < len(val) < len(images)
            assert val & before == val_before, names


def test_d4_what_was_moved_stays_in_the_next_process(tmp_path: Path) -> None:
    """Of few images none is for validation by the hash, so one is moved, and remembered."""
    train = [f'{n}' for n in range(40) if not is_for_validation(f'{n}')][:3]
    val = next(f'{n}' for n in range(40) if is_for_validation(f'{n}'))
    root = files(tmp_path / 'data', {'classes.txt': 'cat\n'})
    for name in train:
        files(root, {f'{name}.jpg': None, f'{name}.txt': BOX})
    [first] = reading(root).objects['val']
    files(root, {f'{val}.jpg': None, f'{val}.txt': BOX})
    assert set(reading(root).objects['val']) == {first, f'{val}.jpg'}


def test_d4_the_split_does_not_depend_on_the_unicode_form() -> None:
    names = [f'\N{LATIN SMALL LETTER E WITH ACUTE}{n}' for n in range(2000)]
    apart = [unicodedata.normalize('NFD', name) for name in names]
    assert [*map(is_for_validation, names)] == [*map(is_for_validation, apart)]


def test_copies_of_one_photograph_stay_in_one_split(tmp_path: Path) -> None:
    """Roboflow's NAME_jpg.rf.HASH, of which an export without splits has several."""
    names = [f'{n}_jpg.rf.{n}{copy}' for n in range(40) for copy in 'abc']
    val = validation_of(names, Inventory(tmp_path), tmp_path)
    photographs = {name.partition('.')[0] for name in val}
    assert 0 < len(photographs) < 40 and len(val) == 3 * len(photographs)
    few = validation_of(names[:6], Inventory(tmp_path), tmp_path)
    assert few in ({*names[:3]}, {*names[3:6]})


def test_copies_under_other_names_are_counted(tmp_path: Path) -> None:
    root = yolo(tmp_path / 'data')
    copy = (root / 'images/train/0.jpg').read_bytes()
    files(root, {'images/val/9.jpg': copy, 'labels/val/9.txt': BOX})
    assert '1 of 5 validation images are training images, too' in reading(root).text
    root = masks(tmp_path / 'masks')
    copy = (root / 'images/train/0.jpg').read_bytes()
    (root / 'images/val/1.jpg').write_bytes(copy)
    inventory = Inventory(root)
    text = report_text(find_maps(inventory, MASKS), inventory, Report())
    assert '1 x validation image that is a training image, too: 1.jpg' in text


def state_of(entry: str, root: Path) -> str:
    return load_config(entry, own=dict(data_root=str(root)))['own_state']


@pytest.mark.parametrize('name', ['yolo', 'masks'])
def test_d5_the_same_bytes_copied_anew_are_the_same_data(
    name: str, tmp_path: Path
) -> None:
    build, entry = BUILDERS[name]
    root = build(tmp_path / 'data')
    before = state_of(entry, root)
    for path in [path for path in root.rglob('*') if path.is_file()]:
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    assert state_of(entry, root) == before


def test_d5_other_masks_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = masks(tmp_path / 'data')
    cfg = load_config('semantic', own=dict(data_root=str(root)))
    check_data(cfg, DATA)
    assert 'changed' not in capsys.readouterr().err
    for n, path in enumerate(sorted((root / 'masks').rglob('*.png'))):
        mask(path, np.full((30, 40), (n + 1) % 2, np.uint8))
    check_data(cfg, DATA)
    assert 'changed' in capsys.readouterr().err


def test_d6_names_that_differ_by_case_are_refused(tmp_path: Path) -> None:
    root = yolo(tmp_path / 'data')
    files(root, {'images/Train/9.jpg': None, 'labels/Train/9.txt': BOX})
    (root / 'data.yaml').unlink()
    write(root / 'classes.txt', 'cat\ndog\n')
    found = reading(root)  # one split, whatever the case
    assert {'9.jpg', '0.jpg'} <= {
        os.path.basename(name) for name in found.objects['train']
    }
    with pytest.raises(ValueError, match='differ by their case'):
        Inventory(root).subfolders(root / 'images')


def test_d8_arrays_with_boxes(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    for n in range(5):
        np.save(image(root / f'{n}.jpg').with_suffix('.npy'), np.random.rand(30, 40, 4))
        (root / f'{n}.jpg').unlink()
        write(root / f'{n}.txt', BOX)
    write(root / 'classes.txt', 'cat\n')
    cfg = load_config('realtime', own=dict(data_root=str(root), channels=4))
    check_data(cfg, DATA)
    assert '3 training images and 2 validation' in cfg['own_data']


@pytest.mark.parametrize('count', [2, 3, 4])
def test_d9_few_masks_train_as_few_boxes_do(count: int, tmp_path: Path) -> None:
    for n in range(count):
        image(tmp_path / f'data/images/{n}.jpg')
        mask(tmp_path / f'data/masks/{n}.png', np.zeros((30, 40), np.uint8))
    inventory = Inventory(tmp_path / 'data')
    numbers = [
        len(part.files.pairs) for part in find_maps(inventory, MASKS).splits.values()
    ]
    assert min(numbers) >= 1
    assert sum(numbers) == count


def test_d10_split_folders_that_are_links_to_one_folder(tmp_path: Path) -> None:
    root = files(tmp_path / 'data', {f'all/{n}.jpg': None for n in range(4)})
    for split, numbers in (('train', (0, 1, 2)), ('val', (3,))):
        (root / split).symlink_to('all')
        images = [dict(id=n + 1, file_name=f'{split}/{n}.jpg') for n in numbers]
        objects = [dict(image_id=n + 1, bbox=[5, 5, 10, 10]) for n in numbers]
        write(root / f'annotations/{split}.json', coco(images, objects, {1: 'cat'}))
    found = reading(root)
    names = [
        sorted(map(os.path.basename, found.objects[split]))
        for split in ('train', 'val')
    ]
    assert names == [['0.jpg', '1.jpg', '2.jpg'], ['3.jpg']]


def test_names_of_other_encodings(tmp_path: Path) -> None:
    """Such as of an archive that a Windows of another language packed."""
    root = files(tmp_path / 'data', {'classes.txt': 'cat\n'})
    name = os.fsdecode(b'a\xff')
    for number in range(6):
        files(root, {f'{name}{number}{suffix}': text for suffix, text in LABELLED})
    found = reading(root).objects
    assert {len(found['train']), len(found['val'])} == {5, 1}


def test_a_link_to_a_folder_above_ends(tmp_path: Path) -> None:
    root = yolo(tmp_path / 'data')
    (root / 'images' / 'again').symlink_to(root)
    assert len(reading(root).objects['train']) == 4


def test_d14_one_state_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of edits the last; of processes that were killed nothing; another setting stays."""
    root, out = yolo(tmp_path / 'data'), tmp_path / 'kept'
    monkeypatch.setattr('rope_dense.project.own.data.CONVERTED', out)
    for number in range(4):
        write(root / 'labels/train/0.txt', f'{number % 2} .5 .5 .{number + 1} .4')
        load_config('realtime', own=dict(data_root=str(root)))
        load_config('instance', own=dict(data_root=str(masks_of_boxes(root))))
        [home] = out.glob('data-*/')
        [content] = (path for path in home.iterdir() if path.is_dir())
        (home / f'.{content.name}.left').mkdir()
    load_config('realtime', own=dict(data_root=str(root), classes=['cat']))
    assert len([*out.glob('data-*/')]) == 2


def masks_of_boxes(root: Path) -> Path:
    """Another data set with outlines."""
    other = root.parent / 'other'
    if not other.exists():
        files(
            yolo(other),
            {f'labels/{name}.txt': '0 .1 .1 .5 .1 .5 .5 .1 .4' for name in NAMES},
        )
    return other


def test_lists_of_elsewhere_are_named_without_their_text(tmp_path: Path) -> None:
    secret = write(tmp_path / 'secret.txt', 'pass word\n')
    root = yolo(tmp_path / 'data')
    write(root / 'data.yaml', f'train: {secret}\nval: images/val\nnames: [cat]\n')
    said = refusal(root)
    assert str(secret) in said
    assert 'pass word' not in said


def test_images_of_a_suffix_that_is_not_read_are_named(tmp_path: Path) -> None:
    files(tmp_path / 'data', {f'labels/{n}.txt': BOX for n in range(5)})
    for n in range(5):
        image(tmp_path / f'data/images/{n}.ppm')
    assert '5 .ppm' in refusal(tmp_path / 'data')


def test_images_inside_of_labelme_are_named(tmp_path: Path) -> None:
    text = LABELME.format('cat', 0).replace('{', '{"imageData": "AAAA", ', 1)
    assert 'imageData' in refusal(
        files(tmp_path / 'data', {f'{n}.json': text for n in range(3)})
    )


def test_most_images_have_a_label_file(tmp_path: Path) -> None:
    root = yolo(tmp_path / 'data')
    files(root, {f'images/train/{n}.jpg': None for n in range(10, 60)})
    settings = dict(data_root=str(root))
    with pytest.raises(UsageError, match='50 of 54 training images have no label file'):
        load_config('realtime', own=settings)
    cfg = load_config('realtime', own=dict(settings, partial=True))
    assert '54 training images' in cfg['own_data']


def test_depth_maps_are_split_as_boxes_are(tmp_path: Path) -> None:
    names = [f'{n}' for n in range(30)]
    for name in names:
        image(tmp_path / f'rgb/{name}.jpg')
        mask(tmp_path / f'depth/{name}.png', np.ones((30, 40), np.uint16))
    parts = find_maps(Inventory(tmp_path), DEPTH).splits
    assert {path.stem for path in parts['val'].files.pairs} == {
        *filter(is_for_validation, names)
    }


def test_any_write_changes_the_state(tmp_path: Path) -> None:
    root = yolo(tmp_path / 'data')
    cfg = load_config('realtime', own=dict(data_root=str(root)))
    inventory, path = Inventory(root), root / 'labels/train/0.txt'
    listed = cfg.own_files.train.ann_file
    assert is_up_to_date(listed, str(root))
    before = path.stat()
    path.write_text(BOX.replace('0', '1', 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not is_up_to_date(listed, str(root))
    digests = {Inventory(root).digest(), inventory.digest()}
    assert len(digests) == 2
    assert all(len(digest) == len(hashlib.sha256().hexdigest()) for digest in digests)


def test_d3_converted_labels_are_the_canonical_ones(tmp_path: Path) -> None:
    """With difficult objects, which are neither trained nor evaluated."""
    hard = XML.format('cat').replace('</name>', '</name><difficult>1</difficult>', 1)
    names = [f'{number}' for number in range(12)]
    images = {f'JPEGImages/{name}.jpg': None for name in names}
    root = files(
        tmp_path / 'data', images | {f'Annotations/{name}.xml': hard for name in names}
    )
    canonical = reading(root).content
    convert_data('voc', root / 'Annotations', tmp_path / 'train.json', val_share=0.2)
    for split, content in canonical.items():
        assert json.loads((tmp_path / f'{split}.json').read_text()) == content
    assert {item['iscrowd'] for item in canonical['val']['annotations']} == {1}


def test_a_folder_of_broken_labels_is_not_left_out(tmp_path: Path) -> None:
    root = voc(tmp_path / 'data')
    for path in (root / 'Annotations' / 'train').iterdir():
        path.write_text('<annotation>')
    assert 'Annotations/train/0.xml' in refusal(root)


@pytest.mark.parametrize('val_share', [None, 0.2])
def test_a_folder_without_images_is_named(
    tmp_path: Path, val_share: float | None
) -> None:
    root = files(tmp_path, {'labels/a.xml': XML.format('cat'), 'pictures/a.txt': 'x'})
    given = dict(images=root / 'pictures', val_share=val_share)
    with pytest.raises(ValueError, match=r'pictures has no image \(1 \.txt\): give'):
        convert_data('voc', root / 'labels', root / 'out/train.json', **given)
    assert not (root / 'out').exists()


@pytest.mark.parametrize('inner', ['', 'VOC2012/'])
def test_converted_labels_are_split_as_a_training_splits_them(
    inner: str, tmp_path: Path
) -> None:
    """Whether the folder of the labels is given or one above it."""
    names = [f'{number}' for number in range(12)]
    images = {f'{inner}JPEGImages/{name}.jpg': None for name in names}
    labels = {f'{inner}Annotations/{name}.xml': XML.format('cat') for name in names}
    root = files(tmp_path / 'data', images | labels)
    trained = {
        split: {*map(os.path.basename, x)} for split, x in reading(root).objects.items()
    }
    for number, source in enumerate((root, root / inner / 'Annotations')):
        out = tmp_path / f'{number}' / 'train.json'
        convert_data('voc', source, out, val_share=0.2)
        for split, expected in trained.items():
            content = json.loads(out.with_name(f'{split}.json').read_text())
            assert {
                os.path.basename(x['file_name']) for x in content['images']
            } == expected


@pytest.mark.parametrize('damage', ['remove', 'cut', 'edit'])
def test_a_damaged_canonical_file_is_written_again(damage: str, tmp_path: Path) -> None:
    root = yolo(tmp_path / 'data')
    before = reading(root).content
    [file] = (tmp_path / 'data_canonical').glob('*/*/train.json')
    text = file.read_text()
    if damage == 'remove':
        file.unlink()
    else:
        file.write_text(
            text[:100]
            if damage == 'cut'
            else text.replace('"iscrowd": 0', '"iscrowd": 1')
        )
    assert reading(root).content == before


def test_a_label_file_elsewhere_is_taken_alone(tmp_path: Path) -> None:
    """The other files of its folder, perhaps a home, are not listed; the file's changes count."""
    root, home = coco_folder(tmp_path / 'data'), tmp_path / 'home'
    labels = root / 'annotations' / 'instances_train.json'
    given = write(home / 'labels.json', labels.read_text())
    files(home, {'pictures/holiday.jpg': None})
    settings = dict(data_root=str(root), train=str(given))
    listed.clear()
    before = load_config('realtime', own=settings)['own_state']
    assert not listed[str(home)] and not listed[str(home / 'pictures')]
    given.write_text(given.read_text().replace('"cat"', '"lynx"'))
    labels.with_name('instances_val.json').write_text(given.read_text())
    after = load_config('realtime', own=settings)
    assert after['own_state'] != before
    assert tuple(after['train_dataloader']['dataset']['metainfo']['classes']) == (
        'lynx',
    )


@pytest.mark.parametrize('number', [errno.ENOLCK, errno.ENOSYS])
def test_k5_a_file_system_without_locks(
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A left lock of another machine bars nobody, and what that machine writes now is left."""
    root, out = yolo(tmp_path / 'data'), tmp_path / 'data_canonical'
    reading(root)
    assert not [*out.glob('.*.lock')]
    (home,) = (path for path in out.iterdir() if path.is_dir())
    write(out / f'.{home.name}.lock', '13441\nanother-host\n')
    files(home, {'.0123.abc/fresh/train.json': '{}'})
    write(root / 'labels/train/0.txt', f'{BOX}\n0 .5 .5 .2 .2')
    flock = Mock(side_effect=OSError(number, os.strerror(number)))
    monkeypatch.setattr('fcntl.flock', flock)
    assert len(reading(root).content['train']['annotations']) == 5
    assert (home / '.0123.abc/fresh/train.json').exists()
    assert capsys.readouterr().err.endswith('start no second process here\n')


def test_a_link_to_itself_is_as_one_to_nothing(tmp_path: Path) -> None:
    root = yolo(tmp_path / 'data')
    before = reading(root).content
    (root / 'images' / 'train' / 'self').symlink_to('self')
    (root / 'images' / 'train' / 'self.jpg').symlink_to('self.jpg')
    (root / 'images' / 'train' / 'nothing.jpg').symlink_to('gone')
    assert reading(root).content == before


def test_the_current_folder_has_to_be_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs the tests: not even root makes a folder in /proc."""
    root, out = yolo(tmp_path / 'data'), Path('work_dirs', 'own_data')
    monkeypatch.setattr('rope_dense.project.own.data.CONVERTED', out)
    monkeypatch.chdir('/proc')
    says = '/proc/work_dirs/own_data cannot be written to; .*kept in work_dirs/own_data of the curr'
    with pytest.raises(UsageError, match=says):
        load_config('realtime', own=dict(data_root=str(root)))
