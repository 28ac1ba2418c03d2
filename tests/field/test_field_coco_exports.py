"""COCO files of labelling tools, each in the form that its exporter writes."""

import json
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
SIDES = dict(height=HEIGHT, width=WIDTH)
MASK = np.zeros(SIZE, np.uint8, order='F')
MASK[5:15, 10:30] = 1
LENGTHS = dict(size=[HEIGHT, WIDTH], counts=coco_mask.encode(MASK)['counts'].decode())

# Of each exporter: (file, folder of the images, keys of an image, of an object, of a category;
# ids of the first image and category). A text {} stands for the number of the image.
EXPORTS: dict[str, tuple[str, str, dict, dict, dict, Any, Any]] = {
    # label_studio_converter/converter.py: names with the folder of the images
    'Label Studio': (
        'result.json', 'images', dict(SIDES, file_name='images/{}.jpg'),
        dict(segmentation=[CORNERS], bbox=[*BOX], ignore=0, iscrowd=0, area=200), {}, 0, 0,
    ),
    # COCODetectionDatasetExporter: labels.json beside data/; licenses of null
    'FiftyOne': (
        'labels.json', 'data', dict(SIDES, license=None, coco_url=None),
        dict(bbox=[10.0, 5.0, 20.0, 10.0], segmentation=LENGTHS, iscrowd=0, supercategory=None),
        dict(supercategory=None), 1, 1,
    ),
    # The first category is the project.
    'Roboflow': (
        'train/_annotations.coco.json', 'train', dict(SIDES, license=1, extra=dict(name='x')),
        dict(bbox=[*BOX], area=200, segmentation=[], iscrowd=0), dict(supercategory='pets'), 0, 1,
    ),
    # COCO 1.0: attributes of each object, and empty texts in the images
    'CVAT': (
        'annotations/instances_default.json', 'images/default',
        dict(SIDES, license=0, flickr_url='', coco_url='', date_captured=0),
        dict(segmentation=[], bbox=[*BOX], attributes=dict(occluded=False, rotation=0.0)),
        dict(supercategory=''), 1, 1,
    ),
    # VGG's VIA 2: ids of images are text, outlines are flat lists.
    'VIA': (
        'via_project_3Mar2024_10h5m_coco.json', 'images', dict(SIDES, date_captured=''),
        dict(segmentation=CORNERS, area=200, bbox=[*BOX], iscrowd=0),
        dict(supercategory='type'), '0', 1,
    ),
    # No folder of images; boxes and areas with many digits
    'makesense.ai': (
        'labels_my-project-name_2024-01-26-11-44-48.json', '.', SIDES,
        dict(segmentation=[CORNERS], bbox=[10.000000000000002, 5, 19.999999999999996, 10]),
        {}, 1, 1,
    ),
    # A background that no object has
    'X-AnyLabeling': (
        'annotations/coco_instance_segmentation.json', 'images', dict(SIDES, url=None),
        dict(segmentation=[CORNERS], bbox=[10.0, 5.0, 20.0, 10.0], iscrowd=0, ignore=0),
        dict(supercategory=None), 0, 1,
    ),
    # Masks of SAM's generator: run lengths, and scores of its own
    'segment-anything': (
        'annotations.json', 'images', SIDES,
        dict(segmentation=LENGTHS, bbox=[10.0, 5, 19, 9], area=200, predicted_iou=0.98,
             point_coords=[[20.0, 10.0]], crop_box=[0, 0, WIDTH, HEIGHT]),
        {}, 0, 1,
    ),
    # Converters of Labelbox: ids of text, no sizes, no area, no iscrowd
    'Labelbox': (
        'coco.json', 'images', dict(width=None, height=None), dict(bbox=[*map(float, BOX)]),
        dict(supercategory='all'), 'ckx0', 'k1',
    ),
}  # fmt: skip
FIRST = {
    'Roboflow': [dict(id=0, name='pets', supercategory='none')],
    'X-AnyLabeling': [dict(id=0, name='_background_', supercategory=None)],
}


def next_id(first: Any, number: int) -> Any:
    """An id of the kind of the first one: a number, or a text that ends with one."""
    return (
        first + number
        if isinstance(first, int)
        else f'{first[:-1]}{int(first[-1]) + number}'
    )


@pytest.mark.parametrize('tool', EXPORTS)
def test_the_export_of_a_tool_is_read_as_it_is(tmp_path: Path, tool: str) -> None:
    file, folder, entry, thing, category, first, first_class = EXPORTS[tool]
    ids = [next_id(first, number) for number in NUMBERS]
    name = entry.get('file_name', '{}.jpg')
    kinds = [
        dict(category, id=next_id(first_class, n), name=text)
        for n, text in enumerate(['cat', 'dog'])
    ]
    content = dict(
        info={},
        licenses=[],
        categories=FIRST.get(tool, []) + kinds,
        images=[dict(entry, id=i, file_name=name.format(n)) for n, i in enumerate(ids)],
        annotations=[
            dict(thing, id=n, image_id=i, category_id=first_class)
            for n, i in enumerate(ids)
        ],
    )
    for number in NUMBERS:
        image(tmp_path / folder / f'{number}.jpg')
    write(tmp_path / file, json.dumps(content))
    found = reading(tmp_path)
    assert found.classes == ('cat', 'dog')
    expected = [('cat', tuple(map(round, thing['bbox'])), 0)]
    objects = [items for images in found.objects.values() for items in images.values()]
    assert objects == [expected] * len(NUMBERS)
    outlines = [
        'segmentation' in item
        for part in found.content.values()
        for item in part['annotations']
    ]
    assert outlines == [bool(thing.get('segmentation'))] * len(NUMBERS)
    assert '(left out): ' not in found.text.replace('no object (left out)', '')
