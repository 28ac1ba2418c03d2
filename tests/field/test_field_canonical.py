"""The canonical COCO file: one set of rules for the objects of every format."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import mmengine
import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco_mask

from helpers.field import image, write
from rope_dense.data.labels import canonical
from rope_dense.data.labels.annotations import Rules
from rope_dense.data.labels.canonical import CanonicalSplit, check_left_out
from rope_dense.data.labels.geometry import mask_shape, polygon_shape, rotated_shape
from rope_dense.data.labels.inventory import Inventory
from rope_dense.data.labels.label_folder import Format, LabelFolder, Read, Split
from rope_dense.data.labels.objects import Box, Labelled, Report, Shape

BOX: Box = (10, 5, 20, 10)


def folder_of(
    root: Path,
    train: Sequence[Labelled],
    val: Sequence[Labelled] = (),
    names: Sequence[str] = (),
) -> LabelFolder:
    """A data set whose reader gives these images; `val` is one image with an object by default."""
    val = val or [Labelled(image(root / 'images/val.png'), [Shape('cat', BOX)])]
    given = dict(train=train, val=val)

    def read(labels: Split, classes: Sequence[str] | None, report: Report) -> Read:
        items: Iterator[Labelled] = iter(given[labels.options['split']])
        return names, items

    form = Format('test', 'Test', ('.txt',), lambda inventory: None, read)
    (root / 'labels').mkdir(exist_ok=True)
    inventory = Inventory(root)
    splits = {
        split: Split(
            root / 'labels',
            root / 'images',
            options=dict(split=split),
            inventory=inventory,
        )
        for split in given
    }
    return LabelFolder(form, splits, 'folder')


def as_canonical(
    folder: LabelFolder,
    out: Path,
    classes: Sequence[str] | None = None,
    **options: bool,
) -> tuple[dict[str, CanonicalSplit], str]:
    """The canonical files of a data set as it is now."""
    inventory = Inventory(folder.splits['train'].images.parent)
    parts = {
        split: replace(part, inventory=inventory)
        for split, part in folder.splits.items()
    }
    known = replace(folder, splits=parts)
    found = canonical.write_canonical(
        inventory, lambda _: known, out, classes, Rules(**options)
    )
    return found.splits, found.text


def one(
    root: Path, *shapes: Shape, size: tuple[int, int] | None = None, **options: bool
) -> tuple[list[dict], str, dict[str, CanonicalSplit]]:
    """Annotations of one training image 30 x 40 with these objects, the report, and the splits."""
    item = Labelled(image(root / 'images/a.png'), list(shapes), size)
    splits, text = as_canonical(folder_of(root, [item]), root / 'out', **options)
    return mmengine.load(str(splits['train'].ann_file))['annotations'], text, splits


def test_ids_count_from_1_and_areas_are_computed(tmp_path: Path) -> None:
    shapes = [Shape('cat', BOX), Shape('dog', (0, 0, 5, 5))]
    found, text, splits = one(tmp_path, *shapes)  # F1, F2, F5
    assert [item['id'] for item in found] == [1, 2] and [
        i['image_id'] for i in found
    ] == [1, 1]
    assert [item['area'] for item in found] == [200, 25]
    assert splits['train'].classes == splits['val'].classes == ('cat', 'dog')
    assert text.splitlines() == [
        'Test, 1 training images and 1 validation images, by folder; 2 and 1 objects',
        '1 x class without a validation object: dog',
    ]


def test_a_polygon_that_leaves_the_image_keeps_its_slope(tmp_path: Path) -> None:
    item = Labelled(
        image(tmp_path / 'images/a.png', (100, 100)),
        [polygon_shape('cat', [-100, 50, 50, 0, 50, 100])],
    )  # B5: its corners were moved, which gave an area of 2500
    splits, text = as_canonical(folder_of(tmp_path, [item]), tmp_path / 'out')
    (found,) = mmengine.load(str(splits['train'].ann_file))['annotations']
    lengths = coco_mask.frPyObjects(found['segmentation'], 100, 100)[0]
    assert found['area'] == coco_mask.area(lengths) == pytest.approx(4167, abs=60)
    assert found['bbox'] == pytest.approx([0, 0, 50, 100], abs=1)
    assert '1 x object partly outside of its image (clipped): a.png' in text


def test_corners_in_another_order_are_a_box(tmp_path: Path) -> None:
    found, text, _ = one(tmp_path, Shape('cat', (30, 15, -20, -10)))
    assert found[0]['bbox'] == [10, 5, 20, 10] and '1 x box with its corners' in text


@pytest.mark.parametrize(
    'box, reason',
    [
        ((100.0, 5.0, 9.0, 9.0), 'object outside of its image'),
        ((5.0, 5.0, 0.5, 9.0), 'box of less than a pixel'),
        ((0.1, 0.2, 0.3, 0.4), 'box of less than a pixel'),
    ],
)
def test_what_is_left_out_is_counted(tmp_path: Path, box: Box, reason: str) -> None:
    found, text, splits = one(tmp_path, Shape('cat', BOX), Shape('cat', box))  # F3
    assert len(found) == 1 and f'1 x {reason} (left out): a.png' in text
    assert (splits['train'].labelled, splits['train'].left_out) == (2, 1)


def test_an_image_that_lost_all_of_its_objects_is_no_negative(tmp_path: Path) -> None:
    lost = Labelled(image(tmp_path / 'images/lost.png'))  # F11
    lost.leave_out('shape of type cuboid', 'lost.json, shape 1')
    empty = Labelled(image(tmp_path / 'images/empty.png'))
    kept = Labelled(image(tmp_path / 'images/a.png'), [Shape('cat', BOX)])
    splits, text = as_canonical(
        folder_of(tmp_path, [lost, empty, kept]), tmp_path / 'out'
    )
    content = mmengine.load(str(splits['train'].ann_file))
    assert [item['file_name'] for item in content['images']] == ['empty.png', 'a.png']
    assert '1 x shape of type cuboid (left out): lost.json, shape 1' in text
    assert '1 training images have no object' in text
    with pytest.raises(
        ValueError, match=r'1 of 2 training objects are left out.*own.partial=True'
    ):
        check_left_out(splits, text, partial=False)
    check_left_out(splits, text, partial=True)


def test_a_tenth_may_be_left_out(tmp_path: Path) -> None:
    shapes = [Shape('cat', (n, 5, 9, 9)) for n in range(9)] + [
        Shape('cat', (50, 50, 9, 9))
    ]
    _, text, splits = one(tmp_path, *shapes)
    check_left_out(splits, text, partial=False)


def test_photographs_are_rotated_with_their_labels(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6
    file = image(
        tmp_path / 'images/a.jpg', (30, 40), exif=exif
    )  # shown 40 high, 30 wide
    shapes = [Shape('cat', BOX), mask_shape('cat', np.ones((10, 20)), 10, 5, (30, 40))]
    raw, shown = (
        Labelled(file, shapes, (30, 40)),
        Labelled(file, [Shape('cat', BOX)], (40, 30)),
    )
    for item, box in ((raw, [15, 10, 10, 20]), (shown, [10, 5, 20, 10])):
        splits, _ = as_canonical(folder_of(tmp_path, [item]), tmp_path / f'out{box[0]}')
        content = mmengine.load(str(splits['train'].ann_file))
        assert (content['images'][0]['height'], content['images'][0]['width']) == (
            40,
            30,
        )
        assert all(found['bbox'] == box for found in content['annotations'])
        for found in content['annotations'][1:]:  # the mask
            assert coco_mask.toBbox(found['segmentation']).tolist() == box


def test_sizes_of_labels_are_compared_with_images(tmp_path: Path) -> None:
    for shape in (
        Shape('cat', BOX),
        mask_shape('cat', np.ones((5, 5)), 0, 0, (60, 80)),
    ):
        with pytest.raises(
            ValueError, match=r'1 images have another size .* a.png: 80 x 60 by'
        ):
            one(tmp_path, shape, size=(60, 80))  # B28
    with pytest.raises(
        ValueError, match=r'a.png: 30 x 40 by its labels, the image has 40 x 30'
    ):
        one(tmp_path, Shape('cat', BOX), size=(40, 30))  # F3: height and width swapped


def test_ignored_objects_are_so_in_both_splits(tmp_path: Path) -> None:
    flags = [True, False]
    shapes = [Shape('cat', (n, 5, 9, 9), crowd=flag) for n, flag in enumerate(flags)]
    train = Labelled(image(tmp_path / 'images/a.png'), shapes)
    val = Labelled(image(tmp_path / 'images/b.png'), shapes)  # B8
    splits, _ = as_canonical(folder_of(tmp_path, [train], [val]), tmp_path / 'out')
    crowds = {
        split: [
            item['iscrowd'] for item in mmengine.load(str(part.ann_file))['annotations']
        ]
        for split, part in splits.items()
    }
    assert crowds == dict(train=[1, 0], val=[1, 0])
    assert splits['val'].num_ignored == 1


def test_an_object_that_is_there_twice_is_one(tmp_path: Path) -> None:
    """F6: of one class, box and outline; ignored if one of them is."""
    polygon = [0.0, 0, 9, 0, 9, 9]
    shapes = [
        Shape('cat', BOX),
        polygon_shape('cat', polygon),
        Shape('dog', BOX),
        Shape('cat', (30, 15, -20, -10), crowd=True),  # as BOX
        polygon_shape('cat', [*polygon, 0, 9]),
        polygon_shape('cat', polygon),
    ]
    found, text, splits = one(tmp_path, *shapes)
    assert [item['iscrowd'] for item in found] == [1, 0, 0, 0]
    assert '2 x object that is there twice (taken once): a.png' in text
    assert (splits['train'].labelled, splits['train'].left_out) == (4, 0)


def test_masks_are_trained_on_outlines_of_all_objects(tmp_path: Path) -> None:
    shapes = Shape('cat', BOX), polygon_shape('cat', [0, 0, 9, 0, 9, 9])  # F14
    found, text, _ = one(tmp_path, *shapes, outlines=True)
    assert found[0]['segmentation'] == [[10, 5, 30, 5, 30, 15, 10, 15]]
    assert (
        '2 x object without a polygon or mask (its box is taken as one): a.png, val'
        in text
    )
    with pytest.raises(ValueError, match='no object has a polygon or mask'):
        one(tmp_path / 'boxes', Shape('cat', BOX), outlines=True)


def test_rectangles_of_any_orientation(tmp_path: Path) -> None:
    shapes = rotated_shape('cat', BOX, 30), Shape('cat', BOX)
    found, _, _ = one(tmp_path, *shapes, oriented=True)
    assert found[0]['area'] == pytest.approx(200, rel=1e-3)
    assert len(found[0]['segmentation'][0]) == len(found[1]['segmentation'][0]) == 8
    bar = np.zeros((30, 40), np.uint8)
    bar[np.arange(30), np.arange(30)] = bar[np.arange(1, 30), np.arange(29)] = 1
    found, _, _ = one(
        tmp_path / 'rle', mask_shape('cat', bar, 0, 0, (30, 40)), oriented=True
    )
    assert found[0]['area'] < 120  # B27: 900 of the upright box


def test_images_and_labels_that_change_make_new_files(tmp_path: Path) -> None:
    item = Labelled(image(tmp_path / 'images/a.png'), [Shape('cat', BOX)])
    folder = folder_of(tmp_path, [item])
    first, _ = as_canonical(folder, tmp_path / 'out')
    assert as_canonical(folder, tmp_path / 'out')[0] == first
    image(tmp_path / 'images/a.png', (60, 80))  # B4: resized
    second, _ = as_canonical(folder, tmp_path / 'out')
    assert mmengine.load(str(second['train'].ann_file))['images'][0]['height'] == 60
    image(tmp_path / 'images/more.png')  # an image without labels
    third, _ = as_canonical(folder, tmp_path / 'out')
    write(tmp_path / 'labels/a.txt', '')
    fourth, _ = as_canonical(folder, tmp_path / 'out')
    files = {part['train'].ann_file for part in (first, second, third, fourth)}
    assert len(files) == 4 and [path for path in files if path.exists()] == [
        fourth['train'].ann_file
    ]


def test_nothing_is_left_of_labels_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match='another size'):
        one(tmp_path, Shape('cat', BOX), size=(60, 80))
    assert not [
        path for path in (tmp_path / 'out').rglob('*') if not path.name.startswith('.')
    ]


def test_validation_images_that_are_trained_on_are_said(tmp_path: Path) -> None:
    item = Labelled(image(tmp_path / 'images/a.png'), [Shape('cat', BOX)])
    _, text = as_canonical(folder_of(tmp_path, [item], [item]), tmp_path / 'out')  # F8
    assert '1 of 1 validation images are training images, too' in text


def test_a_second_entry_of_an_image_is_counted(tmp_path: Path) -> None:
    item = Labelled(image(tmp_path / 'images/a.png'), [Shape('cat', BOX)])
    again = Labelled(item.file, [Shape('cat', BOX)])
    splits, text = as_canonical(folder_of(tmp_path, [item, again]), tmp_path / 'out')
    assert (
        splits['train'].num_images == 1
        and '1 x object of an image that has labels' in text
    )


def test_an_image_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    bad = Labelled(write(tmp_path / 'images/bad.png', b'no image'), [Shape('cat', BOX)])
    good = Labelled(image(tmp_path / 'images/a.png'), [Shape('cat', BOX)])
    splits, text = as_canonical(folder_of(tmp_path, [bad, good]), tmp_path / 'out')
    assert splits['train'].num_images == 1 and splits['train'].left_out == 1
    assert 'object of an image that cannot be read (left out): bad.png' in text


def test_boxes_that_mostly_leave_their_image_are_refused(tmp_path: Path) -> None:
    """Corners in place of a centre and a size, or of a place and a size."""
    shapes = [
        Shape('cat', (10 + n, 10 + n, 30 + n, 25 + n)) for n in range(5)
    ]  # l, t, r, b
    others = [Shape('cat', (n, 5, 9, 9)) for n in range(5)]
    _, text, splits = one(tmp_path, *shapes, *others[:4])
    with pytest.raises(
        ValueError, match='5 of 9 training objects leave their image: do the labels'
    ):
        check_left_out(splits, text, partial=False)
    check_left_out(splits, text, partial=True)
    _, text, splits = one(tmp_path / 'fewer', *shapes, *others)
    check_left_out(splits, text, partial=False)


@pytest.mark.parametrize('suffix', ['jpg', 'png'])
def test_an_image_that_is_cut_off_is_left_out(tmp_path: Path, suffix: str) -> None:
    """It would end the training when its turn comes; bytes behind the end are no fault."""
    rng = np.random.default_rng(0)
    files = [image(tmp_path / f'images/{name}.{suffix}') for name in ('cut', 'more')]
    for file in files:
        Image.fromarray(rng.integers(0, 255, (30, 40, 3), np.uint8)).save(file)
    files[0].write_bytes(files[0].read_bytes()[:-200])
    files[1].write_bytes(files[1].read_bytes() + b'more' * 9)
    items = [Labelled(file, [Shape('cat', BOX)]) for file in files]
    splits, text = as_canonical(folder_of(tmp_path, items), tmp_path / 'out')
    assert splits['train'].num_images == 1 and f'left out): cut.{suffix}' in text


def test_chosen_classes(tmp_path: Path) -> None:
    shapes = [Shape('cat', BOX), Shape('dog', BOX), Shape('eel', BOX)]
    item = Labelled(image(tmp_path / 'images/a.png'), shapes)
    folder = folder_of(tmp_path, [item], names=('cat', 'dog'))
    splits, text = as_canonical(folder, tmp_path / 'out', ['dog'])
    assert splits['train'].classes == ('dog',) and splits['train'].num_objects == 1
    assert (
        splits['train'].left_out == 1
    )  # of the class that no list has; cat is not chosen
    assert "object of the unknown class 'eel'" in text and "'cat'" not in text
    splits, _ = as_canonical(folder, tmp_path / 'out', ['dog', 'cat'])
    assert splits['val'].classes == ('dog', 'cat')  # in the order that is given
    with pytest.raises(
        ValueError, match=r'classes bird are not in the labels .* have cat, dog'
    ):
        as_canonical(folder, tmp_path / 'out', ['bird'])


def test_lost_objects_of_classes_that_are_not_chosen_do_not_count(
    tmp_path: Path,
) -> None:
    """Neither in the tenth that refuses a training, nor for an image that lost its objects."""
    first, other, damaged = (
        Labelled(image(tmp_path / f'images/{name}.png'), []) for name in ('a', 'b', 'c')
    )
    first.shapes = [Shape('cat', BOX), Shape('dog', BOX)]
    first.leave_out('object of type line', 'a.json, shape 3', 'line')
    other.leave_out('polygon of two points', 'b.json, shape 1', 'dog')
    damaged.shapes = [Shape('dog', BOX)]
    write(damaged.file, 'no image')
    items = [first, other, damaged, Labelled(first.file, [Shape('dog', BOX)])]
    folder = folder_of(tmp_path, items)
    splits, text = as_canonical(folder, tmp_path / 'out', ['cat'])
    train = splits['train']
    assert (train.labelled, train.left_out, train.num_images) == (1, 0, 2), text
    first.leave_out('object without a label', 'a.json, shape 4')
    train = as_canonical(folder, tmp_path / 'unknown', ['cat'])[0]['train']
    assert (train.labelled, train.left_out) == (2, 1)
    train = as_canonical(folder, tmp_path / 'all')[0]['train']
    assert (train.labelled, train.left_out, train.num_images) == (7, 5, 1)


def test_run_lengths_of_another_size_name_the_file(tmp_path: Path) -> None:
    shape = mask_shape('cat', np.ones((5, 5)), 0, 0, (60, 80))
    with pytest.raises(
        ValueError, match=r'a.png: run lengths of \[60, 80\] for an image'
    ):
        one(tmp_path, shape)


def test_copies_of_training_images_are_said(tmp_path: Path) -> None:
    """A folder of validation images that was copied from the training images."""
    train, val = (
        image(tmp_path / 'images' / split / 'a.png') for split in ('train', 'val')
    )
    val.write_bytes(train.read_bytes())
    items = [[Labelled(file, [Shape('cat', BOX)])] for file in (train, val)]
    _, text = as_canonical(folder_of(tmp_path, *items), tmp_path / 'out')
    assert '1 of 1 validation images are training images, too' in text


def test_names_of_classes_are_one_line_of_composed_unicode(tmp_path: Path) -> None:
    names = ['traffic\n light', 'cafe\u0301', 'caf\u00e9', 'Cat', 'cat']
    _, text, splits = one(tmp_path, *(Shape(name, BOX) for name in names))
    assert splits['train'].classes == ('Cat', 'caf\u00e9', 'cat', 'traffic light')
    kind = 'class that differs from another by its case or a plural only (own.same_as?)'
    assert f'1 x {kind}: Cat and cat' in text


def test_rectangles_that_are_all_upright_are_said(tmp_path: Path) -> None:
    """F27: CVAT's rotation was lost, and the detector learned an angle of 0."""
    _, text, _ = one(tmp_path / 'a', Shape('cat', BOX), oriented=True)
    assert '2 x upright object: none is rotated' in text
    _, text, _ = one(tmp_path / 'b', rotated_shape('cat', BOX, 20), oriented=True)
    assert 'upright' not in text


def test_ignored_objects_and_their_classes_are_counted(tmp_path: Path) -> None:
    """Of COCO and VOC alike; a class of which nothing is trained or evaluated is named."""
    crowd = Shape('dog', (0, 0, 5, 5), crowd=True)
    difficult = Shape('fox', (3, 3, 9, 9), crowd=True)
    fox = Shape('fox', (5, 5, 9, 9))
    bird = Shape('bird', (9, 9, 5, 5))
    train = [Shape('cat', BOX), crowd, fox]
    items = [
        Labelled(image(tmp_path / f'images/{name}.png'), shapes)
        for name, shapes in dict(a=train, v=[bird, crowd, difficult]).items()
    ]
    folder = folder_of(tmp_path, items[:1], items[1:])
    _, text = as_canonical(folder, tmp_path / 'out')
    assert text.splitlines()[1:] == [
        '3 x object marked iscrowd, ignore or difficult (neither trained nor evaluated): '
        'a.png, v.png',
        '1 x class whose training objects are all ignored: dog',
        '1 x class without a training object: bird',
        '1 x class without a validation object: cat',
        '2 x class whose validation objects are all ignored: dog, fox',
    ]
