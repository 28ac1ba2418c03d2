"""Small files that ask for much time or memory, and labels that are not read: one line each."""

import base64
import io
import json
import resource
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import putchunk

from helpers.field import SIZE, coco, files, image, reading, refusal, write
from rope_dense.data.depth_maps import read_depth
from rope_dense.data.images.band_files import read_band_header

BOX = dict(bbox=[10, 5, 20, 10])
IMAGE = dict(id=1, file_name='a.jpg')
HUGE = 100_000  # pixels of a side
NAMES = 'train: images/train\nval: images/val\nnames: '
NEST = '[' * 3000 + '0' + ']' * 3000
DIGITS = '9' * 5000


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """Two seconds and 500 MB, which are a line about memory where they are exceeded."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 500 * 2**20, hard))
    start = time.process_time()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert time.process_time() - start < 2


def bomb(start: str = '[x, x, x, x, x, x, x, x, x]') -> str:
    """Nine aliases to nine aliases to nine ...: 9^9 values of 600 bytes."""
    lines = [f'a: &a {start}']
    for above, name in zip('abcdefgh', 'bcdefghi', strict=True):
        lines.append(f'{name}: &{name} [{", ".join([f"*{above}"] * 9)}]')
    return '\n'.join(lines) + '\n'


def yolo(root: Path, declaration: str, label: str = '0 0.5 0.5 0.5 0.5') -> Path:
    for split in ('train', 'val'):
        image(root / f'images/{split}/a.jpg')
        write(root / f'labels/{split}/a.txt', label)
    return files(root, {'data.yaml': declaration})


def coco_folder(root: Path, text: str, name: str = 'cat') -> Path:
    """A data set with this training file."""
    image(root / 'train' / 'a.jpg')
    image(root / 'val' / 'a.jpg')
    write(root / 'val.json', coco([IMAGE], [BOX], {1: name}))
    return files(root, {'train.json': text})


def coco_of(root: Path, thing: dict, **picture: Any) -> Path:
    return coco_folder(root, coco([IMAGE | picture], [thing], {1: 'cat'}))


def voc(root: Path, text: str) -> Path:
    for stem in ('a', 'b'):
        image(root / 'JPEGImages' / f'{stem}.jpg')
        write(root / 'Annotations' / f'{stem}.xml', text)
    return root


def cvat(root: Path, shape: str, head: str = '', *, name: str = 'a.jpg') -> Path:
    for split in ('train', 'val'):
        image(root / split / 'images' / 'a.jpg')
        text = f'{head}<annotations><image id="0" name="{name}">{shape}</image></annotations>'
        write(root / split / 'annotations.xml', text)
    return root


def labelme(root: Path, **shape: Any) -> Path:
    for split in ('train', 'val'):
        image(root / split / 'a.jpg')
        content = dict(imagePath='a.jpg', shapes=[dict(label='cat', **shape)])
        write(root / split / 'a.json', json.dumps(content))
    return root


def large_png(side: int) -> str:
    """A PNG of side x side black pixels of one bit, in base64."""
    file = io.BytesIO()
    Image.new('1', (8, 8)).save(file, 'PNG')
    found = io.BytesIO(file.getvalue()[:8])
    found.seek(8)
    header = side.to_bytes(4, 'big') * 2 + bytes([1, 0, 0, 0, 0])
    putchunk(found, b'IHDR', header)
    found.write(file.getvalue()[33:])
    return base64.b64encode(found.getvalue()).decode()


ENTITIES = '<!DOCTYPE d [<!ENTITY a "ha">' + ''.join(
    f'<!ENTITY {name} "{f"&{above};" * 10}">'
    for above, name in zip('abcdefghi', 'bcdefghij', strict=True)
)
VOC = '<annotation><object><name>{}</name></object></annotation>'
OUTSIDE = '<!DOCTYPE d [<!ENTITY j SYSTEM "file:///etc/passwd">'
MASK = f'left="0" top="0" width="{HUGE}" height="{HUGE}" rle="0, {HUGE**2}"'

LONG = f'<!DOCTYPE d [<!ENTITY a "{"x" * 200_000}">]>'
SVG = '<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>'
CALL = "!!python/object/apply:os.system ['touch ran']"


def run_lengths(counts: object, height: int = 30, width: int = 40) -> dict[str, Any]:
    return dict(BOX, segmentation=dict(size=[height, width], counts=counts))


def secret(root: Path) -> Path:
    """The folder, with an image beside it."""
    image(root.parent / 'secret.jpg')
    return root


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    'aliases as names': (
        lambda root: yolo(root, bomb() + NAMES + '*i'),
        'data.yaml is no YAML (its aliases repeat more than',
    ),
    'aliases as a name': (
        lambda root: yolo(root, bomb() + NAMES + '[cat, *i]'),
        'data.yaml is no YAML (its aliases repeat more than',
    ),
    'aliases of maps': (
        lambda root: yolo(root, bomb('{x: 1}') + NAMES + '{0: *i}'),
        'data.yaml is no YAML (its aliases repeat more than',
    ),
    'an alias of itself': (
        lambda root: yolo(root, NAMES + '&a [cat, *a]'),
        'data.yaml is no YAML (its aliases repeat more than',
    ),
    'a nest in YAML': (
        lambda root: yolo(root, NAMES + NEST),
        'data.yaml has lists in lists, thousands deep',
    ),
    'a nest in JSON': (
        lambda root: coco_folder(root, NEST),
        'train.json has lists in lists, thousands deep',
    ),
    'a nest in a COCO file': (
        lambda root: coco_folder(root, coco([IMAGE], [], {1: 'cat'})[:-1] + f', "x": {NEST}}}'),
        'train.json has lists in lists, thousands deep',
    ),
    'a nest in an annotation': (
        lambda root: coco_of(root, dict(BOX, segmentation=json.loads('[' * 500 + ']' * 500))),
        'train.json, annotation 1: ',
    ),
    'a number of COCO': (
        lambda root: coco_folder(root, coco([IMAGE], [BOX], {1: 'cat'}).replace('20', DIGITS)),
        'train.json has a number of thousands of digits',
    ),
    'a number of YAML': (
        lambda root: yolo(root, NAMES + f'[cat]\nkpt_shape: [{DIGITS}, 3]'),
        'data.yaml is no YAML (it has a number of thousands of digits)',
    ),
    'a key of YAML': (
        lambda root: yolo(root, NAMES + f'\n  ? {DIGITS}\n  : cat'),
        'data.yaml is no YAML (it has a number of thousands of digits)',
    ),
    'a long name of an image': (
        lambda root: coco_of(root, BOX, file_name='a' * 100_000),
        'train.json: its images, such as aaa',
    ),
    'a box as far as floats go': (
        lambda root: cvat(root, '<box label="cat" xtl="1e308" ytl="1" xbr="-1e308" ybr="5"/>'),
        'a.jpg, box 1: its box is [1e+308, 1.0, -inf, 4.0]',
    ),
    'a circle as far as floats go': (
        lambda root: labelme(root, shape_type='circle', points=[[0, 0], [1e308, 1e308]]),
        'a.json, shape 1: radii of inf and inf pixels',
    ),
    'a mask of negative sides': (
        lambda root: cvat(
            root, '<mask label="cat" left="0" top="0" width="-5" height="-5" rle="25"/>'
        ),
        'a.jpg, mask 1: run lengths of 25 pixels for -5 x -5',
    ),
    'a number as text': (
        lambda root: coco_of(root, dict(bbox=['1', '2', '3', DIGITS])),
        'train.json, annotation 1: a number of bbox is',
    ),
    'a number of hundreds of digits': (
        lambda root: coco_of(root, dict(bbox=[1, 2, 3, 10**400])),
        'train.json, annotation 1: a number of bbox is',
    ),
    'a number of YOLO': (
        lambda root: yolo(root, NAMES + '[cat]', f'0 0.5 0.5 0.5 {DIGITS}'),
        'a.txt, line 1: a number is',
    ),
    'a class number of YOLO': (
        lambda root: yolo(root, NAMES + '[cat]', f'{DIGITS} 0.5 0.5 0.5 0.5'),
        'a.txt, line 1: ',
    ),
    'infinity': (
        lambda root: coco_of(root, BOX, height=float('inf')),
        'height or width is inf, which is not finite',
    ),
    'NaN in a polygon': (
        lambda root: coco_of(root, dict(BOX, segmentation=[[float('nan')] * 8])),
        'train.json, annotation 1: a coordinate is nan, which is not finite',
    ),
    'entities of VOC': (
        lambda root: voc(root, ENTITIES + ']>' + VOC.format('&j;')),
        'a.xml declares entities, which no labels have',
    ),
    'entities of CVAT': (
        lambda root: cvat(root, '<box label="&j;"/>', ENTITIES + ']>'),
        'annotations.xml is no XML, cut off, or not in the encoding that it declares (limit on',
    ),
    'an entity elsewhere': (
        lambda root: voc(root, OUTSIDE + ']>' + VOC.format('&j;')),
        'a.xml declares entities, which no labels have',
    ),
    'a nest in XML': (
        lambda root: cvat(root, '<a label="cat">' * 100_000 + '</a>' * 100_000),
        'object of type a (left out)',
    ),
    'run lengths of an image of this size': (
        lambda root: coco_of(
            root,
            dict(BOX, segmentation=dict(size=[HUGE, HUGE], counts=[0, HUGE**2])),
            height=HUGE,
            width=HUGE,
        ),
        f'train.json, annotation 1: run lengths of {HUGE} x {HUGE} pixels',
    ),
    'run lengths of no image': (
        lambda root: coco_of(
            root,
            dict(BOX, segmentation=dict(size=[HUGE, HUGE], counts=[0, HUGE**2])),
            height=None,
        ),
        f'train.json, annotation 1: run lengths of {HUGE} x {HUGE} pixels',
    ),
    'a mask of CVAT': (
        lambda root: cvat(root, f'<mask label="cat" {MASK}/>'),
        f'a.jpg, mask 1: a mask of {HUGE} x {HUGE} pixels, for an image of 40 x 30',
    ),
    'a mask of LabelMe': (
        lambda root: labelme(
            root,
            shape_type='mask',
            points=[[0, 0], [59_999, 59_999]],
            mask=large_png(60_000),
        ),
        'a.json, shape 1: a mask of many more pixels than its image',
    ),
    'a far corner': (
        lambda root: coco_of(root, dict(BOX, segmentation=[[0, 0, 9, 9, 1e300, 0]])),
        'train.json, annotation 1: a corner at 1e+300 pixels',
    ),
    'run lengths of text that is no list': (
        lambda root: coco_of(root, dict(BOX, segmentation='[' * 100_000)),
        'train.json, annotation 1: segmentation is',
    ),
    'run lengths of very many pixels': (
        lambda root: coco_of(root, run_lengths([10**18, 10**18])),
        f'annotation 1: run lengths of {2 * 10**18} pixels for 30 x 40',
    ),
    'run lengths of another size': (
        lambda root: coco_of(root, run_lengths([0, 10**18], 10**9, 10**9)),
        f'annotation 1: run lengths of [{10**9}, {10**9}] for an image of [30, 40]',
    ),
    'run lengths of other characters': (
        lambda root: coco_of(root, run_lengths('\x00\xff~~~')),
        'train.json, annotation 1: ',
    ),
    'a run length below 0': (
        lambda root: coco_of(root, run_lengths([-5, 1205])),
        'annotation 1: run lengths of 1200 pixels for 30 x 40',
    ),
    'a long entity of VOC': (
        lambda root: voc(root, LONG + VOC.format('&a;' * 20_000)),
        'a.xml declares entities, which no labels have',
    ),
    'a long entity of CVAT': (
        lambda root: cvat(root, f'<box label="{"&a;" * 20_000}"/>', LONG),
        'annotations.xml is no XML, cut off, or not in the encoding that it declares (limit on',
    ),
    'an entity of CVAT elsewhere': (
        lambda root: cvat(root, '<box label="&j;"/>', OUTSIDE + ']>'),
        'annotations.xml is no XML, cut off, or not in the encoding that it declares (reference',
    ),
    'an image above': (
        lambda root: coco_of(secret(root), BOX, file_name='../../secret.jpg'),
        'train.json: its images, such as ../../secret.jpg, are in none of',
    ),
    'an image elsewhere': (
        lambda root: coco_of(root, BOX, file_name=str(secret(root).parent / 'secret.jpg')),
        'secret.jpg, are in none of',
    ),
    'an image at an address of this machine': (
        lambda root: coco_of(root, BOX, file_name='file:///etc/passwd'),
        'train.json: its images, such as file:///etc/passwd, are in none of',
    ),
    'an image above, of CVAT': (
        lambda root: cvat(secret(root), '<box label="cat"/>', name='../../../secret.jpg'),
        'object of an image that is not there (left out): ../../../secret.jpg',
    ),
    'a drawing named as an image': (
        lambda root: files(coco_of(root, BOX, file_name='b.png'), {'train/b.png': SVG}),
        'object of an image that cannot be read (left out): b.png',
    ),
    'a drawing': (
        lambda root: files(coco_of(root, BOX, file_name='b.svg'), {'train/b.svg': SVG}),
        'object of an image that is not there (left out): b.svg',
    ),
    'a name that is a call': (
        lambda root: yolo(root, NAMES + f'[{CALL}]'),
        'data.yaml: `names` is [[',
    ),
}  # fmt: skip


@pytest.mark.parametrize('kind', HOSTILE)
def test_a_hostile_file_is_named(tmp_path: Path, kind: str) -> None:
    """K8: one line, without what the file makes of the memory."""
    build, line = HOSTILE[kind]
    message = refusal(build(tmp_path / 'data'))
    assert line in message and len(message) < 1000 and not Path('ran').exists()


CORNERS = '<bndbox><xmin>5</xmin><ymin>5</ymin><xmax>20</xmax><ymax>20</ymax></bndbox>'
CORNERS_OF = dict(shape_type='rectangle', points=[[4, 4], [20, 20]])
HARMLESS: dict[str, Callable[[Path], Path]] = {
    'a call': lambda root: yolo(root, f'x: {CALL}\n{NAMES}[cat]'),
    'a script': lambda root: yolo(root, f'download: bash -c "touch ran"\n{NAMES}[cat]'),
    'Python': lambda root: yolo(root, f'download: |\n  import os; os.mkdir("ran")\n{NAMES}[cat]'),
    'VOC': lambda root: voc(
        secret(root),
        '<annotation><filename>../../secret.jpg</filename><object><name>cat</name>'
        f'{CORNERS}</object></annotation>',
    ),
    'LabelMe': lambda root: files(labelme(secret(root), **CORNERS_OF), {
        'train/a.json': json.dumps(dict(
            imagePath='../../secret.jpg', shapes=[dict(label='cat', **CORNERS_OF)],
        )),
    }),
}  # fmt: skip


@pytest.mark.parametrize('kind', HARMLESS)
def test_what_labels_say_is_not_run_nor_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Nothing of data.yaml is run, and an image is found by the name of its label file."""
    root = HARMLESS[kind](tmp_path / 'data')
    monkeypatch.chdir(tmp_path)
    found = reading(root)
    assert found.classes == ('cat',) and 'secret' not in str(found.content)
    assert not (tmp_path / 'ran').exists()


