"""Predictions of a detector in the formats of other programs, written when a run is complete."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import cv2
import numpy as np

from ..data.images.drawing import encoded
from ..data.labels.objects import printable_text
from ..data.rotated_results import about_convention, dota_texts, names_of_files
from ..utils.errors import UsageError
from ..utils.progress import progress
from .place import Entry, Output, Wanted, ids_of

if find_spec('pycocotools'):  # mmdet brings it, mmseg does not
    from pycocotools import mask as coco_mask


@dataclass(frozen=True)
class Detections:
    """The predictions for all images.

    Args:
        output: their place.
        entries: of the images.
        classes: names.
        convention: of rotated boxes.
    """

    output: Output
    entries: Sequence[Entry]
    classes: Sequence[str]
    convention: str | None

    def write(self, name: str, text: str, entry: Entry | None = None) -> Path:
        """Write a text and return its path; a file of one image that the user edited stays."""
        path = self.output.folder / name
        source = entry['source'] if entry else ''
        self.output.results.write_text(path, text, source, keeps=entry is not None)
        return path


def output_stem(entry: Entry) -> str:
    """The path of an image's files in a folder, without suffix; no other image has it."""
    return Path(entry['picture']).with_suffix('').as_posix().partition('/')[2]


def write_coco(found: Detections) -> Path:
    """A data set, predictions.json; of rotated boxes also dota/, for DOTA's server."""
    images = []
    annotations = list[dict]()
    for number, entry in enumerate(found.entries, start=1):
        image = dict(
            id=number,
            file_name=entry['file_name'],
            height=entry['height'],
            width=entry['width'],
            picture=entry['picture'],
        )
        images.append(image)
        for item in entry['objects']:
            annotations.append({**item, 'id': len(annotations) + 1, 'image_id': number})
    categories = [
        dict(id=number, name=name) for number, name in enumerate(found.classes, start=1)
    ]
    content: dict[str, Any] = dict(
        images=images, annotations=annotations, categories=categories
    )
    if found.convention:
        content['info'] = about_convention(found.convention)
        names = dota_names(images)
        objects = ((names[item['image_id']], item) for item in annotations)
        for name, text in dota_texts(found.classes, objects).items():
            found.write(f'dota/{name}', text)
    return found.write('predictions.json', json_text(content))


def write_results(found: Detections) -> Path:
    """The list that ``loadRes`` of pycocotools takes, results.json, with the ids of a COCO file."""
    labels = found.classes
    file = found.output.wanted.ids
    names = [entry['file_name'] for entry in found.entries]
    images: Mapping[str, Any] = dict(zip(names, count(1)))
    classes: Mapping[str, Any] = dict(zip(labels, count(1)))
    if file:
        images = ids_of(file, 'images', names)
        classes = ids_of(file, 'categories', labels)
    results = []
    for entry in found.entries:
        name = entry['file_name']
        for item in entry['objects']:
            label = labels[item['category_id'] - 1]
            if name in images and label in classes:
                result = dict(image_id=images[name], category_id=classes[label])
                for key in ('bbox', 'score', 'segmentation'):
                    if key in item:
                        result[key] = item[key]
                results.append(result)
    return found.write('results.json', json_text(results))


