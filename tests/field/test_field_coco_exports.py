"""COCO files of labelling tools, each in the form that its exporter writes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coco_mask

from helpers.field import SIZE, image, reading, write

HEIGHT, WIDTH = SIZE
BOX = (10, 5, 20, 10)
CORNERS = [10, 5, 30, 5, 30, 15, 10, 15]
NUMBERS = range(12)  # of images, enough for a hash
Export = tuple[dict[str, Any], str, str]  # content, name of the file, folder of the images


def run_lengths() -> dict[str, Any]:
    mask = np.zeros(SIZE, np.uint8, order='F')
    mask[5:15, 10:30] = 1
    return dict(size=[HEIGHT, WIDTH], counts=coco_mask.encode(mask)['counts'].decode())


def label_studio() -> Export:
    """label_studio_converter/converter.py: ids from 0, names with the folder of the images."""
    images = [dict(width=WIDTH, height=HEIGHT, id=n, file_name=f'images/{n}.jpg') for n in NUMBERS]
    things = [
        dict(id=n, image_id=n, category_id=0, segmentation=[], bbox=list(BOX), ignore=0,
             iscrowd=0, area=200)
        for n in NUMBERS
    ]  # fmt: skip
    things[0] |= dict(segmentation=[CORNERS])
    kinds = [dict(id=0, name='cat'), dict(id=1, name='dog')]
    info = dict(year=2024, version='1.0', contributor='Label Studio')
    return (
        dict(images=images, categories=kinds, annotations=things, info=info),
        'result.json',
        'images',
    )


def fiftyone() -> Export:
    """COCODetectionDatasetExporter: labels.json beside data/; ids from 1; licenses of null."""
    images = [
        dict(
            id=n + 1, file_name=f'{n}.jpg', height=HEIGHT, width=WIDTH, license=None, coco_url=None
        )
        for n in NUMBERS
    ]
    things = [
        dict(id=n + 1, image_id=n + 1, category_id=1, bbox=[10.0, 5.0, 20.0, 10.0], area=200.0,
             iscrowd=0, supercategory=None)
        for n in NUMBERS
    ]  # fmt: skip
    things[0] |= dict(segmentation=run_lengths())
    kinds = [dict(id=1, name='cat', supercategory=None), dict(id=2, name='dog', supercategory=None)]
    content = dict(info=dict(), licenses=[], categories=kinds, images=images, annotations=things)
    return content, 'labels.json', 'data'


def roboflow() -> Export:
    """_annotations.coco.json beside the images; the first category is the project."""
    images = [
        dict(
            id=n, license=1, file_name=f'{n}.jpg', height=HEIGHT, width=WIDTH, extra=dict(name='x')
        )
        for n in NUMBERS
    ]
    things = [
        dict(id=n, image_id=n, category_id=1, bbox=list(BOX), area=200, segmentation=[], iscrowd=0)
        for n in NUMBERS
    ]
    kinds = [
        dict(id=0, name='animals', supercategory='none'),
        dict(id=1, name='cat', supercategory='animals'),
        dict(id=2, name='dog', supercategory='animals'),
    ]
    content = dict(info=dict(), licenses=[], categories=kinds, images=images, annotations=things)
    return content, 'train/_annotations.coco.json', 'train'


def cvat() -> Export:
    """COCO 1.0 of CVAT: attributes of each object, and empty texts in the images."""
    images = [
        dict(id=n + 1, width=WIDTH, height=HEIGHT, file_name=f'{n}.jpg', license=0, flickr_url='',
             coco_url='', date_captured=0)
        for n in NUMBERS
    ]  # fmt: skip
    things = [
        dict(id=n + 1, image_id=n + 1, category_id=1, segmentation=[], area=200.0, bbox=list(BOX),
             iscrowd=0, attributes=dict(occluded=False, rotation=0.0))
        for n in NUMBERS
    ]  # fmt: skip
    kinds = [dict(id=1, name='cat', supercategory=''), dict(id=2, name='dog', supercategory='')]
    info = dict(contributor='', date_created='', version='', year='')
    content = dict(licenses=[dict(name='', id=0, url='')], info=info, categories=kinds)
    content |= dict(images=images, annotations=things)
    return content, 'annotations/instances_default.json', 'images/default'


def via() -> Export:
    """VGG's VIA 2: ids of images are text, outlines are flat lists."""
    images = [
        dict(
            id=str(n), width=WIDTH, height=HEIGHT, file_name=f'{n}.jpg', license=1, date_captured=''
        )
        for n in NUMBERS
    ]
    things = [
        dict(id=n, image_id=str(n), category_id=1, segmentation=CORNERS, area=200, bbox=list(BOX),
             iscrowd=0)
        for n in NUMBERS
    ]  # fmt: skip
    kinds = [
        dict(supercategory='type', id=n, name=name) for n, name in enumerate(['cat', 'dog'], 1)
    ]
    content = dict(info=dict(), images=images, annotations=things, licenses=[], categories=kinds)
    return content, 'via_project_3Mar2024_10h5m_coco.json', 'images'


