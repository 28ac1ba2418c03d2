"""Pascal VOC as its tools write it, and the line that is said where it cannot be read."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from helpers.field import SIZE, Reading, check_folder, image, reading, refusal, write
from rope_dense.data.labels import pairs, voc
from rope_dense.data.labels.folders import find_labels
from rope_dense.data.labels.inventory import Inventory

BOX = 'xmin ymin xmax ymax'
CAT = ('cat', (10, 5, 20, 10), 0)  # what `thing()` is: xmin 11 counts from 1


def tags(names: str, *values: object) -> str:
    return ''.join(
        f'<{name}>{value}</{name}>'
        for name, value in zip(names.split(), values, strict=True)
    )


def box(*values: object) -> str:
    return f'<bndbox>{tags(BOX, *values)}</bndbox>'


def rotated(*values: object) -> str:
    return f'<robndbox>{tags("cx cy w h angle", *values)}</robndbox>'


def thing(name: str = 'cat', place: str = box(11, 6, 30, 15), more: str = '') -> str:
    return f'<object><name>{name}</name><pose>Unspecified</pose>{more}{place}</object>'


def xml(*things: str, more: str = '', size: str | None = None) -> str:
    if size is None:
        size = f'<size>{tags("width height depth", SIZE[1], SIZE[0], 3)}</size>'
    return f'<annotation>{more}{size}<segmented>0</segmented>{"".join(things)}</annotation>'


def pair(
    root: Path, stem: str, text: str | bytes | None = None, suffix: str = '.jpg'
) -> None:
    """An image and its XML file in JPEGImages/ and Annotations/."""
    image(root / 'JPEGImages' / f'{stem}{suffix}')
    write(root / 'Annotations' / f'{stem}.xml', xml(thing()) if text is None else text)


def lists(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        write(root / 'ImageSets' / 'Main' / f'{name}.txt', text)


def one(root: Path, text: str | bytes, more: Iterable[str] = ()) -> Reading:
    """The reading of a training image with this XML file, beside a validation image with a cat."""
    pair(root, 'a', text)
    pair(root, 'v')
    lists(root, train='\n'.join(['a', *more]), val='v\n')
    return reading(root)


# Objects: the XML inside <object> or around it, what is read, and what is said.
OBJECTS = {
    'a box counts from 1': (xml(thing()), [CAT], ''),
    'a name with spaces, F10': (xml(thing(' cat ')), [CAT], ''),
    'a name over lines': (xml(thing('\n  cat\n')), [CAT], ''),
    'float corners': (xml(thing(place=box('11.0', '6.0', '3e1', ' 15 '))), [CAT], ''),
    'corners in the order of Roboflow': (
        xml(
            thing(
                place=f'<bndbox>{tags("xmin xmax ymin ymax", 11, 30, 6, 15)}</bndbox>'
            )
        ),
        [CAT],
        '',
    ),
    'swapped corners, F10': (
        xml(thing(place=box(30, 15, 11, 6))),
        [CAT],
        '1 x box with its cor',
    ),
    'swapped columns': (xml(thing(place=box(30, 6, 11, 15))), [CAT], 'a.xml, object 1'),
    'a tool that counts from 0': (
        xml(thing(place=box(0, 0, 20, 10))),
        [('cat', (0, 0, 20, 10), 0)],
        'partly outside of its image (clipped): a.xml, object 1',
    ),
    'one pixel': (xml(thing(place=box(7, 7, 7, 7))), [('cat', (6, 6, 1, 1), 0)], ''),
    'Roboflow polygon, F9': (
        xml(
            thing(
                place=f'<polygon>{tags("x1 y1 x2 y2 x3 y3", 11, 6, 31, 6, 11, 16)}</polygon>'
            )
        ),
        [CAT],
        '',
    ),
    'Roboflow polygon and box': (
        xml(
            thing(
                place=box(11, 6, 30, 15)
                + f'<polygon>{tags("x1 x2 x3 y1 y2 y3", 11, 31, 11, 6, 6, 16)}</polygon>'
            )
        ),
        [CAT],
        '',
    ),
    'LabelMe polygon counts from 0': (
        xml(
            thing(
                more='<deleted>0</deleted>',
                place='<polygon>'
                + ''.join(
                    f'<pt>{tags("x y", *p)}</pt>' for p in [(10, 5), (30, 5), (30, 15)]
                )
                + '</polygon>',
            ),
            thing(more='<deleted>1</deleted>', place='<polygon/>'),
        ),
        [CAT],
        'empty or deleted <object>: a.xml, object 2',
    ),
    'polygon of two corners beside a box': (
        xml(
            thing(
                place=box(11, 6, 30, 15) + f'<polygon>{tags("x1 y1", 1, 2)}</polygon>'
            )
        ),
        [CAT],
        '',
    ),
    'corners of a box of four': (
        xml(
            thing(
                place=f'<bndbox>{tags("x0 y0 x1 y1 x2 y2 x3 y3", 11, 6, 31, 6, 31, 16, 11, 16)}'
                '</bndbox>'
            )
        ),
        [CAT],
        '',
    ),
    'roLabelImg upright, F9': (
        xml(thing(place=rotated(20, 10, 20, 10, 0.0))),
        [CAT],
        '',
    ),
    'roLabelImg by 90 degrees': (
        xml(thing(place=rotated(20, 10, 10, 20, 1.570796))),
        [CAT],
        '',
    ),
    'parts, HollywoodHeads': (
        xml(
            thing(more=f'<part><name>head</name>{box(1, 1, 3, 3)}</part>'),
            '<object></object>',
        ),
        [CAT],
        'empty or deleted <object>: a.xml, object 2',
    ),
    'no box': (
        xml(thing(), thing(place='')),
        [CAT],
        '1 x object without bndbox, polygon or robndbox (left out): a.xml, object 2',
    ),
    'no object': (xml(), [], ''),
    'an empty annotation': ('<annotation/>', [], ''),
    'ampersand': (xml(thing('cat &amp; dog')), [('cat & dog', *CAT[1:])], ''),
    'number as a name': (xml(thing('1.10')), [('1.10', *CAT[1:])], ''),
    'gb2312 of LabelImg, F9': (
        b'<?xml version="1.0" encoding="gb2312"?>' + xml(thing('猫')).encode('gb2312'),
        [('猫', *CAT[1:])],
        '',
    ),
    'byte-order mark, B7': (b'\xef\xbb\xbf' + xml(thing()).encode(), [CAT], ''),
    'UTF-16': (
        ('<?xml version="1.0" encoding="utf-16"?>' + xml(thing())).encode('utf-16'),
        [CAT],
        '',
    ),
    'no size': (xml(thing(), size=''), [CAT], ''),
    'size 0': (
        xml(thing(), size=f'<size>{tags("width height", 0, 0)}</size>'),
        [CAT],
        '',
    ),
    'size None, F9': (
        xml(thing(), size=f'<size>{tags("width height", "None", "None")}</size>'),
        [CAT],
        '',
    ),
    'size without numbers': (xml(thing(), size='<size/>'), [CAT], ''),
    'filename of another folder': (
        xml(thing(), more=r'<folder>x</folder><filename>C:\data\b.png</filename>'),
        [CAT],
        '',
    ),
}


@pytest.mark.parametrize('text, objects, line', OBJECTS.values(), ids=OBJECTS)
def test_an_object(text: str | bytes, objects: list, line: str, tmp_path: Path) -> None:
    found = one(tmp_path / 'data', text)
    assert found.objects['train'] == {'a.jpg': objects}
    more = [x for x in found.text.splitlines()[1:] if ' x class without' not in x]
    assert line in found.text and (line or not more)


def test_polygons_are_outlines_and_may_be_several(tmp_path: Path) -> None:
    first = f'<polygon>{tags("x1 y1 x2 y2 x3 y3", 11, 6, 21, 6, 11, 11)}</polygon>'
    second = f'<polygon>{tags("x1 y1 x2 y2 x3 y3", 31, 6, 31, 16, 26, 16)}</polygon>'
    found = one(tmp_path / 'data', xml(thing(place=first + second)))
    (item,) = found.content['train']['annotations']
    assert item['segmentation'] == [[10, 5, 20, 5, 10, 10], [30, 5, 30, 15, 25, 15]]
    assert item['bbox'] == [10, 5, 20, 10]


def test_rotated_boxes_keep_their_rotation(tmp_path: Path) -> None:
    place = rotated(20, 15, 20, 4, 0.785398)
    pair(tmp_path / 'data', 'a', xml(thing(place=place)))
    pair(tmp_path / 'data', 'v')
    lists(tmp_path / 'data', train='a', val='v')
    (item,) = reading(tmp_path / 'data', oriented=True).content['train']['annotations']
    assert item['area'] == pytest.approx(80, rel=1e-3)
    corners = sorted(zip(*[iter(item['segmentation'][0])] * 2, strict=True))
    assert corners[0] == pytest.approx(
        (11.515, 9.343), abs=0.01
    )  # its left end is above


@pytest.mark.parametrize(
    'value, expected', [('1', 1), (' 1 ', 1), ('true', 1), ('0', 0), ('', 0)]
)
@pytest.mark.parametrize('tag', ['difficult', 'Difficult'])  # labelImg 1.3
def test_difficult_objects_are_neither_trained_nor_evaluated(
    tag: str, value: str, expected: int, tmp_path: Path
) -> None:
    text = xml(thing(more=f'<{tag}>{value}</{tag}>'), thing('dog'))  # B8
    for stem in 'av':
        pair(tmp_path / 'data', stem, text)
    lists(tmp_path / 'data', train='a', val='v')
    found = reading(tmp_path / 'data').objects
    assert [item[2] for item in found['train']['a.jpg']] == [expected, 0]
    assert [item[2] for item in found['val']['v.jpg']] == [expected, 0]


@pytest.mark.parametrize(
    'text, line',
    [
        (
            xml(thing(), thing(place=box('', 6, 30, 15))),
            "a.xml, object 2: <xmin> is ''",
        ),
        (
            xml(thing(place=box('x', 6, 30, 15))),
            "a.xml, object 1: <xmin> is 'x', which is no num",
        ),
        (xml(thing(place=box('12,5', 6, 30, 15))), "a.xml, object 1: <xmin> is '12,5'"),
        (
            xml(thing(place=box('nan', 6, 30, 15))),
            "object 1: <xmin> is 'nan', which is not finite",
        ),
        (xml(thing(place='<bndbox/>')), 'a.xml, object 1: <xmin> is None'),
        (xml(thing('  ')), 'a.xml, object 1: its <name> is empty or missing'),
        (
            xml(f'<object>{box(1, 1, 5, 5)}</object>'),
            'object 1: its <name> is empty or missing',
        ),
        (
            xml(
                thing(
                    place=f'<polygon>{tags("x1 y1 x2 x3 y3", 1, 1, 5, 5, 5)}</polygon>'
                )
            ),
            'a.xml, object 1: a corner is None',
        ),
        (
            xml(thing(place=rotated(20, 10, 9, 9, 45))),
            'a.xml, object 1: <angle> is 45, more than a circle: write it in radians',
        ),
        (
            xml(f'<objects>{thing()}</objects>'),
            'Annotations/a.xml: <objects> is not in an <obj',
        ),
        (
            xml(thing().replace('object>', 'Object>')),
            'a.xml: <Object> is not in an <object>',
        ),
        (
            xml(thing().replace('object>', 'item>')),
            'a.xml: <bndbox> is not in an <object>',
        ),
        ('', 'Annotations/a.xml is no XML, cut off'),
        (xml(thing())[:-20], 'Annotations/a.xml is no XML, cut off'),
        (
            xml(size=f'<size>{tags("width height", 80, 60)}</size>'),
            'a.jpg: 80 x 60 by its labels, the image has 40 x 30',
        ),
    ],
)
def test_a_line_names_the_file_and_the_object(
    text: str, line: str, tmp_path: Path
) -> None:
    pair(tmp_path / 'data', 'a', text)  # F9, B9
    for stem in 'bv':
        pair(tmp_path / 'data', stem)
    lists(tmp_path / 'data', train='a\nb', val='v')
    assert line in refusal(tmp_path / 'data')


# Folders: what is built, the images of both splits, and what is said.
def devkit(root: Path) -> None:
    home = root / 'VOCdevkit' / 'VOC2012'
    for stem in '012345':
        pair(home, stem)
    texts = dict(train='0\n1\n', val='2\n', trainval='0\n1\n2\n', test='4\n5\n')
    lists(home, **texts, cat_train='3 1\n', cat_test='0 -1\n')


def train_and_val(root: Path) -> None:
    for stem in '012':
        pair(root, stem)
    lists(root, train='0\n', val='1\n', trainval='0\n1\n')


def unlabelled_test_images(root: Path) -> None:
    """VOC2012 lists its test images, and does not publish their labels."""
    train_and_val(root)
    for number in range(6):
        image(root / 'JPEGImages' / f't{number}.jpg')
    lists(root, test='\n'.join(f't{number}' for number in range(6)))


def listed_as(root: Path, *lines: str) -> None:
    for stem in ('a', 'photo 1', 'photo 2', 'b.2', 'v'):
        pair(root, stem)
    lists(root, train='\r\n'.join(lines), val='\ufeffv')


def names_with_spaces(root: Path) -> None:
    listed_as(root, 'a', 'photo 1', 'photo 2', '', 'b.2')


def names_with_suffixes(root: Path) -> None:
    listed_as(root, 'a.jpg', ' photo 1.jpg ', 'photo 2', 'b.2.jpg')


def paths(root: Path) -> None:
    listed_as(
        root,
        './JPEGImages/a.jpg',
        r'C:\VOC\JPEGImages\photo 1.jpg',
        '/d/photo 2',
        'b.2',
    )


def numbers_of_a_class(root: Path) -> None:
    listed_as(root, 'a  1', 'photo 1 -1', 'photo 2  0', 'b.2 1')


def image_and_xml(root: Path) -> None:
    """PaddleDetection's lists, beside the two folders."""
    listed_as(root)
    (root / 'ImageSets' / 'Main' / 'train.txt').unlink()
    (root / 'ImageSets' / 'Main' / 'val.txt').unlink()
    names = ('a', 'photo 1', 'photo 2', 'b.2')
    lines = [f'JPEGImages/{name}.jpg Annotations/{name}.xml' for name in names]
    write(root / 'train.txt', '\n'.join(lines))
    write(root / 'val.txt', 'JPEGImages/v.jpg Annotations/v.xml\n')
    write(root / 'label_list.txt', 'cat\n')


