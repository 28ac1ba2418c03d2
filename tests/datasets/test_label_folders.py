"""Data sets as annotation tools export them: recognised, split, converted, and read again."""

import json
from collections.abc import Callable
from pathlib import Path

import mmcv
import numpy as np
import pytest
import torch
from PIL import Image

from rope_dense.datasets.conversion import convert, covered_area, crosses_itself
from rope_dense.datasets.label_folders import LabelFolder, find_labels
from rope_dense.own import common as own_config
from rope_dense.own.common import detection

WIDTH, HEIGHT = 64, 48
BOX = (8, 6, 24, 12)  # left, top, width, height


def picture(path: Path, orientation: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    exif = Image.Exif()
    exif[274] = orientation
    Image.new('RGB', (WIDTH, HEIGHT)).save(path, exif=exif)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def yolo_line(label: int = 0) -> str:
    left, top, width, height = BOX
    centre = (left + width / 2) / WIDTH, (top + height / 2) / HEIGHT
    return f'{label} {centre[0]} {centre[1]} {width / WIDTH} {height / HEIGHT}\n'


def voc_xml(name: str, label: str = 'cat') -> str:
    left, top, width, height = BOX
    corners = dict(xmin=left + 1, ymin=top + 1, xmax=left + width, ymax=top + height)
    box = ''.join(f'<{key}>{value}</{key}>' for key, value in corners.items())
    item = f'<object><name>{label}</name><bndbox>{box}</bndbox></object>'
    size = f'<size><width>{WIDTH}</width><height>{HEIGHT}</height></size>'
    return f'<annotation><filename>{name}</filename>{size}{item}</annotation>'


def labelme_json(name: str, **more: object) -> str:
    left, top, width, height = BOX
    points = [[left, top], [left + width, top + height]]
    shape = dict(label='cat', shape_type='rectangle', points=points, **more)
    return json.dumps(dict(imagePath=name, imageHeight=HEIGHT, imageWidth=WIDTH, shapes=[shape]))


def cvat_xml(names: dict[str, str]) -> str:
    left, top, width, height = BOX
    box = f'xtl="{left}" ytl="{top}" xbr="{left + width}" ybr="{top + height}"'
    images = ''.join(
        f'<image name="{name}" {more} width="{WIDTH}" height="{HEIGHT}"><box label="cat" {box}/>'
        '</image>'
        for name, more in names.items()
    )
    labels = '<meta><task><labels><label><name>cat</name></label></labels></task></meta>'
    return f'<annotations>{labels}{images}</annotations>'


def yolo(root: Path) -> None:
    """As ultralytics has it, with an image that has no labels."""
    for split, number in (('train', 3), ('val', 1)):
        for index in range(number):
            picture(root / 'images' / split / f'{split}{index}.jpg')
            if index < 2:
                write(root / 'labels' / split / f'{split}{index}.txt', yolo_line(index % 2))
    write(root / 'data.yaml', 'train: images/train\nval: images/val\nnames: {0: cat, 1: dog}\n')


def yolo_roboflow(root: Path) -> None:
    for split in ('train', 'valid'):
        picture(root / split / 'images' / 'a.jpg')
        write(root / split / 'labels' / 'a.txt', yolo_line())
    write(root / 'data.yaml', 'train: ../train/images\nval: ../valid/images\nnames: [cat]\n')


def yolo_folders(root: Path) -> None:
    for split in ('train', 'val'):
        picture(root / 'images' / split / 'a.jpg')
        write(root / 'labels' / split / 'a.txt', yolo_line())
    write(root / 'classes.txt', 'cat\n')


def voc(root: Path) -> None:
    home = root / 'VOCdevkit' / 'VOC2012'
    for index in range(6):
        picture(home / 'JPEGImages' / f'{index}.jpg')
        write(
            home / 'Annotations' / f'{index}.xml',
            voc_xml(f'{index}.jpg', ('cat', 'dog')[index % 2]),
        )
    lists = dict(
        train='0\n1\n', val='2\n', trainval='0\n1\n2\n', test='4 1\n5 -1\n', cat_test='0\n'
    )
    for name, text in lists.items():
        write(home / 'ImageSets' / 'Main' / f'{name}.txt', text)


def voc_roboflow(root: Path) -> None:
    for split in ('train', 'valid', 'test'):
        picture(root / split / 'a.jpg')
        write(root / split / 'a.xml', voc_xml('a.jpg'))


def labelme(root: Path) -> None:
    for split in ('train', 'val'):
        picture(root / split / 'a.jpg')
        write(root / split / 'a.json', labelme_json('a.jpg'))


def labelme_together(root: Path) -> None:
    for index in range(20):
        picture(root / f'{index}.jpg')
        write(root / f'{index}.json', labelme_json(f'{index}.jpg'))
    picture(root / 'not labelled.jpg')


def cvat(root: Path) -> None:
    names = {f'{index}.jpg': 'subset="Train"' for index in range(2)} | {'2.jpg': 'subset="val"'}
    for name in names:
        picture(root / 'images' / name)
    write(root / 'annotations.xml', cvat_xml(names))


Write = Callable[[Path], None]


@pytest.mark.parametrize(
    'build, numbers, objects, said',
    [
        (yolo, (3, 1), 2, 'YOLO, 3 training images and 1 validation images, by data.yaml'),
        (yolo_roboflow, (1, 1), 1, 'YOLO, 1 training'),
        (yolo_folders, (1, 1), 1, 'by folder'),
        (voc, (3, 2), 3, 'Pascal VOC, 3 training images and 2 validation images, by ImageSets (tr'),
        (voc_roboflow, (1, 1), 1, 'Pascal VOC, 1 training images'),
        (labelme, (1, 1), 1, 'LabelMe, 1 training'),
        (labelme_together, (16, 4), 16, '16 training images and 4 validation images, by chance'),
        (cvat, (2, 1), 2, 'CVAT, 2 training images and 1 validation images, by subset'),
    ],
)  # fmt: skip
def test_a_folder_as_it_was_exported(
    build: Write,
    numbers: tuple[int, int],
    objects: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = tmp_path / 'data'
    build(root)
    before = {path: path.read_bytes() for path in root.rglob('*') if path.is_file()}
    monkeypatch.chdir(tmp_path)
    cfg = detection(dict(data_root=str(root), weights=None))
    assert said in cfg['own_data']
    assert {path: path.read_bytes() for path in root.rglob('*') if path.is_file()} == before
    for name, number in zip(('train', 'val'), numbers, strict=True):
        dataset = cfg[f'{name}_dataloader']['dataset']
        content = json.loads(Path(dataset['ann_file']).read_text())
        assert len(content['images']) == number
        assert all(a['bbox'] == pytest.approx(BOX) for a in content['annotations'])
        for image in content['images']:
            assert Path(dataset['data_prefix']['img'], image['file_name']).is_file()
        assert name != 'train' or len(content['annotations']) == objects
    classes = cfg['train_dataloader']['dataset']['metainfo']['classes']
    assert tuple(classes) == (('cat', 'dog') if build in (yolo, voc) else ('cat',))


def test_labels_are_converted_once_and_again_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / 'data'
    labelme(root)
    written = []
    monkeypatch.setattr(LabelFolder, 'write', count(LabelFolder.write, written))
    for changes in (0, 0, 1):
        if changes:
            write(root / 'train' / 'a.json', labelme_json('a.jpg', description='looked at again'))
        find_labels(root).as_coco(tmp_path / 'out')
    assert len(written) == 2


def count(function: Callable, calls: list) -> Callable:
    def counted(*args: object) -> None:
        calls.append(args)
        return function(*args)

    return counted


def test_images_without_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    yolo(tmp_path / 'data')
    monkeypatch.chdir(tmp_path)
    for negatives, images in ((True, 3), (False, 2)):
        given = dict(data_root=str(tmp_path / 'data'), weights=None, batch_size=1, epochs=1)
        cfg = detection({**given, 'negatives': negatives})
        assert cfg['train_cfg']['max_iters'] == images
        assert cfg['train_dataloader']['dataset']['filter_cfg']['filter_empty_gt'] != negatives
    assert 'image without objects' in cfg['own_data']


def test_what_is_there_is_said_where_nothing_is_known(tmp_path: Path) -> None:
    write(tmp_path / 'labels.csv', 'a,b\n')
    with pytest.raises(ValueError, match='no annotation file of train'):
        own_config.find_splits(own_config.Own(str(tmp_path)))
    write(tmp_path / 'data.yaml', 'train: nowhere\nval: images\nnames: [cat]\n')
    with pytest.raises(ValueError, match=r"'nowhere' of its yaml is no folder of images"):
        find_labels(tmp_path)


@pytest.mark.parametrize('orientation', [1, 3, 5, 6, 7, 8])
def test_labels_of_turned_photographs(orientation: int, tmp_path: Path) -> None:
    """Labels of the file's own pixels: the object is where PIL turns its pixels to."""
    file = tmp_path / 'a.jpg'
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    left, top, width, height = BOX
    pixels[top : top + height, left : left + width] = 255
    exif = Image.Exif()
    exif[274] = orientation
    Image.fromarray(pixels).save(file, exif=exif, quality=100, subsampling=0)
    write(tmp_path / 'a.json', labelme_json('a.jpg'))
    content, odd = convert('labelme', tmp_path)
    (image,), (annotation,) = content['images'], content['annotations']
    shown = mmcv.imread(str(file))
    assert (image['height'], image['width']) == shown.shape[:2]
    if orientation == 3:  # the size does not say which pixels are meant: those that are shown
        assert annotation['bbox'] == pytest.approx(BOX)
        return
    rows, columns = np.nonzero(shown[..., 0] > 128)
    found = [columns.min(), rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1]
    assert annotation['bbox'] == pytest.approx([float(x) for x in found])
    assert ('before its EXIF rotation' in str(odd)) == (orientation > 4)


def test_parts_of_a_group_are_one_object(tmp_path: Path) -> None:
    picture(tmp_path / 'a.jpg')
    squares = [[[2, 2], [6, 2], [6, 6], [2, 6]], [[20, 20], [30, 20], [30, 30], [20, 30]]]
    shapes = [dict(label='cat', points=points, group_id=1) for points in squares]
    shapes.append(dict(label='cat', points=squares[0], group_id=None))
    write(tmp_path / 'a.json', json.dumps(dict(imagePath='a.jpg', shapes=shapes)))
    content, _ = convert('labelme', tmp_path)
    both, one = content['annotations']
    assert both['bbox'] == [2, 2, 28, 28] and both['area'] == pytest.approx(16 + 100)
    assert len(both['segmentation']) == 2 and one['bbox'] == [2, 2, 4, 4]


def test_area_of_a_polygon_that_crosses_itself() -> None:
    bow_tie = [0, 0, 20, 20, 20, 0, 0, 20]
    assert crosses_itself(bow_tie) and covered_area([bow_tie], 48, 64) == pytest.approx(200, abs=25)
    generator = torch.Generator().manual_seed(0)
    for corners in (3, 5, 12):  # around a centre, so without a crossing
        angles = torch.rand(corners, generator=generator).mul(2 * torch.pi).sort().values
        points = torch.stack([20 + 9 * angles.cos(), 20 + 9 * angles.sin()], -1)
        assert not crosses_itself(points.flatten().tolist())


def test_dark_images_are_named(tmp_path: Path) -> None:
    Image.fromarray(np.full((HEIGHT, WIDTH), 4095, np.uint16)).save(tmp_path / 'a.png')
    write(tmp_path / 'a.json', labelme_json('a.png'))
    assert 'scaled by own.max_value' in str(convert('labelme', tmp_path)[1])