def makesense() -> Export:
    """makesense.ai: no folder of images; boxes and areas with many digits."""
    images = [dict(id=n + 1, width=WIDTH, height=HEIGHT, file_name=f'{n}.jpg') for n in NUMBERS]
    things = [
        dict(id=n, iscrowd=0, image_id=n + 1, category_id=1, segmentation=[CORNERS],
             bbox=[10.000000000000002, 5, 19.999999999999996, 10], area=199.99999999999997)
        for n in NUMBERS
    ]  # fmt: skip
    kinds = [dict(id=1, name='cat'), dict(id=2, name='dog')]
    info = dict(description='my-project-name')
    content = dict(info=info, images=images, annotations=things, categories=kinds)
    return content, 'labels_my-project-name_2024-01-26-11-44-48.json', '.'


def x_anylabeling() -> Export:
    """X-AnyLabeling: a background that no object has; ids from 0."""
    images = [
        dict(license=0, url=None, file_name=f'{n}.jpg', height=HEIGHT, width=WIDTH,
             date_captured=None, id=n)
        for n in NUMBERS
    ]  # fmt: skip
    things = [
        dict(id=n, image_id=n, category_id=1, segmentation=[CORNERS], area=200.0,
             bbox=[10.0, 5.0, 20.0, 10.0], iscrowd=0, ignore=0)
        for n in NUMBERS
    ]  # fmt: skip
    names = ('_background_', 'cat', 'dog')
    kinds = [dict(id=n, name=name, supercategory=None) for n, name in enumerate(names)]
    content = dict(info=dict(), licenses=[], categories=kinds, images=images, annotations=things)
    return content | dict(type='instances'), 'annotations/coco_instance_segmentation.json', 'images'


def segment_anything() -> Export:
    """Masks of SAM's generator, gathered in one file: run lengths, and scores of its own."""
    images = [dict(id=n, file_name=f'{n}.jpg', height=HEIGHT, width=WIDTH) for n in NUMBERS]
    things = [
        dict(id=n, image_id=n, category_id=1, segmentation=run_lengths(), bbox=[10.0, 5, 19, 9],
             area=200, predicted_iou=0.98, stability_score=0.97, point_coords=[[20.0, 10.0]],
             crop_box=[0, 0, WIDTH, HEIGHT])
        for n in NUMBERS
    ]  # fmt: skip
    kinds = [dict(id=1, name='cat'), dict(id=2, name='dog')]
    return dict(images=images, annotations=things, categories=kinds), 'annotations.json', 'images'


def labelbox() -> Export:
    """As converters of Labelbox write it: ids of text, no sizes, no area, no iscrowd."""
    images = [dict(id=f'ckx{n}', file_name=f'{n}.jpg', width=None, height=None) for n in NUMBERS]
    things = [
        dict(id=f'clz{n}', image_id=f'ckx{n}', category_id='k1', bbox=list(map(float, BOX)))
        for n in NUMBERS
    ]
    kinds = [dict(id='k1', name='cat', supercategory='all'), dict(id='k2', name='dog')]
    return dict(info=[], images=images, annotations=things, categories=kinds), 'coco.json', 'images'


EXPORTS = (label_studio, fiftyone, roboflow, cvat, via, makesense, x_anylabeling)
EXPORTS += (segment_anything, labelbox)


@pytest.mark.parametrize('export', EXPORTS)
def test_the_export_of_a_tool_is_read_as_it_is(tmp_path: Path, export: Any) -> None:
    content, file, folder = export()
    for number in NUMBERS:
        image(tmp_path / folder / f'{number}.jpg')
    write(tmp_path / file, json.dumps(content))
    found = reading(tmp_path)
    assert found.classes == ('cat', 'dog')
    boxes = [
        item for images in found.objects.values() for items in images.values() for item in items
    ]
    expected = ('cat', (10, 5, 19, 9) if export is segment_anything else BOX, 0)
    assert boxes == [expected] * len(NUMBERS)
    first = objects_of(found.content.values(), '0.jpg')[0]
    assert ('segmentation' in first) == (export not in (roboflow, cvat, labelbox))
    assert '(left out): ' not in found.text.replace('no object (left out)', '')


def objects_of(contents: Sequence[dict] | Any, name: str) -> list[dict]:
    """The annotations of an image, by its name."""
    return [
        item
        for content in contents
        for entry in content['images']
        if Path(entry['file_name']).name == name
        for item in content['annotations']
        if item['image_id'] == entry['id']
    ]
