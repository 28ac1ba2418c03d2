"""Labels that are not read: each form by its name, and the export of its tool that is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from .files import read_json, read_text
from .inventory import Inventory

STUDIO = 'tasks of Label Studio: export them as COCO'
LABELBOX = 'an export of Labelbox: convert it to COCO, by its package labelbox'
SCALABEL = 'labels of BDD100K: convert them to COCO by `python -m bdd100k.label.to_coco`'
SUPERVISELY = 'a project of Supervisely: export it as COCO or YOLO'
DARWIN = 'labels of V7 Darwin: export them as COCO'
VOTT = 'a project of VoTT: export it as Pascal VOC'
VIA = 'a project of VIA: export its annotations as COCO'
MIDDLE = "mmdet's middle format: give the labels that it was made of, or write COCO"
LANGUAGE = 'text for PaliGemma or Florence: export the data set as COCO or YOLO'
NNUNET = 'a data set of nnU-Net: give its images as images/ and its labels as masks/, of one name'
# The form of a JSON file by keys that all are in it, or in the first item of its list.
IN_LIST = (
    ({'score'}, 'a list of predictions, not annotations'),
    ({'annotation_id'}, STUDIO),  # JSON-MIN
    ({'data', 'annotations'}, STUDIO),
    ({'data', 'predictions'}, STUDIO),
    ({'Label', 'External ID'}, LABELBOX),
    ({'Label', 'Labeled Data'}, LABELBOX),
    ({'data_row'}, LABELBOX),
    ({'name', 'labels'}, SCALABEL),
    ({'data_units'}, 'an export of Encord: export it as COCO'),
)
IN_OBJECT = (
    ({'_via_img_metadata'}, VIA),
    ({'_via_settings'}, VIA),
    ({'items', 'categories'}, 'a data set of Datumaro: export it as COCO'),
    ({'metainfo', 'data_list'}, MIDDLE),
    ({'objects', 'size', 'tags'}, SUPERVISELY),
    ({'classes', 'tags', 'projectType'}, SUPERVISELY),
    ({'frames', 'name'}, SCALABEL),
    ({'frames', 'groups'}, SCALABEL),
    ({'item', 'annotations'}, DARWIN),
    ({'metadata', 'instances'}, 'labels of SuperAnnotate: export them as COCO'),
    ({'asset', 'regions'}, VOTT),
    ({'assets', 'visitedRegions'}, VOTT),
    ({'label_classes', 'images'}, 'a data set of Hasty: export it as COCO'),
    ({'numTraining', 'labels'}, NNUNET),
)
# Files with one JSON object a line.
IN_LINE = (
    ({'data_row'}, LABELBOX),
    ({'source-ref'}, 'a manifest of SageMaker Ground Truth: convert it to COCO'),
    ({'imageGcsUri'}, 'labels of Vertex AI: convert them to COCO'),
    ({'prefix', 'suffix'}, LANGUAGE),
    ({'type', 'task'}, 'NDJSON of Ultralytics: export the data set as YOLO'),
    ({'type', 'file'}, 'NDJSON of Ultralytics: export the data set as YOLO'),
    ({'file_name'}, 'metadata of a data set of Hugging Face: convert it to COCO'),
)
TABLE = 'boxes in a table: convert it to COCO, or to YOLO with a .txt file for each image'
TFRECORD = 'TFRecord: export the data set as COCO, YOLO or Pascal VOC'
BY_NAME = (
    (r'.*\.(zip|tar|tgz|tar\.\w+|7z|rar)', 'an archive: unpack it, and give the folder'),
    (r'.*\.(gz|bz2|xz|zst)', 'a compressed file: unpack it'),
    (r'.*\.(tfrecords?|record)([-.].*)?', TFRECORD),
    (r'.*\.(pkl|pickle)', MIDDLE),
    (r'.*\.(parquet|arrow)', 'a data set of Hugging Face: save images and labels as files'),
    (
        r'.*\.(shp|gpkg|kml)',
        'polygons of a map: convert them by `ogr2ogr -f GeoJSON labels.geojson FILE`',
    ),
    (r'.*\.(xlsx?|tsv)', TABLE),
    (r'.*\.mat', 'labels of MATLAB: write them as COCO'),
    (r'.*\.(h5|hdf5|lmdb|mdb)', 'a data base of images: save images and labels as files'),
    (r'.*\.(nii|dcm|nrrd|mha)', 'a medical image: save its slices as PNG'),
)
KITTI = re.compile(r'[A-Za-z]\w*( -?[\d.]+){14,15}')  # class, truncated, occluded, angle, box ...
MOT = re.compile(r'\d+,-?\d+(,-?[\d.]+){4,8}')  # frame, track, left, top, width, height ...
NUMBERS = re.compile(r'(,-?\d+(\.\d+)?){4}')  # of a box, in a table without a first line of names
WORDS = re.compile(r'\b(x_?min|x1|xtl|left|bbox|b?box_?x|geometry|region_shape_attributes)\b', re.I)
LOOKED_AT = 5  # files of a kind


def foreign(inventory: Inventory) -> str | None:
    """The form of a folder's labels, and what to export in its place; None if it is not known."""
    if any(Path(folder).name in ('imagesTr', 'labelsTr') for folder in inventory.folders):
        return f'{inventory.root}: {NNUNET}'
    by_suffix: dict[str, list[Path]] = {}
    for path in sorted(inventory.below(inventory.root), key=lambda path: (len(path.parts), path)):
        if path.suffix.lower() not in inventory.image_suffixes:
            by_suffix.setdefault(path.suffix.lower(), []).append(path)
    looked_at = [path for paths in by_suffix.values() for path in paths[:LOOKED_AT]]
    for path in sorted(looked_at, key=lambda path: bool(form_by_name(path))):
        if form := form_of(path):
            return f'{path}: {form}'
    return None