def cvat_export(root: Path) -> None:
    """CVAT's "PASCAL VOC 1.1": names have folders, lists the names of subsets."""
    for stem in ('sub/a', 'sub/b', 'v'):
        pair(root, stem)
    lists(root, Train='sub/a\nsub/b\n', Validation='v\n')
    write(
        root / 'labelmap.txt',
        '# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:::\n',
    )


def roboflow(root: Path) -> None:
    for split in ('train', 'valid', 'test'):
        image(root / split / f'{split}_jpg.rf.1.jpg')
        text = xml(
            thing(), more=f'<folder></folder><filename>{split}_jpg.rf.1.jpg</filename>'
        )
        write(root / split / f'{split}_jpg.rf.1.xml', text)
    write(root / 'README.roboflow.txt', 'cats\n')


def splits_around(root: Path) -> None:
    for split in ('Train', 'val'):
        pair(root / split, f'{split}1')


def splits_around_images(root: Path) -> None:
    for split in ('train', 'val'):
        image(root / split / 'images' / f'{split}.png')
        write(root / split / 'annotations' / f'{split}.xml', xml(thing()))


def splits_within(root: Path) -> None:
    for split in ('train', 'val'):
        pair(root, f'{split}/a')


def splits_of_labels(root: Path) -> None:
    for split in ('train', 'val'):
        image(root / 'images' / f'{split}.jpg')
        write(root / 'labels' / split / f'{split}.xml', xml(thing()))


