"""Predictions of a detector in the formats of other programs, written when a run is complete."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import cv2
import mmcv
import numpy as np

from ..datasets.labels.coco_files import load_coco
from ..datasets.labels.objects import printable_text
from ..datasets.rotated_results import about_convention, names_of_files, write_dota
from ..project.errors import UsageError
from ..project.identity import Identity
from ..utils.atomic_write import atomic_folder, atomic_write_text
from ..utils.progress import progress
from .journal import Entry, ImageJournal

if TYPE_CHECKING:
    from .files import DetectionFiles
if find_spec('pycocotools'):  # mmdet brings it, mmseg does not
    from pycocotools import mask as coco_mask

ABOUT = 'file_name', 'height', 'width', 'picture'  # of an image in predictions.json


@dataclass(frozen=True)
class Output:
    """The place of predictions, and what is written.

    Args:
        folder: for all files.
        settings: what the predictions depend on; JSON.
        min_scores: detectors: score of a box that is written, by class, see ``least_scores``.
        scores: segmentors: also write the probability of each class; of 'yolo' the score of a box.
        formats: detectors: names in ``FORMATS``.
        ids: COCO file with the ids of images and classes, for 'results'.
        read: the pixels of an image by its ``file_name``, BGR, for 'crops'.
        rank: of the process.
        journals: of the images, one for each task.
    """

    folder: Path
    settings: Mapping[str, Any]
    min_scores: Mapping[str, float]
    scores: bool
    formats: Sequence[str]
    ids: Path | None
    read: Callable[[str], np.ndarray]
    rank: int = 0
    journals: list[ImageJournal] = field(default_factory=list)

    def within(self, name: str, identity: Identity | None = None) -> Output:
        """The output of one of several tasks, in a folder of its own."""
        more = {} if identity is None else {name: identity.described()}
        return replace(self, folder=self.folder / name, settings={**self.settings, **more})

    def journal(self) -> ImageJournal:
        """The images that are done, by this run or an interrupted one."""
        self.journals.append(ImageJournal(self.folder, self.settings, self.rank))
        return self.journals[-1]

    def gather(self, names: Sequence[str]) -> None:
        """Take the images of all processes, in the order of their names."""
        for journal in self.journals:
            journal.gather(names)

    def check(self, tasks: Sequence[str], classes: Sequence[str], names: Sequence[str]) -> None:
        """Raise UsageError if predictions of these tasks cannot be written in these formats.

        Print what `ids` lacks of the classes, and of the names of images (none of a video).
        """
        formats, said = {*self.formats}, ''
        if formats - {*FORMATS}:
            said = f'--write: the formats are {", ".join(FORMATS)}'
        elif formats != {'coco'} and not {'boxes', 'oriented'} & {*tasks}:
            said = f'--write: for detectors, and the task of this model is {tasks[0]}'
        elif 'voc' in formats and 'oriented' in tasks:
            said = '--write voc: it has no rotated boxes'
        elif 'crops' in formats and not names:
            said = '--write crops: not of videos; give the frames as images'
        elif self.ids and 'results' not in formats:
            said = '--ids: only --write results has ids'
        if said:
            raise UsageError(said)
        for kind, given in (('categories', classes), ('images', names)):
            lacking = sorted({*given} - {*ids_of(self.ids, kind, given)}) if self.ids else []
            if lacking:
                print(f'{self.ids} lacks {len(lacking)} {kind}, such as {lacking[0]}: left out')


def output_stem(entry: Entry) -> str:
    """The path of an image's files in a folder, without suffix; no other image has it."""
    return Path(entry['picture']).with_suffix('').as_posix().partition('/')[2]


def write_coco(files: DetectionFiles) -> Path:
    """A data set, predictions.json; of rotated boxes also dota/, for DOTA's server."""
    images, annotations = list[dict](), list[dict]()
    for number, entry in enumerate(files.journal.entries.values(), start=1):
        images.append(dict(id=number, **{key: entry[key] for key in ABOUT}))
        for item in entry['objects']:
            annotations.append({**item, 'id': len(annotations) + 1, 'image_id': number})
    categories = [dict(id=number, name=name) for number, name in enumerate(files.classes, start=1)]
    content = dict[str, Any](images=images, annotations=annotations, categories=categories)
    if files.convention:
        content['info'] = about_convention(files.convention)
        names = dota_names(images)
        objects = ((names[item['image_id']], item) for item in annotations)
        write_dota(files.out / 'dota', files.classes, objects)
    return write_json(files.out / 'predictions.json', content)


def write_results(files: DetectionFiles) -> Path:
    """The list that ``loadRes`` of pycocotools takes, results.json, with the ids of a COCO file."""
    names, labels, results = [*files.journal.entries], files.classes, []
    images, classes = [{name: n for n, name in enumerate(x, start=1)} for x in (names, labels)]
    if file := files.output.ids:
        images, classes = ids_of(file, 'images', names), ids_of(file, 'categories', labels)
    for name, entry in files.journal.entries.items():
        for item in entry['objects']:
            label = labels[item['category_id'] - 1]
            if name in images and label in classes:
                about = {key: item[key] for key in ('bbox', 'score', 'segmentation') if key in item}
                results.append(dict(image_id=images[name], category_id=classes[label], **about))
    return write_json(files.out / 'results.json', results)