def write_yolo(found: Detections) -> Path:
    """yolo/labels/NAME.txt and yolo/classes.txt: boxes, corners of rotated boxes, or outlines.

    UsageError if labels of other images would have other classes.
    """
    names = [YOLO_LABELS.format(output_stem(entry)) for entry in found.entries]
    file = found.output.folder / YOLO_CLASSES
    text = lines_text(found.classes)
    others = {*found.output.results.recorded(file.parent)} - {file}
    others.difference_update(found.output.folder / name for name in names)
    if others and file.exists() and file.read_text('utf-8', 'surrogateescape') != text:
        raise UsageError(
            f'{file} has other classes, for labels of other images such as {min(others)}: give '
            'another --out'
        )
    for name, entry in zip(names, found.entries, strict=True):
        sides = np.array([entry['width'], entry['height']])
        lines = []
        for item in entry['objects']:
            points = np.clip(annotation_corners(item), 0, sides) / sides
            low = points.min(0)
            high = points.max(0)
            if not (high > low).all():  # outside of the image
                continue
            if 'segmentation' not in item:
                points = np.stack([(low + high) / 2, high - low])
            numbers = [f'{value:.6f}' for value in points.ravel()]
            if found.output.wanted.scores:
                numbers.append(f'{item["score"]:.4f}')
            lines.append(f'{item["category_id"] - 1} {" ".join(numbers)}')
        found.write(name, lines_text(lines), entry)
    return found.write(YOLO_CLASSES, text).parent


def write_voc(found: Detections) -> Path:
    """voc/Annotations/NAME.xml, whose pixels count from 1, and lists of images and classes.

    The list has all images with labels that were written there, also by earlier commands.
    """
    for entry in found.entries:
        size = xml_nodes(dict(width=entry['width'], height=entry['height'], depth=3))
        name = xml_nodes(dict(filename=Path(entry['file_name']).name))
        text = f'{name}<size>{size}</size>\n'
        for item in entry['objects']:
            left, top, width, height = item['bbox']
            sides = dict(
                xmin=f'{left + 1:.2f}',
                ymin=f'{top + 1:.2f}',
                xmax=f'{left + width:.2f}',
                ymax=f'{top + height:.2f}',
            )
            label = found.classes[item['category_id'] - 1]
            box = xml_nodes(sides)
            name = xml_nodes(dict(name=label, difficult=0))
            text += f'<object>{name}<bndbox>{box}</bndbox></object>\n'
        file = VOC_LABELS.format(output_stem(entry))
        found.write(file, f'<annotation>\n{text}</annotation>\n', entry)
    place = found.output.folder / Path(VOC_LABELS).parent
    written = found.output.results.recorded(place)
    labels = sorted(path for path in written if path.exists())
    names = [path.relative_to(place).with_suffix('').as_posix() for path in labels]
    found.write(VOC_IMAGES, lines_text(names))
    found.write(VOC_CLASSES, lines_text([f'{label}:::' for label in found.classes]))
    return found.output.folder / 'voc'


def write_crops(found: Detections) -> Path:
    """crops/CLASS/NAME_1.jpg: the upright box of each object, cut out of its image."""
    names = names_of_files(found.classes)
    folder = found.output.folder / 'crops'
    written = set()
    entries = [entry for entry in found.entries if entry['objects']]
    for entry in progress(entries, 'crops'):
        pixels = found.output.read(entry['file_name'])
        for number, item in enumerate(entry['objects'], start=1):
            left, top, width, height = item['bbox']
            bottom = max(0, ceil(top + height))
            right = max(0, ceil(left + width))
            part = pixels[max(0, int(top)) : bottom, max(0, int(left)) : right]
            if part.size:  # else the box is outside of the image
                label = names[item['category_id'] - 1]
                path = folder / label / f'{output_stem(entry)}_{number}.jpg'
                found.output.results.write_bytes(
                    path, encoded(part), entry['source'], keeps=True
                )
                written.add(path)
    sources = {entry['source'] for entry in found.entries}
    for path, source in found.output.results.recorded(folder).items():
        # An object that is no longer found
        if source in sources and path not in written:
            found.output.results.remove(path)
    return folder


YOLO_LABELS, YOLO_CLASSES = 'yolo/labels/{}.txt', 'yolo/classes.txt'
VOC_LABELS, VOC_CLASSES = 'voc/Annotations/{}.xml', 'voc/labelmap.txt'
VOC_IMAGES = 'voc/ImageSets/Main/default.txt'


class Format(NamedTuple):
    """A format of detections.

    Args:
        write: its files when all images are done; returns their place.
        files: of all images.
        labels: of one image, by its path in the folder, without suffix.
    """

    write: Callable[[Detections], Path]
    files: tuple[str, ...] = ()
    labels: str | None = None


