"""Other formats as COCO json: one scene, written in each by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rope_dense.datasets.conversion import convert, polygon_area
from rope_dense.datasets.mask_colours import colours_in, convert_masks

# A box and a triangle on an image of 40 x 20 pixels (width x height), and one beside the image.
BOX, TRIANGLE = [4, 2, 10, 8], [20, 4, 30, 4, 30, 14]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / 'images'
    folder.mkdir()
    for name in ('scene.png', 'empty.png'):
        Image.new('RGB', (40, 20)).save(folder / name)
    return folder


def yolo(root: Path) -> Path:
    (root / 'labels').mkdir()
    (root / 'labels' / 'scene.txt').write_text(
        '0 0.225 0.3 0.25 0.4\n'
        '1 0.5 0.2 0.75 0.2 0.75 0.7\n'
        '0 1.0 0.5 0.1 0.2\n'
        '7 0.5 0.5 0.1 0.1\n'
        '0 0.5 0.5 0 0.1\n'
    )
    (root / 'labels' / 'gone.txt').write_text('0 0.5 0.5 0.1 0.1\n')
    (root / 'labels' / 'classes.txt').write_text('cat\ndog\n')
    return root / 'labels'


def labelme(root: Path) -> Path:
    def shape(label: str, form: str, points: list) -> dict:
        return dict(label=label, shape_type=form, points=points)

    content = dict(
        imagePath='..\\images\\scene.png',
        imageHeight=20,
        imageWidth=40,
        shapes=[
            shape('cat', 'rectangle', [[14, 10], [4, 2]]),
            shape('dog', 'polygon', [[20, 4], [30, 4], [30, 14]]),
            shape('cat', 'rectangle', [[38, 8], [42, 12]]),
            shape('dog', 'point', [[3, 3]]),
        ],
    )
    (root / 'labels').mkdir()
    (root / 'labels' / 'other.json').write_text(json.dumps(content))
    return root / 'labels'


def voc(root: Path) -> Path:
    def item(name: str, *corners: int) -> str:
        tags = zip(('xmin', 'ymin', 'xmax', 'ymax'), corners, strict=True)
        box = ''.join(f'<{tag}>{value}</{tag}>' for tag, value in tags)
        return f'<object><name>{name}</name><bndbox>{box}</bndbox></object>'

    (root / 'labels').mkdir()
    (root / 'labels' / 'scene.xml').write_text(
        '<annotation><filename>scene.jpg</filename><size><width>40</width><height>21</height>'
        f'</size>{item("cat", 5, 3, 14, 10)}{item("dog", 21, 5, 30, 14)}'
        f'{item("cat", 39, 9, 42, 12)}</annotation>'
    )
    return root / 'labels'


def cvat(root: Path) -> Path:
    file = root / 'labels.xml'
    file.write_text(
        '<annotations><meta><task><labels><label><name>cat</name></label><label><name>dog</name>'
        '</label></labels></task></meta><image id="0" name="sub/scene.png" width="40" height="20">'
        '<box label="cat" xtl="4" ytl="2" xbr="14" ybr="10"/>'
        '<polygon label="dog" points="20,4;30,4;30,14"/>'
        '<box label="cat" xtl="38" ytl="8" xbr="42" ybr="12"/><mask label="cat"/></image>'
        '</annotations>'
    )
    return file


@pytest.mark.parametrize(
    'write, odd, outlined',
    [
        (
            yolo,
            ['image without objects: empty.png', 'labels without an image (left out): gone.txt',
             "unknown class 'number 7'", 'box without area'],
            True,
        ),
        (labelme, ['shape of type point, 1 points (left out): other.json'], True),
        (voc, ['image of another size than its labels say: scene.png'], False),
        (cvat, ['shape of type mask (left out): sub/scene.png'], True),
    ],
)  # fmt: skip
def test_a_scene_of_each_format(
    tmp_path: Path, images: Path, write: object, odd: list[str], outlined: bool
) -> None:
    source = write(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()}
    content, report = convert(write.__name__, source, images, None)
    assert {path: path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()} == before
    (number,) = (i['id'] for i in content['images'] if i['file_name'] == 'scene.png')
    cat, dog, outside = (a for a in content['annotations'] if a['image_id'] == number)
    np.testing.assert_allclose(cat['bbox'], BOX)
    assert cat['area'] == pytest.approx(80) and cat['iscrowd'] == 0
    np.testing.assert_allclose(dog['bbox'], [20, 4, 10, 10])
    assert dog['area'] == pytest.approx(50 if outlined else 100)
    if outlined:
        np.testing.assert_allclose(dog['segmentation'], [TRIANGLE])
    assert outside['bbox'][0] == pytest.approx(38) and outside['bbox'][2] == pytest.approx(2)
    assert content['categories'] == [dict(id=1, name='cat'), dict(id=2, name='dog')]
    assert cat['category_id'] == 1 and dog['category_id'] == 2
    for expected in ('box outside of its image (clipped): scene.png', *odd):
        assert f'1 x {expected}' in str(report)


def test_coco_gets_what_it_lacks(tmp_path: Path, images: Path) -> None:
    file = tmp_path / 'old.json'
    content = dict(
        images=[dict(id=9, file_name='scene.png', height=20, width=40)],
        annotations=[dict(id=3, image_id=9, category_id=4, bbox=BOX)],
        categories=[dict(id=4, name='cat')],
    )
    file.write_text(json.dumps(content))
    new, report = convert('coco', file, images, None)
    assert new['annotations'] == [
        dict(id=1, image_id=1, category_id=1, bbox=BOX, area=80, iscrowd=0)
    ]
    assert str(report) == '1 x file without area and iscrowd (computed): old.json'


def test_what_is_no_such_format(tmp_path: Path, images: Path) -> None:
    (tmp_path / 'labels').mkdir()
    (tmp_path / 'labels' / 'scene.txt').write_text('0 0.5 a b c\n')
    with pytest.raises(ValueError, match=r'no classes\.txt and no yaml with names'):
        convert('yolo', tmp_path / 'labels', images, None)
    with pytest.raises(ValueError, match='cannot be read as yolo'):
        convert('yolo', tmp_path / 'labels', images, ['cat'])
    with pytest.raises(ValueError, match='no labels of an image'):
        convert('voc', tmp_path / 'labels', images, None)
    (tmp_path / 'labels' / 'far.xml').write_text('<annotation/>')
    with pytest.raises(ValueError, match=r'1 labels, such as far\.xml; .* with --images'):
        convert('voc', tmp_path / 'labels', images, None)
    with pytest.raises(ValueError, match='give it with --images'):
        convert('voc', tmp_path / 'labels', tmp_path / 'nowhere', None)


def test_area_by_the_shoelace_formula() -> None:
    assert polygon_area([0, 0, 4, 0, 4, 3]) == 6
    assert polygon_area([0, 0, 0, 2, 2, 2, 2, 0]) == 4


def test_colours_to_numbers(tmp_path: Path) -> None:
    red, blue, none = (255, 0, 0), (0, 0, 255), (9, 9, 9)
    pixels = np.array([[red, red, red], [blue, blue, none]], np.uint8)
    (tmp_path / 'masks').mkdir()
    (tmp_path / 'images').mkdir()
    Image.fromarray(pixels).save(tmp_path / 'masks' / 'a.png')
    Image.new('RGB', (4, 2)).save(tmp_path / 'images' / 'a.jpg')
    Image.new('RGB', (4, 2)).save(tmp_path / 'images' / 'b.jpg')
    assert colours_in(tmp_path / 'masks') == [red, blue, none]
    arguments = tmp_path / 'masks', tmp_path / 'out', [red, blue], tmp_path / 'images'
    with pytest.raises(ValueError, match=r'colour of any class; a\.png has #0000ff'):
        convert_masks(*arguments[:2], [(1, 2, 3)], None)
    assert not (tmp_path / 'out').exists()
    count, odd = convert_masks(*arguments)
    assert count == 1
    with Image.open(tmp_path / 'out' / 'a.png') as image:
        assert np.asarray(image).tolist() == [[0, 0, 0], [1, 1, 255]]
        assert np.asarray(image.convert('RGB'))[:, :2].tolist() == pixels[:, :2].tolist()
    assert 'mask with colours of no class (now 255): a.png' in str(odd)
    assert 'mask of another size than its image: a.png' in str(odd)
    assert 'image without a mask: b.jpg' in str(odd)
    with pytest.raises(FileExistsError, match='exists: give another folder'):
        convert_masks(*arguments)