def splits_of_images(root: Path) -> None:
    for split in ('train', 'val'):
        image(root / 'images' / split / f'{split}.jpg')
        write(root / 'annotations' / f'{split}.xml', xml(thing()))


def a_folder_of_another_name(root: Path) -> None:
    """As the kangaroo data set: images/ and annots/."""
    for stem in '01':
        image(root / 'images' / f'{stem}.jpg')
        write(root / 'annots' / f'{stem}.xml', xml(thing()))
    write(root / 'train.txt', '0')
    write(root / 'val.txt', '1')


def beside_in_images(root: Path) -> None:
    for split in ('train', 'val'):
        image(root / 'images' / split / f'{split}.jpg')
        write(root / 'images' / split / f'{split}.xml', xml(thing()))


def below_in_a_folder(root: Path) -> None:
    """A zip that was unpacked into a folder of its own."""
    roboflow(root / 'cats.v1i.voc')
    write(root / '__MACOSX' / 'cats.v1i.voc' / 'train' / '._a.xml', b'\x00')


FOLDERS: dict[Callable[[Path], None], tuple[str, str, str]] = {
    devkit: (
        '0.jpg, 1.jpg, 2.jpg',
        '4.jpg, 5.jpg',
        'by ImageSets (trainval.txt, test.txt)',
    ),
    train_and_val: ('0.jpg', '1.jpg', 'by ImageSets (train.txt, val.txt)'),
    unlabelled_test_images: ('0.jpg', '1.jpg', 'by ImageSets (train.txt, val.txt)'),
    names_with_spaces: (
        'a.jpg, b.2.jpg, photo 1.jpg, photo 2.jpg',
        'v.jpg',
        '4 training',
    ),  # B19
    names_with_suffixes: (
        'a.jpg, b.2.jpg, photo 1.jpg, photo 2.jpg',
        'v.jpg',
        '4 training',
    ),
    paths: ('a.jpg, b.2.jpg, photo 1.jpg, photo 2.jpg', 'v.jpg', '4 training images'),
    numbers_of_a_class: (
        'a.jpg, b.2.jpg, photo 1.jpg, photo 2.jpg',
        'v.jpg',
        '4 training images',
    ),
    image_and_xml: (
        'a.jpg, b.2.jpg, photo 1.jpg, photo 2.jpg',
        'v.jpg',
        'ImageSets (train.txt, val',
    ),
    cvat_export: (
        'sub/a.jpg, sub/b.jpg',
        'v.jpg',
        'by ImageSets (Train.txt, Validation.txt)',
    ),
    roboflow: (
        'train_jpg.rf.1.jpg',
        'valid_jpg.rf.1.jpg',
        'Pascal VOC, 1 training images',
    ),
    below_in_a_folder: ('train_jpg.rf.1.jpg', 'valid_jpg.rf.1.jpg', 'by folder'),
    splits_around: ('Train1.jpg', 'val1.jpg', 'by folder'),
    splits_around_images: ('train.png', 'val.png', 'by folder'),
    splits_within: ('a.jpg', 'a.jpg', 'by folder'),
    splits_of_labels: ('train.jpg', 'val.jpg', 'by folder'),
    splits_of_images: ('train.jpg', 'val.jpg', 'by folder'),
    beside_in_images: ('train.jpg', 'val.jpg', 'by folder'),
    a_folder_of_another_name: ('0.jpg', '1.jpg', 'by ImageSets (train.txt, val.txt)'),
}