FORMATS = dict(
    coco=Format(write_coco, ('predictions.json',)),
    results=Format(write_results, ('results.json',)),
    yolo=Format(write_yolo, (YOLO_CLASSES,), YOLO_LABELS),
    voc=Format(write_voc, (VOC_CLASSES, VOC_IMAGES), VOC_LABELS),
    crops=Format(write_crops),
)


def check_wanted(wanted: Wanted, tasks: Sequence[str], has_names: bool) -> None:
    """Raise UsageError if predictions of these tasks cannot be written so.

    Args:
        has_names: of images, which frames of a video have not.
    """
    formats = {*wanted.formats}
    said = ''
    if formats - {*FORMATS}:
        said = f'--write: the formats are {", ".join(FORMATS)}'
    elif formats != {'coco'} and not {'boxes', 'oriented', 'several'} & {*tasks}:
        said = f'--write: for detectors, and the task of this model is {tasks[0]}'
    elif 'voc' in formats and 'oriented' in tasks:
        said = '--write voc: it has no rotated boxes'
    elif 'crops' in formats and not has_names:
        said = '--write crops: not of videos; give the frames as images'
    elif wanted.ids and 'results' not in formats:
        said = '--ids: only --write results has ids'
    if said:
        raise UsageError(said)


def dota_names(images: Sequence[dict]) -> dict[int, str]:
    """The name of each image by its number: with folders and suffix only if others have it, too."""
    times = Counter(Path(image['file_name']).stem for image in images)
    names = {}
    for image in images:
        name = image['file_name']
        stem = Path(name).stem
        names[image['id']] = stem if times[stem] == 1 else name
    return names


def annotation_corners(item: dict) -> np.ndarray:
    """The corners [N, 2] of a rotated box, a mask, or opposite ones of a box."""
    outline = item.get('segmentation')
    if isinstance(outline, dict):
        return mask_outline(outline)
    left, top, width, height = item['bbox']
    points = outline[0] if outline else [left, top, left + width, top + height]
    return np.reshape(points, (-1, 2))


def mask_outline(run_lengths: dict) -> np.ndarray:
    """One polygon [N, 2] along the edges of a mask's pixels, less than a pixel beside them.

    Holes are filled. Parts are joined by lines, there and back. The first corner is repeated until
    no reader can take the numbers, with or without a score, for a box with key points.
    """
    pixels = coco_mask.decode(run_lengths)
    # Pixel x begins and ends at the columns 2 x and 2 x + 2 of a map of twice the size.
    double = np.pad(pixels.repeat(2, 0).repeat(2, 1), (0, 1))
    double = cv2.dilate(double, np.ones((2, 2), np.uint8), anchor=(1, 1))
    found, _ = cv2.findContours(double, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    parts = [cv2.approxPolyDP(part, 1, closed=True)[:, 0] / 2 for part in found]
    points = parts[0] if parts else np.zeros((1, 2))
    for part in parts[1:]:
        apart = np.linalg.norm(points[:, None] - part, axis=-1)
        here, there = np.unravel_index(apart.argmin(), apart.shape)
        part = np.roll(part, -there, 0)
        points = np.concatenate([points[: here + 1], part, part[:1], points[here:]])
    return np.concatenate([points, points[:1].repeat(-(len(points) - 1) % 3, 0)])


def json_text(content: object) -> str:
    """A file of JSON in one line."""
    return json.dumps(content, allow_nan=False) + '\n'


def xml_nodes(values: Mapping[str, object]) -> str:
    """A node of XML for each value."""
    text = ''
    for name, value in values.items():
        text += f'<{name}>{escape(printable_text(str(value)))}</{name}>'
    return text


def lines_text(lines: Iterable[str]) -> str:
    """A text of these lines."""
    return '\n'.join([*lines, ''])
