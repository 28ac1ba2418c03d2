"""Masks in colours, and the lists of classes that go with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.field import image, mask, write
from rope_dense.data.classes import distinct_colour, read_classes
from rope_dense.data.convert_data import convert_data
from rope_dense.data.mask_colours import convert_masks, read_colours
from rope_dense.data.mask_labels import read_mask

ROAD, SKY = (128, 64, 128), (70, 130, 180)


def colours(*rows: tuple[int, int, int]) -> np.ndarray:
    return np.array([[row] * 4 for row in rows], np.uint8)


LISTS = {
    'classes.txt': 'road #804080\nblue sky 70 130 180\n',
    'byte-order mark and blank lines (B7)': '\ufeffroad #804080\r\n\r\nblue sky,70,130,180\r\n',
    "CVAT's labelmap.txt": (
        '# label:color_rgb:parts:actions\nroad:128,64,128::\nblue sky:70,130,180::\n'
    ),
    'numbers': '0: road #804080\n1: blue sky #4682b4\n',
    'numbers and blanks': '0 road 128 64 128\n1 blue sky 70 130 180\n',
    'class_dict.csv of CamVid': 'name,r,g,b\nroad,128,64,128\nblue sky,70,130,180\n',
}


@pytest.mark.parametrize('form', LISTS)
def test_lists_of_classes_and_their_colours(tmp_path: Path, form: str) -> None:
    path = write(tmp_path / 'classes.txt', LISTS[form])
    assert read_classes(path) == (('road', 'blue sky'), [ROAD, SKY])


def test_names_that_look_like_colours_stay(tmp_path: Path) -> None:
    path = write(
        tmp_path / 'classes.txt', 'lane 7 8 900\nroad: left\n3 wheeler\n3D box\n7up\n'
    )
    names, palette = read_classes(path)
    assert names == ('lane 7 8 900', 'road: left', '3 wheeler', '3D box', '7up')
    assert palette == [distinct_colour(index) for index in range(5)]
    write(path, 'a\na\n')
    with pytest.raises(ValueError, match="classes 0 and 1 are both 'a'"):
        read_classes(path)


@pytest.mark.parametrize(
    'text, says',
    [
        ('# my classes\nbg\nroad', "'# my classes' would be class 0: remove the line"),
        (
            '1: road\n0: bg',
            'begin with the numbers 1, 0: list all classes in the order of',
        ),
        ('1 cat\n2 dog', 'begin with the numbers 1, 2: '),
        ('__ignore__\n_background_\nroad', "'__ignore__' would be class 0"),  # LabelMe
    ],
)
def test_lines_that_shift_the_numbers_are_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(ValueError, match=rf'classes\.txt: .*{says}'):
        read_classes(write(tmp_path / 'classes.txt', text))


def test_colours_become_numbers(tmp_path: Path) -> None:
    """Of any format; sizes are of photographs as they are shown; names end as names of masks."""
    exif = Image.Exif()
    exif[274] = 6
    image(tmp_path / 'images/a.jpg', (4, 2), exif=exif)  # shown as 2 x 4
    image(tmp_path / 'images/b.jpg', (2, 4))
    image(tmp_path / 'images/c.jpg', (2, 4))
    image(tmp_path / 'images/alone.jpg')
    mask(tmp_path / 'masks/a_gtFine_color.png', colours(ROAD, SKY)[:, :2])
    odd = colours(SKY, SKY)
    odd[1, 3] = (1, 2, 3)
    mask(tmp_path / 'masks/b.png', odd)
    Image.fromarray(colours(ROAD, SKY)).convert('RGBA').save(tmp_path / 'masks/c.tif')
    mask(tmp_path / 'masks/d.png', colours(ROAD, SKY))
    write(tmp_path / 'masks/._a.png', 'x')  # B10
    count, report = convert_masks(
        tmp_path / 'masks', tmp_path / 'out', [ROAD, SKY], tmp_path / 'images'
    )
    assert count == 4 and read_mask(tmp_path / 'out/c.png').stored.tolist() == [
        [0] * 4,
        [1] * 4,
    ]
    assert read_mask(tmp_path / 'out/b.png').stored.tolist() == [
        [1] * 4,
        [1, 1, 1, 255],
    ]
    assert report.lines() == [
        '1 x mask without an image of its name: d.png',
        '1 x image without a mask: alone.jpg',
        '1 x mask of another size than its image: a_gtFine_color.png',
        '1 x mask with colours of no class (now 255): b.png',
        '1 x 3.57% of the pixels have a colour of no class, most: #010203',
    ]


def test_transparent_pixels_have_no_colour(tmp_path: Path) -> None:
    pixels = np.dstack([np.full((4, 5, 3), ROAD), np.full((4, 5), 255)])
    pixels[0, 0, 3] = 0
    mask(tmp_path / 'masks/a.png', pixels.astype(np.uint8))
    _, report = convert_masks(tmp_path / 'masks', tmp_path / 'out', [ROAD], None)
    assert read_mask(tmp_path / 'out/a.png').stored[0, :2].tolist() == [255, 0]
    assert (
        '5.00% of the pixels have a colour of no class, most: trans'
        in report.lines()[1]
    )
    assert read_colours(tmp_path / 'masks') == [ROAD]


def test_classes_of_cvat_are_beside_its_masks(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    write(tmp_path / 'labelmap.txt', LISTS["CVAT's labelmap.txt"])
    mask(tmp_path / 'SegmentationClass/a.png', colours(SKY, ROAD))
    convert_data('colours', tmp_path / 'SegmentationClass', tmp_path / 'masks')
    assert f'{tmp_path / "labelmap.txt"}: the classes' in capsys.readouterr().out
    assert read_mask(tmp_path / 'masks/a.png').numbers == [0, 1]
    assert not (tmp_path / 'masks/classes.txt').exists()


REFUSED = {
    'half without a class': (
        ('a.png',),
        [SKY],
        r'masks: 50\.00% of the pixels have a colour of no class, most #804080: name',
    ),
    'the order of OpenCV': (
        ('a.png',),
        [ROAD, SKY[::-1]],
        r'50\.00% .*most #4682b4 \(a class is #b48246: were the masks saved as BGR',
    ),
    'two masks of one name': (('a.png', 'a.tif'), [ROAD], 'would both become a.png'),
    'a colour twice': (('a.png',), [ROAD, ROAD], 'two classes have the colour #804080'),
    'no such colour': (
        ('a.png',),
        [(1, 1, 1)],
        r'masks: 100\.00% of the pixels .*most #4682b4: name it .*#804080',
    ),
    'jpeg': (
        ('a.jpg',),
        [ROAD],
        r'no mask in it; looked for \.png, .*, there are 1 \.jpg',
    ),
    'many classes': (
        ('a.png',),
        [(i, j, 0) for i in range(16) for j in range(16)],
        '256 classes',
    ),
}


@pytest.mark.parametrize('case', REFUSED)
def test_colours_that_cannot_be_converted(tmp_path: Path, case: str) -> None:
    names, palette, message = REFUSED[case]
    for name in names:
        mask(tmp_path / 'masks' / name, colours(ROAD, SKY))
    with pytest.raises(ValueError, match=message):
        convert_masks(tmp_path / 'masks', tmp_path / 'out', palette, None)
    assert not (tmp_path / 'out').exists()


def test_numbers_are_no_colours(tmp_path: Path) -> None:
    """Pillow would cut numbers of 16 bits off at 255."""
    mask(tmp_path / 'masks/a.png', np.full((2, 2), 300, np.uint16))
    with pytest.raises(
        ValueError, match=r'a\.png has numbers of more than 8 bits, no colours'
    ):
        convert_masks(tmp_path / 'masks', tmp_path / 'out', [ROAD], None)