@pytest.mark.parametrize('build', FOLDERS, ids=lambda build: build.__name__)
def test_a_folder(build: Callable[[Path], None], tmp_path: Path) -> None:
    found = check_folder(build, tmp_path / 'data', FOLDERS[build], [CAT])
    assert found.classes == ('cat',)
    for line in found.text.splitlines()[1:]:
        assert '1 images in test/ are neither trained' in line


def flat(root: Path) -> None:
    """As labelImg saves: an XML file beside each image."""
    for number in range(20):
        image(root / f'{number}.jpg')
        write(root / f'{number}.xml', xml(thing()))


def in_folders_of_cameras(root: Path) -> None:
    for number in range(20):
        image(root / f'camera{number % 2}' / f'{number}.jpg')
        write(root / f'camera{number % 2}' / f'{number}.xml', xml(thing()))


def two_folders(root: Path, labels: str, images: str, suffix: str = '.xml') -> None:
    for number in range(20):
        image(root / images / f'{number}.jpg')
        write(root / labels / f'{number}{suffix}', xml(thing()))


def cvat_without_subsets(root: Path) -> None:
    two_folders(root, 'Annotations', 'JPEGImages')
    lists(root, default=''.join(f'{number}\n' for number in range(20)))


def only_a_training_list(root: Path) -> None:
    two_folders(root, 'Annotations', 'JPEGImages')
    pair(root, 'not listed')
    lists(root, train=''.join(f'{number}\n' for number in range(20)))