def form_of(path: Path) -> str | None:
    """The form of the labels in a file, and what to export; None if it is not known."""
    try:
        if (suffix := path.suffix.lower()) == '.json':
            return other_tool(read_json(path))
        if suffix in ('.jsonl', '.ndjson', '.manifest'):
            return form_in(IN_LINE, json.loads(first_line(path)))
        if suffix == '.csv':
            line = first_line(path)
            if 'region_shape_attributes' in line:
                return VIA
            return TABLE if WORDS.search(line) or NUMBERS.search(line) else None
        if suffix == '.txt':
            if KITTI.fullmatch(first_line(path)):
                return 'labels of KITTI: convert them to YOLO or COCO'
            if MOT.fullmatch(first_line(path)):
                return 'tracks of MOT: convert them to COCO, with the frames as images'
    except (ValueError, OSError, RecursionError):
        return None
    return form_by_name(path)


def form_by_name(path: Path) -> str | None:
    """The form of a file that its name tells."""
    forms = (form for name, form in BY_NAME if re.fullmatch(name, path.name.lower()))
    return next(forms, None)


def first_line(path: Path) -> str:
    """The first line of a text that is not blank."""
    return next((line.strip() for line in read_text(path).splitlines() if line.strip()), '')


def form_in(forms: tuple[tuple[set[str], str], ...], item: Any) -> str | None:
    """The form whose keys are all in an object of JSON."""
    given = item.keys() if isinstance(item, dict) else set()
    return next((form for keys, form in forms if keys <= given), None)


def other_tool(content: Any) -> str | None:
    """The tool or task that a JSON file is of, if it is known and not COCO's objects, or None."""
    if isinstance(content, list):
        return form_in(IN_LIST, content[0]) if content else None
    if form := form_in(IN_OBJECT, content):
        return form
    if not isinstance(content, dict):
        return None
    if any('regions' in value for value in content.values() if isinstance(value, dict)):
        return VIA
    if isinstance(content.get('videos'), list) and 'images' not in content:
        return 'videos, as YouTube-VIS has them: export their frames as images of COCO'
    annotations = content.get('annotations')
    first = annotations[0] if isinstance(annotations, list) and annotations else {}
    if not isinstance(first, dict):
        return None
    if 'segments_info' in first:
        return 'panoptic segments, whose masks are in PNG files: take the instances'
    if 'caption' in first and 'bbox' not in first:
        return 'captions, without boxes: take the instances'
    return None