class Call:
    """A pickle that runs a command."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable, tuple]:
        return Path.touch, (self.trace,)


def array_file(path: Path, shape: tuple[int, int]) -> Path:
    """A .npy file with the header of an array that it has not."""
    with open(path, 'wb') as file:
        header = dict(descr='<f4', fortran_order=False, shape=shape)
        np.lib.format.write_array_header_1_0(file, header)
        file.write(bytes(64))
    return path


@pytest.mark.parametrize('read', [read_depth, read_band_header])
def test_arrays_that_run_code_or_are_not_there(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    path, trace = tmp_path / 'a.npy', tmp_path / 'ran'
    np.save(path, np.array([[Call(trace)]], object), allow_pickle=True)
    for fault in ('Python objects', 'greater than file size'):
        with pytest.raises(ValueError, match=fault) as said:
            read(path)
        assert str(said.value).startswith(str(path))
        array_file(path, (10**6, 10**6))
    assert not trace.exists()


@pytest.mark.parametrize('oriented', [False, True])
def test_outlines_of_very_many_corners(tmp_path: Path, oriented: bool) -> None:
    """D13: their memory grew with the square of the corners."""
    angles = np.linspace(0, 2 * np.pi, 200_000, endpoint=False)
    points = np.stack([20 + 9 * np.cos(angles), 15 + 5 * np.sin(angles)], 1).round(3)
    root = coco_of(tmp_path / 'data', dict(BOX, segmentation=[points.ravel().tolist()]))
    (item,) = reading(root, oriented=oriented).content['train']['annotations']
    assert item['area'] == pytest.approx(180 if oriented else 45 * np.pi, rel=0.05)


def test_a_mask_takes_the_memory_of_its_own_pixels(tmp_path: Path) -> None:
    """The image has 3.6 gigapixels, of which the mask has few."""
    from rope_dense.data.labels.geometry import mask_shape, outer_points

    shape = mask_shape('cat', np.ones((20, 30)), 10, 50_000, (60_000, 60_000))
    assert shape.box == (10, 50_000, 30, 20)
    corners = np.reshape(outer_points(shape.outline or []), (-1, 2))
    assert [*corners.min(0), *corners.max(0)] == [10, 50_000, 40, 50_020]


@pytest.mark.parametrize('build', [
    lambda root, name: coco_folder(
            root, coco([IMAGE], [BOX], {1: name, 2: 'dog'}), name
        ),
    lambda root, name: yolo(root, NAMES + json.dumps([name, 'dog'])),
], ids=['COCO', 'YOLO'])  # fmt: skip
def test_names_of_classes_go_to_no_terminal_as_they_are(
    tmp_path: Path, build: Callable[[Path, str], Path]
) -> None:
    name = '\x1b[31mc\x00a\u202et\x07'
    found = reading(build(tmp_path / 'data', name))
    assert found.classes == ('[31mcat', 'dog')
    assert found.text.replace('\n', '').isprintable()


def test_names_of_files_go_to_no_terminal_as_they_are(tmp_path: Path) -> None:
    entries = [IMAGE, dict(id=2, file_name='\x1b[2Jgone.jpg')]
    root = coco_folder(tmp_path / 'data', coco(entries, [BOX], {1: 'cat'}))
    assert '\x1b' not in (text := reading(root).text) and '[2Jgone.jpg' in text


def test_a_name_of_nothing_is_refused(tmp_path: Path) -> None:
    root = coco_of(tmp_path / 'data', BOX)
    write(root / 'train.json', coco([IMAGE], [BOX], {1: '\x00\u200b'}))
    assert "category number 0: the name of id 1 is '\\x00" in refusal(root)


MIN = [dict(id=1, image='a.jpg', label=[], annotator=1, annotation_id=1, lead_time=2.0)]
LABELBOX = dict(data_row=dict(external_id='a.jpg'), media_attributes={}, projects={})
TFCSV = 'filename,width,height,class,xmin,ymin,xmax,ymax\na.jpg,40,30,cat,1,1,9,9\n'
KITTI = 'Car 0.00 0 -1.58 587.01 173.33 614.12 200.12 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59\n'
FOREIGN: dict[str, tuple[str, Any, str]] = {
    'VIA': ('via.json', {'a.jpg9': dict(filename='a.jpg', regions=[])}, 'a project of VIA: export'),
    'VIA csv': ('via.csv', 'filename,file_size,region_shape_attributes\n', 'a project of VIA'),
    'Labelbox': ('export.json', [{'Label': {}, 'External ID': 'a', 'ID': 'b'}], 'Labelbox'),
    'Labelbox v2': ('export.json', [LABELBOX], 'Labelbox'),
    'Labelbox NDJSON': ('export.ndjson', json.dumps(LABELBOX), 'Labelbox'),
    'Supervisely': (
        'ds/ann/a.jpg.json', dict(description='', tags=[], size={}, objects=[]), 'Supervisely',
    ),
    'Label Studio': ('p.json', [dict(id=1, data={}, annotations=[])], 'Label Studio: export'),
    'JSON-MIN': ('p.json', MIN, 'Label Studio: export'),
    'TFRecord': ('train.tfrecord', b'\x00\x01', 'TFRecord: export'),
    'TFRecord shards': ('train.tfrecord-00000-of-00002', b'\x00', 'TFRecord: export'),
    'csv of TensorFlow': ('labels.csv', TFCSV, 'boxes in a table'),
    'csv of RetinaNet': ('annotations.csv', 'a.jpg,1,1,9,9,cat\n', 'boxes in a table'),
    'csv of DeepForest': ('b.csv', 'image_path,xmin,ymin,xmax,ymax,label\n', 'boxes in a table'),
    'KITTI': ('label_2/a.txt', KITTI, 'KITTI: convert'),
    'Datumaro': ('default.json', dict(info={}, categories={}, items=[]), 'Datumaro: export'),
    'NDJSON of Ultralytics': ('d.ndjson', '{"type": "dataset", "task": "detect"}', 'export'),
    'Hugging Face': ('metadata.jsonl', '{"file_name": "a.jpg", "objects": {}}', 'Hugging Face'),
    'BDD100K': ('det.json', [dict(name='a.jpg', labels=[])], 'BDD100K: convert'),
    'SageMaker': ('output.manifest', '{"source-ref": "s3://a.jpg"}', 'SageMaker'),
    'PaliGemma': ('_annotations.jsonl', '{"image": "a", "prefix": "", "suffix": ""}', 'PaliGemma'),
    'MOT': ('gt/gt.txt', '1,1,912,484,97,109,0,7,1\n', 'tracks of MOT: convert'),
    'middle format': ('d.json', dict(metainfo={}, data_list=[]), "mmdet's middle format"),
    'pickle': ('train.pkl', b'\x80', "mmdet's middle format"),
    'json.gz': ('train.json.gz', b'\x1f\x8b', 'a compressed file: unpack it'),
    'tar': ('data.tar.gz', b'\x1f\x8b', 'an archive: unpack it'),
    'nnU-Net': ('dataset.json', dict(channel_names={}, labels={}, numTraining=1), 'nnU-Net'),
    'V7': ('a.json', dict(version='2.0', item={}, annotations=[]), 'V7 Darwin: export'),
}  # fmt: skip


@pytest.mark.parametrize('kind', FOREIGN)
def test_labels_that_are_not_read_are_named(tmp_path: Path, kind: str) -> None:
    file, content, line = FOREIGN[kind]
    image(tmp_path / 'images' / 'a.jpg')
    is_text = isinstance(content, (str, bytes))
    path = write(tmp_path / file, content if is_text else json.dumps(content))
    message = refusal(tmp_path)
    assert message.startswith(f'{path}: ') and line in message


def test_the_folders_of_nnunet(tmp_path: Path) -> None:
    image(tmp_path / 'imagesTr' / 'c0_0000.png')
    image(tmp_path / 'labelsTr' / 'c0.png')
    assert 'a data set of nnU-Net: give its images as images/' in refusal(tmp_path)


def test_an_archive_alone(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / 'export.zip', 'w') as file:
        file.writestr('data.yaml', 'names: [cat]')
    assert 'export.zip: an archive: unpack it, and give the folder' in refusal(tmp_path)


@pytest.mark.parametrize('kind', ['VOC', 'CVAT', 'LabelMe', 'YOLO'])
def test_an_object_that_is_there_twice_is_one_in_every_format(
    tmp_path: Path, kind: str
) -> None:
    """F6"""
    root = tmp_path / 'data'
    corners = ''.join(
        f'<{name}>{value}</{name}>'
        for name, value in zip(
            ('xmin', 'ymin', 'xmax', 'ymax'), (11, 6, 30, 15), strict=True
        )
    )
    thing = f'<object><name>cat</name><bndbox>{corners}</bndbox></object>'
    if kind == 'VOC':
        voc(root, f'<annotation>{thing * 3}</annotation>')
    elif kind == 'CVAT':
        cvat(root, '<box label="cat" xtl="10" ytl="5" xbr="30" ybr="15"/>' * 3)
    elif kind == 'LabelMe':
        labelme(root, shape_type='rectangle', points=[[10, 5], [30, 15]])
        for file in root.glob('*/a.json'):
            content = json.loads(file.read_text())
            file.write_text(json.dumps(content | dict(shapes=content['shapes'] * 3)))
    else:
        yolo(root, NAMES + '[cat]', '0 0.5 0.3333333 0.5 0.3333333\n' * 3)
    found = reading(root)
    objects = [items for images in found.objects.values() for items in images.values()]
    assert objects == [
        [('cat', (10, 5, 20, 10), 0)]
    ] * 2 and '4 x object that is there twice' in (found.text)


def test_an_archive_as_the_folder(tmp_path: Path) -> None:
    from rope_dense.project.own.data import check_root
    from rope_dense.project.own.settings import OwnObjects

    file = write(tmp_path / 'export.zip', b'PK')
    with pytest.raises(
        ValueError, match=r"export.zip' is an archive: unpack it, and give the fo"
    ):
        check_root(OwnObjects(data_root=str(file)))


def test_labels_that_are_read_hide_others(tmp_path: Path) -> None:
    root = coco_of(tmp_path / 'data', BOX)
    write(root / 'labels.csv', TFCSV)
    write(root / 'export.zip', b'PK')
    assert SIZE and reading(root).classes == ('cat',)