def only_a_training_folder(root: Path) -> None:
    two_folders(root, 'train/Annotations', 'train/images')


def lists_of_classes_only(root: Path) -> None:
    two_folders(root, 'Annotations', 'JPEGImages')
    lists(root, cat_train='0 1\n', cat_val='1 1\n')


def names_of_images_in_filename(root: Path) -> None:
    for number in range(20):
        image(root / 'JPEGImages' / f'{number}.jpg')
        text = xml(thing(), more=f'<filename>{number}.jpg</filename>')
        write(root / 'Annotations' / f'label_{number}.xml', text)


@pytest.mark.parametrize(
    'build',
    [
        flat,
        in_folders_of_cameras,
        partial(two_folders, labels='xmls', images='images'),
        partial(two_folders, labels='annotations', images='images'),
        partial(two_folders, labels='Annotations', images='.'),
        partial(two_folders, labels='Annotations', images='JPEGImages', suffix='.XML'),
        partial(
            two_folders, labels='Annotations', images='JPEGImages', suffix='.jpg.xml'
        ),
        partial(
            two_folders, labels='annotations/xmls', images='images'
        ),  # Oxford's pets
        cvat_without_subsets,
        only_a_training_list,
        only_a_training_folder,
        lists_of_classes_only,
        names_of_images_in_filename,
    ],
)
def test_a_fifth_is_for_validation_where_nothing_says_it(
    build: Callable[[Path], None], tmp_path: Path
) -> None:
    build(tmp_path / 'data')
    found = reading(tmp_path / 'data')
    stems = {Path(name).stem for names in found.objects.values() for name in names}
    assert stems == {str(number) for number in range(20)}
    assert 2 < len(found.objects['val']) < 6
    assert all(o == [CAT] for names in found.objects.values() for o in names.values())
    assert 'a hash of the name' in found.text and len(found.text.splitlines()) == 1


