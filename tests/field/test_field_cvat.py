"""CVAT's own XML files, of images and of video, and the line for what cannot be read."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from helpers.field import SIZE, Reading, check_folder, image, reading, write

CAT = ('cat', (10, 5, 20, 10), 0)
BOX = '<box label="cat" source="manual" occluded="0" xtl="10.00" ytl="5.00" xbr="30.00" ybr="15.00" z_order="0"></box>'  # fmt: skip # noqa: E501
SIDES = f'width="{SIZE[1]}" height="{SIZE[0]}"'


def meta(*labels: str, kind: str = 'task', more: str = '') -> str:
    texts = ''.join(
        label if '<' in label else f'<label><name>{label}</name></label>'
        for label in labels
    )
    return f'<meta><{kind}><id>1</id>{more}<labels>{texts}</labels></{kind}><dumped/></meta>'


def frame(name: str, *shapes: str, more: str = SIDES, number: int = 0) -> str:
    return f'<image id="{number}" name="{name}" {more}>{"".join(shapes)}</image>'


def xml(*parts: str) -> str:
    head = (
        '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>'
    )
    return f'{head}{"".join(parts)}</annotations>\n'


def export(root: Path, *parts: str, names: str = '') -> None:
    """An export: annotations.xml beside images/."""
    write(root / 'annotations.xml', xml(*parts))
    for name in names.split():
        image(root / 'images' / name)


def one(
    root: Path, *shapes: str, labels: str = meta('cat', 'dog'), more: str = SIDES
) -> Reading:
    """The reading of an image with these shapes, beside a validation image with a cat."""
    for split, inside in (('train', shapes), ('val', (BOX,))):
        export(
            root / split,
            labels,
            frame(f'{split}.jpg', *inside, more=more),
            names=f'{split}.jpg',
        )
    return reading(root)


# Shapes: the XML, what is read, and what is said.
SHAPES: dict[str, tuple[str, list, str]] = {
    'box': (BOX, [CAT], ''),
    'box with attributes': (
        BOX.replace('></box>', '><attribute name="colour">red</attribute></box>'),
        [CAT],
        '',
    ),
    'label with spaces, F10': (BOX.replace('"cat"', '" cat "'), [CAT], ''),
    'box by 90 degrees': (
        '<box label="cat" xtl="15" ytl="0" xbr="25" ybr="20" rotation="90.00"/>',
        [CAT],
        '',
    ),
    'box of other corners': (
        '<box label="cat" xtl="30" ytl="15" xbr="10" ybr="5"/>',
        [CAT],
        'box with its corners in another order',
    ),
    'polygon': (
        '<polygon label="cat" points="10.00,5.00;30.00,5.00;30.00,15.00;10.00,15.00"/>',
        [CAT],
        '',
    ),
    'ellipse, F11': (
        '<ellipse label="cat" cx="20.00" cy="10.00" rx="10.00" ry="5.00"/>',
        [CAT],
        '',
    ),
    'ellipse by 90 degrees': (
        '<ellipse label="cat" cx="20" cy="10" rx="5" ry="10" rotation="90.0"/>',
        [CAT],
        '',
    ),
    'mask, F11': (
        '<mask label="cat" rle="0, 200" left="10" top="5" width="20" height="10" z_order="0"/>',
        [CAT],
        '',
    ),
    'mask that leaves the image': (
        '<mask label="cat" rle="0, 200" left="30" top="25" width="20" height="10"/>',
        [('cat', (30, 25, 10, 5), 0)],
        '',
    ),
    'mask without a pixel': (
        BOX + '<mask label="cat" rle="200" left="10" top="5" width="20" height="10"/>',
        [CAT],
        '1 x mask without a pixel in its image (left out): train.jpg, mask 2',
    ),
    'polygon of two points, F12': (
        BOX + '<polygon label="cat" points="10,5;30,5"/>',
        [CAT],
        '1 x polygon of less than three corners (left out): train.jpg, polygon 2',
    ),
    'tag': (
        BOX + '<tag label="dog" source="manual"></tag>',
        [CAT],
        '1 x tag of a whole image (no object): train.jpg, tag 2',
    ),
    'only a tag': (
        '<tag label="dog" source="manual"></tag>',
        [],
        'tag of a whole image',
    ),
    'nothing': ('', [], '1 training images have no object'),
    'unknown label': (
        BOX + BOX.replace('cat', 'cow'),
        [CAT],
        "1 x object of the unknown class 'cow' (left out): train.jpg, box 2",
    ),
}
POINTS = 'points="1,1;5,5;9,1"'
SHAPES |= {
    f'{kind}, F11': (
        BOX + text,
        [CAT],
        f'1 x object of type {kind} (left out): train.jpg, {kind} 2',
    )
    for kind, text in {
        'polyline': f'<polyline label="cat" {POINTS}/>',
        'points': f'<points label="cat" {POINTS}/>',
        'skeleton': f'<skeleton label="cat"><points label="nose" {POINTS}/></skeleton>',
        'cuboid': '<cuboid label="cat" xtl1="1" ytl1="1" xbl1="1" ybl1="5"/>',
    }.items()
}


@pytest.mark.parametrize('text, objects, line', SHAPES.values(), ids=SHAPES)
def test_a_shape(text: str, objects: list, line: str, tmp_path: Path) -> None:
    found = one(tmp_path / 'data', text)
    assert found.objects['train'] == {'train.jpg': objects}
    assert found.classes == ('cat', 'dog')
    assert line in found.text and (line or len(found.text.splitlines()) == 1)


def test_an_image_that_lost_its_objects_is_no_negative(tmp_path: Path) -> None:
    root = tmp_path / 'data'  # F11
    two = frame('a.jpg', f'<points label="cat" {POINTS}/>'), frame('b.jpg', BOX)
    export(root / 'train', *two, names='a.jpg b.jpg')
    export(root / 'val', frame('c.jpg', BOX), names='c.jpg')
    found = reading(root)
    assert found.objects['train'] == {'b.jpg': [CAT]}
    assert '1 x image that lost all of its objects (left out): a.jpg' in found.text


def test_masks_are_rows_of_run_lengths(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 2, (7, 9))
    changes = np.flatnonzero(np.diff(pixels.ravel(), prepend=0, append=2))
    counts = ', '.join(map(str, np.diff(changes, prepend=0)))
    shape = (
        f'<mask label="cat" rle="{counts}" left="12" top="20" width="9" height="7"/>'
    )
    (item,) = one(tmp_path / 'data', shape).content['train']['annotations']
    size = item['segmentation']['size']
    lengths = dict(size=size, counts=item['segmentation']['counts'].encode())
    expected = np.zeros(SIZE, int)
    expected[20:27, 12:21] = pixels
    assert size == list(SIZE) and np.array_equal(coco_mask.decode(lengths), expected)
    assert item['area'] == pixels.sum()


def test_a_mask_of_an_image_without_sides(tmp_path: Path) -> None:
    shape = '<mask label="cat" rle="0, 200" left="10" top="5" width="20" height="10"/>'
    assert one(tmp_path / 'data', shape, more='').objects['train'] == {
        'train.jpg': [CAT]
    }


def test_rotated_boxes_and_ellipses_keep_their_outline(tmp_path: Path) -> None:
    box = '<box label="cat" xtl="10" ytl="10" xbr="30" ybr="20" rotation="45"/>'
    round_one = '<ellipse label="cat" cx="20" cy="15" rx="10" ry="2" rotation="45"/>'
    rotated, ellipse = one(tmp_path / 'data', box, round_one).content['train'][
        'annotations'
    ]
    assert rotated['bbox'] == pytest.approx([9.39, 4.39, 21.21, 21.21], abs=0.01)
    (points,) = ellipse['segmentation']
    assert points[:2] == pytest.approx(
        [20 + 50**0.5, 15 + 50**0.5]
    )  # clockwise, y is down


@pytest.mark.parametrize(
    'shape, line',
    [
        ('<polygon label="cat" points=""/>', "polygon 1: a corner is ''"),  # F12
        ('<polygon label="cat"/>', "polygon 1: a corner is ''"),
        (
            '<polygon label="cat" points="1,2;3,x;5,6"/>',
            "polygon 1: a corner is 'x', which is no n",
        ),
        (
            '<polygon label="cat" points="1,2;3;5,6"/>',
            'polygon 1: a polygon of 5 numbers',
        ),
        ('<box label="cat" xtl="1" ytl="1" xbr="5"/>', 'box 1: ybr is None'),
        (
            '<box label="cat" xtl="1" ytl="nan" xbr="5" ybr="5"/>',
            "box 1: ytl is 'nan', which is not",
        ),
        (
            '<box xtl="1" ytl="1" xbr="5" ybr="5"/>',
            'box 1: its label is empty or missing',
        ),
        ('<ellipse label="cat" cx="1" cy="1" rx="" ry="5"/>', "ellipse 1: rx is ''"),
        (
            '<mask label="cat" rle="1, 2" left="1" top="1" width="2" height="2"/>',
            'mask 1: run lengths of 3 pixels for 2 x 2',
        ),
        (
            '<mask label="cat" left="1" top="1" width="2" height="2"/>',
            "mask 1: a run length is ''",
        ),
    ],
)
def test_a_line_names_the_image_and_the_shape(
    shape: str, line: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError) as error:
        one(tmp_path / 'data', shape)
    assert f'annotations.xml, train.jpg, {line}' in str(error.value)
    assert '\n' not in str(error.value)


PART = '<label><name>nose</name><type>points</type><parent>body</parent></label>'
BODY = '<label><name>body</name><type>skeleton</type><svg>&lt;circle/&gt;</svg></label>'
DAY = '<label><name>day</name><type>tag</type></label>'


@pytest.mark.parametrize(
    'labels, classes',
    [
        (meta('dog', 'cat'), ('dog', 'cat')),
        (meta('dog', 'cat', kind='job'), ('dog', 'cat')),
        (meta('dog', 'cat', kind='project'), ('dog', 'cat')),
        (meta(' dog ', 'cat', BODY, PART, DAY), ('dog', 'cat', 'body')),
        (meta('<label><name>cat</name><attributes><attribute><name>x</name></attribute>'
              '</attributes></label>'), ('cat',)),
        (meta(), ('cat',)),
        ('', ('cat',)),
    ],
)  # fmt: skip
def test_classes_are_the_labels_of_the_project(
    labels: str, classes: tuple[str, ...], tmp_path: Path
) -> None:
    assert one(tmp_path / 'data', BOX, labels=labels).classes == classes


# Folders: what is built, the images of both splits, and what is said.
def two_exports(root: Path) -> None:
    for split in ('Train', 'Validation'):
        export(root / split, frame(f'{split}.jpg', BOX), names=f'{split}.jpg')


def two_files(root: Path) -> None:
    for split in ('train', 'val'):
        write(root / f'{split}.xml', xml(frame(f'{split}.jpg', BOX)))
        image(root / 'images' / f'{split}.jpg')


def two_files_in_annotations(root: Path) -> None:
    for split in ('train', 'val'):
        write(root / 'annotations' / f'{split}.xml', xml(frame('a.jpg', BOX)))
        image(root / 'images' / split / 'a.jpg')


def subsets_of_a_project(root: Path) -> None:
    """Folders of the subsets; the same name in both."""
    parts = [
        frame('a.jpg', BOX, more=f'subset="{s}" task_id="1" {SIDES}')
        for s in ('Train', 'Val')
    ]
    export(root, meta('cat', kind='project'), *parts, names='Train/a.jpg Val/a.jpg')


def subsets_of_flat_images(root: Path) -> None:
    parts = [
        frame(f'{s}.jpg', BOX, more=f'subset="{s}" {SIDES}')
        for s in ('train', 'test', 'old')
    ]
    export(root, *parts, names='train.jpg test.jpg old.jpg')


def names_with_folders(root: Path) -> None:
    parts = [
        frame('d/e/1.jpg', BOX, more=f'subset="train" {SIDES}'),
        frame(
            'proj/x/2.png', BOX, more=f'subset="train" {SIDES}'
        ),  # folders of the machine
        frame(r'C:\pictures\3.jpg', BOX, more=f'subset="train" {SIDES}'),
        frame('frame_000004', BOX, more=f'subset="train" {SIDES}'),  # cvat #8839
        frame('5.png', BOX, more=f'subset="val" {SIDES}'),  # saved as jpg since
    ]
    export(root, *parts, names='d/e/1.jpg x/2.png 3.jpg frame_000004.png 5.jpg')


def beside_the_images(root: Path) -> None:
    parts = [
        frame(f'{s}.jpg', BOX, more=f'subset="{s}" {SIDES}') for s in ('train', 'val')
    ]
    write(root / 'cats.xml', xml(*parts))
    for split in ('train', 'val'):
        image(root / f'{split}.jpg')


def folders_in_names(root: Path) -> None:
    """A task without subsets, whose images were uploaded in folders of splits."""
    parts = [frame(f'set/{split}/a.jpg', BOX) for split in ('train', 'val')]
    export(root, *parts, names='set/train/a.jpg set/val/a.jpg')


def below_in_a_folder(root: Path) -> None:
    """A zip that was unpacked into a folder of its own."""
    subsets_of_a_project(root / 'project_cats-2024_11_25-cvat for images 1.1')


def fiftyone(root: Path) -> None:
    """CVATImageDataset of FiftyOne, one folder a split."""
    for split in ('train', 'val'):
        write(root / split / 'labels.xml', xml(meta('cat'), frame(f'{split}.jpg', BOX)))
        image(root / split / 'data' / f'{split}.jpg')


FOLDERS: dict[Callable[[Path], None], tuple[str, str, str]] = {
    two_exports: (
        'Train.jpg',
        'Validation.jpg',
        'CVAT, 1 training images and 1 validation images',
    ),
    two_files: ('train.jpg', 'val.jpg', 'by folder'),
    two_files_in_annotations: ('a.jpg', 'a.jpg', 'by folder'),
    subsets_of_a_project: ('Train/a.jpg', 'Val/a.jpg', 'by subset (train, val)'),
    below_in_a_folder: ('Train/a.jpg', 'Val/a.jpg', 'by subset (train, val)'),
    folders_in_names: ('set/train/a.jpg', 'set/val/a.jpg', 'by subset (train, val)'),
    fiftyone: ('data/train.jpg', 'data/val.jpg', 'by folder'),
    subsets_of_flat_images: (
        'train.jpg',
        'test.jpg',
        'by subset (train, test; not old)',
    ),
    names_with_folders: (
        '3.jpg, d/e/1.jpg, frame_000004.png, x/2.png',
        '5.jpg',
        'by subset',
    ),
    beside_the_images: ('train.jpg', 'val.jpg', 'by subset (train, val)'),
}


@pytest.mark.parametrize('build', FOLDERS, ids=lambda build: build.__name__)
def test_a_folder(build: Callable[[Path], None], tmp_path: Path) -> None:
    check_folder(build, tmp_path / 'data', FOLDERS[build], [CAT])


def test_images_that_are_not_there_are_counted_once(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    names = [f'{number}.jpg' for number in range(20)]
    parts = [frame(f'gone{number}.jpg', BOX, BOX) for number in range(5)]
    export(root, *parts, *(frame(name, BOX) for name in names), frame('empty.jpg'))
    for name in (*names, 'new.jpg'):
        image(root / 'images' / name)
    found = reading(root)
    assert sorted(found.objects['train'] | found.objects['val']) == sorted(names)
    assert '10 x object of an image that is not there (left out): gone' in found.text
    assert '1 x image that is not there, and has no object: empty.jpg' in found.text
    assert '1 x image that the labels do not name (left out): new.jpg' in found.text


def test_a_subset_for_training_only_is_split(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    names = [f'{number}.jpg' for number in range(20)]
    export(root, *(frame(name, BOX, more=f'subset="Train" {SIDES}') for name in names))
    for name in names:
        image(root / 'images' / name)
    found = reading(root)
    assert 'by subset (train) and a hash of the name' in found.text
    assert sorted(found.objects['train'] | found.objects['val']) == sorted(names)


def test_labels_of_a_subset_are_of_no_image_of_another(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    parts = [
        frame('a.jpg', BOX, more=f'subset="{subset}" {SIDES}')
        for subset in ('Train', 'Test')
    ]
    parts.append(frame('b.jpg', BOX, more=f'subset="Train" {SIDES}'))
    export(root, *parts, names='Test/a.jpg Train/b.jpg')
    found = reading(root)
    assert found.objects == {
        'train': {'Train/b.jpg': [CAT]},
        'val': {'Test/a.jpg': [CAT]},
    }
    assert '1 x object of an image that is not there (left out)' in found.text


def test_two_elements_of_one_image(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    two = frame('a.jpg', BOX), frame('a.jpg', BOX, BOX)
    export(root / 'train', *two, names='a.jpg')
    export(root / 'val', frame('b.jpg', BOX), names='b.jpg')
    found = reading(root)
    assert found.objects['train'] == {'a.jpg': [CAT]}
    assert '2 x object of an image that has labels already' in found.text


# Video: tracks, whose frames are images with numbers.
def on(number: int, outside: int = 0, key: int = 1, left: float = 10) -> str:
    box = f'xtl="{left}" ytl="5" xbr="{left + 20}" ybr="15"'
    state = f'keyframe="{key}" outside="{outside}" occluded="0"'
    return f'<box frame="{number}" {state} {box} z_order="0"></box>'


def track(*shapes: str, more: str = '', label: str = 'cat') -> str:
    return f'<track id="0" label="{label}" source="manual" {more}>{"".join(shapes)}</track>'


def about(last: int, more: str = '') -> str:
    """The description of a task of the frames from 0."""
    size = f'<original_size><width>{SIZE[1]}</width><height>{SIZE[0]}</height></original_size>'
    numbers = f'<size>{last + 1}</size><start_frame>0</start_frame><stop_frame>{last}</stop_frame>'
    return meta('cat', 'dog', more=f'<mode>interpolation</mode>{numbers}{more}{size}')


def video(
    root: Path, *parts: str, numbers: range, pattern: str = 'frame_{:06d}.png'
) -> Reading:
    """The reading of a video as training data, beside a validation image with a cat."""
    export(root / 'train', *parts)
    for number in numbers:
        image(root / 'train' / 'images' / pattern.format(number))
    export(root / 'val', frame('v.jpg', BOX), names='v.jpg')
    return reading(root)


@pytest.mark.parametrize(
    'pattern',
    [
        'frame_{:06d}.PNG',
        'frame_{:06d}.jpg',
        '{:06d}.jpg',
        '{}.jpg',
        'clip 1_{:03d}.png',
        'd/{}.jpg',
    ],
)
def test_frames_of_tracks(pattern: str, tmp_path: Path) -> None:
    tracks = (
        track(on(0), on(1, key=0, left=12), on(2, outside=1)),
        track(on(1), label='dog'),
    )
    found = video(
        tmp_path / 'data', about(3), *tracks, numbers=range(4), pattern=pattern
    )
    first, second, third, last = map(pattern.format, range(4))
    assert found.objects['train'] == {
        first: [CAT],
        second: [('cat', (12, 5, 20, 10), 0), ('dog', *CAT[1:])],
        third: [],
    }
    assert (
        f'1 x image that the labels do not name (left out): {Path(last).name}'
        in found.text
    )


def test_masks_and_polygons_of_tracks(tmp_path: Path) -> None:
    state = 'keyframe="1" outside="0"'
    mask = f'<mask frame="0" {state} rle="0, 200" left="10" top="5" width="20" height="10"/>'
    polygon = f'<polygon frame="1" {state} points="10,5;30,5;30,15"/>'
    parts = (
        track(mask),
        track(polygon),
        track(f'<points frame="1" {state} points="1,1"/>'),
    )
    found = video(tmp_path / 'data', about(1), *parts, numbers=range(2))
    assert found.objects['train'] == {
        'frame_000000.png': [CAT],
        'frame_000001.png': [CAT],
    }
    assert 'object of type points (left out): frame_000001, points 2' in found.text


def test_tracks_beside_images(tmp_path: Path) -> None:
    root = tmp_path / 'data'  # F12
    images = [frame(f'{name}.jpg', BOX, number=n) for n, name in enumerate('ab')]
    export(root / 'train', *images, track(on(1), label='dog'), names='a.jpg b.jpg')
    export(root / 'val', frame('v.jpg', BOX), names='v.jpg')
    assert reading(root).objects['train'] == {
        'a.jpg': [CAT],
        'b.jpg': [CAT, ('dog', *CAT[1:])],
    }


def test_tracks_of_subsets(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    task = '<task><id>{}</id><size>2</size><start_frame>0</start_frame></task>'
    tasks = f'<tasks>{task.format(1)}{task.format(2)}</tasks>'
    parts = [
        track(on(0), on(1), more=f'subset="{subset}" task_id="{number}"')
        for number, subset in enumerate(('Train', 'Val'), start=1)
    ]
    names = [
        f'{subset}/frame_00000{n}.png' for subset in ('Train', 'Val') for n in (0, 1)
    ]
    export(root, meta('cat', kind='project', more=tasks), *parts, names=' '.join(names))
    found = reading(root).objects
    assert found == {
        'train': {name: [CAT] for name in names[:2]},
        'val': {name: [CAT] for name in names[2:]},
    }
    again = [*parts, track(on(0), more='subset="Train" task_id="3"')]
    export(root, *again)
    with pytest.raises(
        ValueError, match=r"annotations\.xml: subset 'Train' has tracks of several ta"
    ):
        reading(root)


def test_frames_of_every_fifth_image(tmp_path: Path) -> None:
    step = about(20, '<frame_filter>step=5</frame_filter>')
    parts = step, track(*(on(number) for number in range(0, 21, 5)))
    found = video(tmp_path / 'data', *parts, numbers=range(21))
    assert [*found.objects['train']] == [
        f'frame_{number:06d}.png' for number in range(0, 21, 5)
    ]


def test_frames_of_a_job(tmp_path: Path) -> None:
    """A job counts the frames of its task, tracks the frames of the video."""
    numbers = '<start_frame>4</start_frame><stop_frame>7</stop_frame>'
    job = meta('cat', kind='job', more=f'{numbers}<frame_filter>step=5</frame_filter>')
    parts = job, track(*(on(number) for number in range(20, 36, 5)))
    found = video(tmp_path / 'data', *parts, numbers=range(20, 36, 5))
    assert [*found.objects['train']] == [f'frame_{n:06d}.png' for n in (20, 25, 30, 35)]


def test_frames_without_an_image_are_counted(tmp_path: Path) -> None:
    parts = about(9), track(*(on(number) for number in range(10)))
    found = video(tmp_path / 'data', *parts, numbers=range(0, 10, 3))
    assert len(found.objects['train']) == 4
    assert (
        '6 x object of an image that is not there (left out): frame_000001'
        in found.text
    )


def test_both_splits_of_one_video(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    export(root, about(19), track(*(on(number) for number in range(20))))
    for number in range(20):
        image(root / 'images' / f'frame_{number:06d}.png')
    assert 'so both splits have frames of one video' in reading(root).text


@pytest.mark.parametrize(
    'description, numbers, pattern, line',
    [
        (about(2), range(0), '{}', 'frames 0 to 2 of a video, and the images in .* have no number: '
                                   'export "CVAT for images 1.1" with images, or extract the fra'),
        (about(2), range(3), 'cat{}_.jpg', 'have no number: export "CVAT for images 1.1"'),
        (about(2), range(1, 4), 'frame_{:06d}.jpg', 'have 1 to 3: .* the first as frame_000000'),
        (about(2), range(1, 4), 'IMG_{}.jpg', 'have 1 to 3'),
        (about(2), range(100, 400, 100), '{}.jpg', 'have 100 to 300'),
        (meta('cat'), range(1, 4), '{}.jpg', 'have 1 to 3'),
        ('', range(1, 4), '{}.jpg', 'have 1 to 3'),
    ],
)  # fmt: skip
def test_images_that_are_no_frames(
    description: str, numbers: range, pattern: str, line: str, tmp_path: Path
) -> None:
    parts = description, track(on(0), on(1), on(2))  # cvat #5881, F12
    with pytest.raises(ValueError, match=rf'annotations\.xml: its tracks are .*{line}'):
        video(tmp_path / 'data', *parts, numbers=numbers, pattern=pattern)


def test_other_lines_of_tracks(tmp_path: Path) -> None:
    parts = about(9), track(on(0), on(9))
    with pytest.raises(
        ValueError, match='track 0 has no shape between frames 0 and 9, but'
    ):
        video(tmp_path / 'key frames', *parts, numbers=range(10))
    image(tmp_path / 'two' / 'train' / 'images' / 'again' / 'frame_000001.jpg')
    parts = about(1), track(on(0), on(1))
    with pytest.raises(
        ValueError, match=r'frame 1 is both .*again/frame_000001\.jpg and .*png: remo'
    ):
        video(tmp_path / 'two', *parts, numbers=range(2))
    with pytest.raises(
        ValueError, match=r"annotations\.xml: a frame of track 0 is 'x', which is"
    ):
        video(tmp_path / 'number', track('<box frame="x"/>'), numbers=range(2))


def jobs(root: Path) -> None:
    for number in (1, 2):
        export(
            root / f'job_{number}', frame(f'{number}.jpg', BOX), names=f'{number}.jpg'
        )


def numbered_files(root: Path) -> None:
    export(root, frame('1.jpg', BOX), names='1.jpg 2.jpg')
    write(root / 'annotations_2.xml', xml(frame('2.jpg', BOX)))


def several_files(root: Path) -> None:
    for name in ('task_1', 'task_2'):
        write(root / f'{name}.xml', xml(frame('1.jpg', BOX)))
    image(root / 'images' / '1.jpg')


def cut_off(root: Path) -> None:
    write(root / 'annotations.xml', xml(frame('1.jpg', BOX))[:-20])
    image(root / 'images' / '1.jpg')


def empty(root: Path) -> None:
    write(root / 'annotations.xml', '')


def only_validation(root: Path) -> None:
    export(root / 'val', frame('1.jpg', BOX), names='1.jpg')


def no_images(root: Path) -> None:
    export(root / 'train', frame('1.jpg', BOX))
    export(root / 'val', frame('2.jpg', BOX))


def validation_without_labels(root: Path) -> None:
    export(root / 'train', frame('1.jpg', BOX), names='1.jpg')
    image(root / 'val' / 'images' / '2.jpg')


def only_a_subset_for_testing(root: Path) -> None:
    export(root, frame('1.jpg', BOX, more=f'subset="Test" {SIDES}'), names='1.jpg')


def resized(root: Path) -> None:
    for split in ('train', 'val'):
        more = 'width="80" height="60"'
        export(root / split, frame('1.jpg', BOX, more=more), names='1.jpg')


@pytest.mark.parametrize(
    'build, line',
    [
        (
            jobs,
            r'has job_1/annotations\.xml, job_2/annotations\.xml of CVAT, and nothing says whi',
        ),
        (numbered_files, r'has annotations\.xml, annotations_2\.xml of CVAT'),
        (several_files, r'has task_1\.xml, task_2\.xml of CVAT'),
        (cut_off, r'annotations\.xml is no XML, cut off'),
        (empty, r'annotations\.xml is no XML, cut off'),
        (
            only_validation,
            r'val/annotations\.xml has labels for validation, and no train/',
        ),
        (
            no_images,
            r'2 x object of an image that is not there \(left out\): 1\.jpg, 2\.jpg',
        ),
        (
            only_a_subset_for_testing,
            r"has a subset 'test' for validation, and none for training",
        ),
        (
            validation_without_labels,
            r'data/val has images, but no labels as .*train/annotations',
        ),
        (resized, r'1\.jpg: 80 x 60 by its labels, the image has 40 x 30'),
    ],
)
def test_the_line_of_a_folder(
    build: Callable[[Path], None], line: str, tmp_path: Path
) -> None:
    build(tmp_path / 'data')
    with pytest.raises(ValueError, match=line):
        reading(tmp_path / 'data')


def test_names_of_another_folder_are_named(tmp_path: Path) -> None:
    names = [f'{number}.jpg' for number in range(9)]
    frames = [frame(f'camA/{name}', BOX) for name in names]
    export(
        tmp_path / 'data',
        meta('cat'),
        *frames,
        names=' '.join(f'camB/{n}' for n in names),
    )
    line = '9 x image in another folder than its name says (taken by its name)'
    assert line in reading(tmp_path / 'data').text