def write_yolo(files: DetectionFiles) -> Path:
    """yolo/labels/NAME.txt and yolo/classes.txt: boxes, corners of rotated boxes, or outlines."""
    out = files.out / 'yolo'
    with atomic_folder(out / 'labels') as folder:
        for entry in files.journal.entries.values():
            sides, lines = np.array([entry['width'], entry['height']]), []
            for item in entry['objects']:
                points = np.clip(annotation_corners(item), 0, sides) / sides
                low, high = points.min(0), points.max(0)
                if 'segmentation' not in item:
                    points = np.stack([(low + high) / 2, high - low])
                numbers = [f'{value:.6f}' for value in points.ravel()]
                numbers += [f'{item["score"]:.4f}'] if files.output.scores else []
                if (high > low).all():  # else it is outside of the image
                    lines.append(f'{item["category_id"] - 1} {" ".join(numbers)}\n')
            atomic_write_text(folder / f'{output_stem(entry)}.txt', ''.join(lines))
    atomic_write_text(out / 'classes.txt', ''.join(f'{label}\n' for label in files.classes))
    return out


def write_voc(files: DetectionFiles) -> Path:
    """voc/Annotations/NAME.xml, whose pixels count from 1, and lists of images and classes."""
    out = files.out / 'voc'
    with atomic_folder(out / 'Annotations') as folder:
        for entry in files.journal.entries.values():
            size = xml_nodes(dict(width=entry['width'], height=entry['height'], depth=3))
            name = xml_nodes(dict(filename=Path(entry['file_name']).name))
            text = f'{name}<size>{size}</size>\n'
            for item in entry['objects']:
                left, top, width, height = item['bbox']
                sides = dict(xmin=left + 1, ymin=top + 1, xmax=left + width, ymax=top + height)
                box = xml_nodes({side: f'{value:.2f}' for side, value in sides.items()})
                name = xml_nodes(dict(name=files.classes[item['category_id'] - 1], difficult=0))
                text += f'<object>{name}<bndbox>{box}</bndbox></object>\n'
            file = folder / f'{output_stem(entry)}.xml'
            atomic_write_text(file, f'<annotation>\n{text}</annotation>\n')
    names = ''.join(f'{output_stem(entry)}\n' for entry in files.journal.entries.values())
    atomic_write_text(out / 'ImageSets' / 'Main' / 'default.txt', names)
    atomic_write_text(out / 'labelmap.txt', ''.join(f'{label}:::\n' for label in files.classes))
    return out


def write_crops(files: DetectionFiles) -> Path:
    """crops/CLASS/NAME_1.jpg: the upright box of each object, cut out of its image."""
    names = names_of_files(files.classes)
    with atomic_folder(files.out / 'crops') as folder:
        for entry in progress([x for x in files.journal.entries.values() if x['objects']], 'crops'):
            pixels = files.output.read(entry['file_name'])
            for number, item in enumerate(entry['objects'], start=1):
                left, top, width, height = item['bbox']
                bottom, right = max(0, ceil(top + height)), max(0, ceil(left + width))
                part = pixels[max(0, int(top)) : bottom, max(0, int(left)) : right]
                if part.size:  # else the box is outside of the image
                    place = folder / names[item['category_id'] - 1]
                    mmcv.imwrite(part, str(place / f'{output_stem(entry)}_{number}.jpg'))
    return files.out / 'crops'


# Each writes the files of a format when all images are done, and returns their place.
FORMATS: dict[str, Callable[[DetectionFiles], Path]] = dict(
    coco=write_coco, results=write_results, yolo=write_yolo, voc=write_voc, crops=write_crops
)


whole_file = cache(partial(load_coco, is_whole=True))


def ids_of(file: Path, kind: str, names: Sequence[str]) -> dict[str, Any]:
    """The ids of the images or categories in a COCO file that have one of the names.

    An image may be in another folder there if no two have the last part of its name. UsageError,
    ValueError if the file is no COCO file, or has none of the names.
    """
    content, key = whole_file(file).content, 'file_name' if kind == 'images' else 'name'
    if not isinstance(content, dict) or not isinstance(content.get(kind), list):
        raise UsageError(f'--ids {file}: no COCO file, which has a list of {kind}')
    known = {entry[key]: entry['id'] for entry in content[kind] if {key, 'id'} <= {*entry}}
    ids = {name: known[name] for name in names if name in known}
    if kind == 'images':
        last = {Path(name).name: number for name, number in known.items()}
        counts = [Counter(Path(name).name for name in some) for some in (known, names)]
        only = (name for name in names if all(x[Path(name).name] == 1 for x in counts))
        ids |= {name: last[Path(name).name] for name in only}
    if names and not ids:
        there = ', '.join(map(str, [*known][:3]))
        raise UsageError(f'--ids {file}: its {kind} ({there} ...) have no {names[0]}, or any other')
    return ids


def dota_names(images: Sequence[dict]) -> dict[int, str]:
    """The name of each image by its number: with folders and suffix only if others have it, too."""
    stems = {image['id']: Path(image['file_name']).stem for image in images}
    times = Counter(stems.values())
    return {
        image['id']: stem if times[stem] == 1 else image['file_name']
        for image, stem in zip(images, stems.values(), strict=True)
    }


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


def write_json(file: Path, content: object) -> Path:
    """Write a file, and return its path."""
    atomic_write_text(file, json.dumps(content, allow_nan=False) + '\n')
    return file


def xml_nodes(values: Mapping[str, object]) -> str:
    """A node of XML for each value."""
    return ''.join(
        f'<{name}>{escape(printable_text(str(text)))}</{name}>' for name, text in values.items()
    )