def test_what_is_not_there_is_counted_and_named(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    for stem in ('a', 'v', 'not listed'):
        pair(root, stem)
    image(root / 'JPEGImages' / 'no xml.jpg')
    write(root / 'Annotations' / 'no image.xml', xml(thing(), thing()))
    write(root / 'Annotations' / 'of none.xml', xml(thing()))
    write(root / 'Annotations' / 'empty.xml', xml())
    write(root / 'Annotations' / 'project.xml', '<project/>')
    lists(root, train='a\nno xml\nno image\nnothing\nempty\nproject\n', val='v')
    found = reading(root)
    assert found.objects == {'train': {'a.jpg': [CAT]}, 'val': {'v.jpg': [CAT]}}
    assert (
        '2 x object of an image that is not there (left out): no image.xml'
        in found.text
    )
    assert (
        '1 x image without an XML file (not labelled, so left out): no xml.jpg'
        in found.text
    )
    assert '1 x listed image that is not there: nothing' in found.text
    assert (
        '1 x XML file of no image or of one that has another: empty.xml' in found.text
    )
    assert 'no annotation of Pascal VOC (left out): project.xml' in found.text
    assert 'of none' not in found.text


def test_each_file_is_of_one_split_and_counted_once(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    two_folders(root, 'Annotations', 'JPEGImages')
    for number in range(5):
        write(root / 'Annotations' / f'gone {number}.xml', xml(thing()))
        image(root / 'JPEGImages' / f'new {number}.jpg')
    text = reading(root).text
    assert '5 x object of an image that is not there (left out)' in text
    assert '5 x image without an XML file' in text


def test_names_in_another_case_or_unicode_form(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    for split, name, stem in (
        ('train', 'IMG_1', 'img_1'),
        ('val', 'caf\u00e9', 'cafe\u0301'),
    ):
        image(root / split / f'{name}.JPG')
        write(root / split / f'{stem}.xml', xml(thing()))
    found = reading(root).objects
    assert found == {'train': {'IMG_1.JPG': [CAT]}, 'val': {'caf\u00e9.JPG': [CAT]}}


def test_an_xml_file_is_of_no_image_of_another_suffix(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    for stem in 'abv':
        pair(root, stem)
    (root / 'Annotations' / 'a.xml').rename(root / 'Annotations' / 'a.png.xml')
    image(root / 'JPEGImages' / 'a.png')
    lists(root, train='a\nb', val='v')
    found = reading(root)
    assert found.objects['train'] == {'b.jpg': [CAT]}
    assert 'two images of one name (the first is taken): a.jpg and a.png' in found.text


def test_two_files_of_one_image_are_one_image(tmp_path: Path) -> None:
    root = tmp_path / 'data'  # B8
    for stem in 'abv':
        pair(root, stem, xml(thing(), more='<filename>a.jpg</filename>'))
    write(root / 'Annotations' / 'Old' / 'a.xml', xml(thing('dog')))
    write(
        root / 'Annotations' / 'a copy.xml',
        xml(thing('dog'), more='<filename>a</filename>'),
    )
    lists(root, train='a\nb\na copy\nOld/a', val='v')
    found = reading(root)
    assert found.objects['train'] == {'a.jpg': [CAT], 'b.jpg': [CAT]}
    assert (
        'of an image that has another label file (left out): a copy.xml' in found.text
    )


def test_the_same_name_in_another_folder_is_another_image(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    for stem in ('one/a', 'two/b', 'two/v'):
        pair(root, stem)
    text = xml(thing('dog'), more='<folder>one</folder><filename>b.jpg</filename>')
    write(root / 'Annotations' / 'one' / 'b.xml', text)  # its image was removed
    (root / 'Annotations' / 'two' / 'b.xml').unlink()
    lists(root, train='one/a\none/b\ntwo/b', val='two/v')
    found = reading(root)
    assert found.objects['train'] == {'one/a.jpg': [CAT]}
    assert '1 x object of an image that is not there (left out): b.xml' in found.text


def test_the_folder_of_an_annotation_tells_equal_names(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    for folder in ('one', 'two'):
        image(root / 'JPEGImages' / folder / '1.jpg')
        more = f'<folder>{folder}</folder><filename>1.jpg</filename>'
        write(root / 'Annotations' / f'{folder}_1.xml', xml(thing(folder), more=more))
    lists(root, train='one/1', val='two/1')
    found = reading(root).objects
    assert found['train'] == {'one/1.jpg': [('one', *CAT[1:])]}
    assert found['val'] == {'two/1.jpg': [('two', *CAT[1:])]}


def test_hidden_and_other_files_are_no_labels(tmp_path: Path) -> None:
    root = tmp_path / 'data'  # B10
    train_and_val(root)
    for folder, suffix in (('Annotations', '.xml'), ('JPEGImages', '.jpg')):
        write(root / folder / f'._0{suffix}', b'\x00\x05\x16\x07')
    write(root / 'Annotations' / 'Thumbs.db', b'\x00')
    write(root / 'Annotations' / 'settings.xml', '<project/>')
    assert reading(root).objects['train'] == {'0.jpg': [CAT]}
    write(root / 'Annotations' / '0.xml', '<project/>')
    write(root / 'Annotations' / '1.xml', xml(thing()))
    lists(root, train='0\n2\n')
    found = reading(root)
    assert found.objects['train'] == {'2.jpg': [CAT]}
    assert (
        'XML file that is no annotation of Pascal VOC (left out): 0.xml' in found.text
    )


def two_devkits(root: Path) -> None:
    for year in (2007, 2012):
        train_and_val(root / 'VOCdevkit' / f'VOC{year}')


def lists_of_other_names(root: Path) -> None:
    train_and_val(root)
    lists(root, train='x\ny\n', val='z\n', trainval='x\n')


def only_a_list_for_validation(root: Path) -> None:
    pair(root, '1')
    lists(root, val='1\n')


def images_elsewhere(root: Path) -> None:
    train_and_val(root)
    (root / 'JPEGImages').rename(root / 'pictures of cats')
    for path in (root / 'pictures of cats').iterdir():
        path.rename(path.with_name(f'cat{path.name}'))


def only_broken_files(root: Path) -> None:
    for number in range(7):
        pair(root, str(number), '')


def two_folders_below(root: Path) -> None:
    for name in ('cats', 'dogs'):
        two_folders(root / name, 'Annotations', 'JPEGImages')


def nothing_for_training(root: Path) -> None:
    pair(root / 'valid', 'a')


def validation_without_labels(root: Path) -> None:
    two_folders(root / 'train', 'Annotations', 'JPEGImages')
    image(root / 'valid' / 'JPEGImages' / '1.jpg')


@pytest.mark.parametrize(
    'build, line',
    [
        (
            two_devkits,
            r'has several VOC data sets: set own\.data_root to one of .*VOC2007, .*2012',
        ),
        (
            lists_of_other_names,
            r'train\.txt.*, but no list of training images \(train\.txt\) with',
        ),
        (
            only_a_list_for_validation,
            r'has ImageSets/Main/val\.txt, but no list of training ima',
        ),
        (
            images_elsewhere,
            r'2 x object of an image that is not there \(left out\): 0\.xml',
        ),
        (only_broken_files, r'Annotations/0\.xml is no XML, cut off'),
        (
            two_folders_below,
            r'has several VOC data sets: set own\.data_root to one of .*cats, .*dog',
        ),
        (
            nothing_for_training,
            'valid/Annotations has labels for validation, and no train/ beside',
        ),
        (
            validation_without_labels,
            r'data/valid has images, but no labels as .*/train/Annotations',
        ),
    ],
)
def test_the_line_of_a_folder(
    build: Callable[[Path], None], line: str, tmp_path: Path
) -> None:
    build(tmp_path / 'data')
    with pytest.raises(ValueError, match=line):
        reading(tmp_path / 'data')


def test_a_folder_is_recognised_by_a_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, read = tmp_path / 'data', []
    flat(root)
    original = voc.read_xml
    monkeypatch.setattr(
        voc, 'read_xml', lambda path: read.append(path) or original(path)
    )
    folder = find_labels(Inventory(root))
    assert len(set(read)) <= pairs.LOOKED_AT
    assert len(folder.splits['train'].files.pairs) == 16


def test_labels_of_another_folder_are_named(tmp_path: Path) -> None:
    for name in 'abcdefgh':
        image(tmp_path / 'data/JPEGImages/camB' / f'{name}.jpg')
        write(tmp_path / 'data/Annotations/camA' / f'{name}.xml', xml(thing()))
    line = '8 x XML file in another folder than its image (taken by its name)'
    assert line in reading(tmp_path / 'data').text


def test_lists_name_images_by_most_of_their_folders(tmp_path: Path) -> None:
    root = tmp_path / 'data'
    for name in 'abcd':
        image(root / 'JPEGImages/camB' / f'{name}.jpg')
        write(root / 'Annotations/camB' / f'{name}.xml', xml(thing()))
    for folder, expected in (
        ('camB', '1 x listed image that is not there: camA/d'),
        ('camA', '4 x image in another folder than its name says (taken by its name)'),
    ):
        names = [f'{folder}/{name}' for name in 'abc']
        lists = dict(train='\n'.join(['camA/d', *names]), val=f'{folder}/d')
        for split, text in lists.items():
            write(root / 'ImageSets/Main' / f'{split}.txt', text)
        found = reading(root)
        assert expected in found.text
        is_right = folder == 'camB'
        assert ('camB/d.jpg' in found.objects['train']) is not is_right
