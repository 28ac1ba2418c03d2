"""Labels that are not read: each form by its name, and the export of its tool that is read."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .files import read_json, read_numbered_lines
from .inventory import Inventory

# Each form with the keys of its JSON: 'a, b; c' are both a and b, or c.
Forms = Mapping[str, str]

LABELBOX = 'an export of Labelbox: convert it to COCO, by its package labelbox'
SCALABEL = (
    'labels of BDD100K: convert them to COCO by `python -m bdd100k.label.to_coco`'
)
VIA = 'a project of VIA: export its annotations as COCO'
MIDDLE = "mmdet's middle format: give the labels that it was made of, or write COCO"
NNUNET = 'a data set of nnU-Net: give its images as images/ and its labels as masks/, of one name'
# By the first item of a list.
IN_LIST = {
    'a list of predictions, not annotations': 'score',
    'tasks of Label Studio: export them as COCO': (
        'annotation_id; data, annotations; data, predictions'  # the first in JSON-MIN
    ),
    LABELBOX: 'Label, External ID; Label, Labeled Data; data_row',
    SCALABEL: 'name, labels',
    'an export of Encord: export it as COCO': 'data_units',
}
IN_OBJECT = {
    VIA: '_via_img_metadata; _via_settings',
    'a data set of Datumaro: export it as COCO': 'items, categories',
    MIDDLE: 'metainfo, data_list',
    'a project of Supervisely: export it as COCO or YOLO': (
        'objects, size, tags; classes, tags, projectType'
    ),
    SCALABEL: 'frames, name; frames, groups',
    'labels of V7 Darwin: export them as COCO': 'item, annotations',
    'labels of SuperAnnotate: export them as COCO': 'metadata, instances',
    'a project of VoTT: export it as Pascal VOC': 'asset, regions; assets, visitedRegions',
    'a data set of Hasty: export it as COCO': 'label_classes, images',
    NNUNET: 'numTraining, labels',
}
# By the first one of COCO's annotations, if it has no box.
IN_ANNOTATION = {
    'captions, without boxes: take the instances': 'caption',
    'panoptic segments, whose masks are in PNG files: take the instances': 'segments_info',
}
# By the first line, of files with one JSON object a line.
LINES = ('.jsonl', '.ndjson', '.manifest')
IN_LINE = {
    LABELBOX: 'data_row',
    'a manifest of SageMaker Ground Truth: convert it to COCO': 'source-ref',
    'labels of Vertex AI: convert them to COCO': 'imageGcsUri',
    'text for PaliGemma or Florence: export the data set as COCO or YOLO': (
        'prefix, suffix'
    ),
    'NDJSON of Ultralytics: export the data set as YOLO': 'type, task; type, file',
    'metadata of a data set of Hugging Face: convert it to COCO': 'file_name',
}
TABLE = (
    'boxes in a table: convert it to COCO, or to YOLO with a .txt file for each image'
)
# Patterns of names, texts and tables, each with its form.
BY_NAME = {
    r'.*\.(zip|tar|tgz|tar\.\w+|7z|rar)': 'an archive: unpack it, and give the folder',
    r'.*\.(gz|bz2|xz|zst)': 'a compressed file: unpack it',
    r'.*\.(tfrecords?|record)([-.].*)?': 'TFRecord: export it as COCO, YOLO or Pascal VOC',
    r'.*\.(pkl|pickle)': MIDDLE,
    r'.*\.(parquet|arrow)': 'a data set of Hugging Face: save images and labels as files',
    r'.*\.(shp|gpkg|kml)': (
        'polygons of a map: convert them by `ogr2ogr -f GeoJSON labels.geojson FILE`'
    ),
    r'.*\.(xlsx?|tsv)': TABLE,
    r'.*\.mat': 'labels of MATLAB: write them as COCO',
    r'.*\.(h5|hdf5|lmdb|mdb)': 'a data base of images: save images and labels as files',
    r'.*\.(nii|dcm|nrrd|mha)': 'a medical image: save its slices as PNG',
}
# The first line of a text: class, truncated, occluded, angle, box ...; frame, track, box ...
IN_TEXT = {
    r'[A-Za-z]\w*( -?[\d.]+){14,15}': 'labels of KITTI: convert them to YOLO or COCO',
    r'\d+,-?\d+(,-?[\d.]+){4,8}': 'tracks of MOT: convert them and their frames to COCO',
}
# The first line of a table: names of columns, or the four numbers of a box.
IN_TABLE = {
    r'.*\bregion_shape_attributes\b.*': VIA,
    r'(?i).*\b(x_?min|x1|xtl|left|bbox|b?box_?x|geometry)\b.*': TABLE,
    r'.*(,-?\d+(\.\d+)?){4}.*': TABLE,
}
LOOKED_AT = 5  # files of a kind


def foreign_form(inventory: Inventory) -> str | None:
    """The form of a folder's labels, and what to export in its place; None if it is not known."""
    names = set(map(os.path.basename, inventory.folders))
    if not names.isdisjoint(('imagesTr', 'labelsTr')):
        return f'{inventory.root}: {NNUNET}'
    groups = defaultdict(list)
    paths = inventory.below(inventory.root)
    for path in sorted(paths, key=lambda path: (len(path.parts), path)):
        suffix = path.suffix.lower()
        if suffix not in inventory.image_suffixes:
            groups[suffix].append(path)
    looked_at = []
    for group in groups.values():
        looked_at += group[:LOOKED_AT]
    looked_at.sort(key=lambda path: bool(form_by_name(path)))
    for path in looked_at:
        form = form_by_name(path) or form_by_content(path)
        if form:
            return f'{path}: {form}'
    return None


def form_by_name(path: Path) -> str | None:
    """The form of a file that its name tells."""
    return form_like(BY_NAME, path.name.lower())


def form_by_content(path: Path) -> str | None:
    """The form of the labels in a text, and what to export; None if it is not known."""
    suffix = path.suffix.lower()
    if suffix not in ('.json', '.csv', '.txt', *LINES):
        return None
    try:
        if suffix == '.json':
            return other_tool(read_json(path))
        first = next((line for _, line in read_numbered_lines(path)), '')
        if suffix in LINES:
            return form_in(IN_LINE, json.loads(first))
    except (ValueError, OSError, RecursionError):
        return None
    return form_like(IN_TEXT if suffix == '.txt' else IN_TABLE, first)


def form_like(forms: Mapping[str, str], text: str) -> str | None:
    """The form whose pattern a text has."""
    for pattern, form in forms.items():
        if re.fullmatch(pattern, text):
            return form
    return None


def form_in(forms: Forms, item: Any) -> str | None:
    """The form whose keys are all in an object of JSON."""
    if isinstance(item, dict):
        for form, choices in forms.items():
            for keys in choices.split('; '):
                if item.keys() >= {*keys.split(', ')}:
                    return form
    return None


def other_tool(content: Any) -> str | None:
    """The tool or task that a JSON file is of, if it is known and not COCO's objects, or None."""
    if isinstance(content, list):
        return form_in(IN_LIST, content[0]) if content else None
    form = form_in(IN_OBJECT, content)
    if form or not isinstance(content, dict):
        return form
    for value in content.values():
        if isinstance(value, dict) and 'regions' in value:
            return VIA
    if isinstance(content.get('videos'), list) and 'images' not in content:
        return 'videos, as YouTube-VIS has them: export their frames as images of COCO'
    annotations = content.get('annotations')
    first = annotations[0] if isinstance(annotations, list) and annotations else None
    has_box = isinstance(first, dict) and 'bbox' in first
    return None if has_box else form_in(IN_ANNOTATION, first)
