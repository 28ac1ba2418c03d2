"""Pascal VOC: an XML file for each image, whose pixels count from 1.

The format is that of the devkit, http://host.robots.ox.ac.uk/pascal/VOC/voc2012, with what
Roboflow, Labelbox, CVAT, labelImg and roLabelImg write: folders of splits, polygons and rotated
boxes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from .files import (
    IMAGE_SUFFIXES,
    Images,
    finite,
    list_files,
    naming,
    read_text,
    read_xml,
    subfolders,
)
from .geometry import box_shape, polygon_shape, rotated_shape
from .objects import NO_IMAGE, Format, Labelled, LabelFolder, Labels, Read, Report, Shape
from .splits import SPLITS, by_folder, by_hash

LABEL_FOLDERS = ('annotations', 'annotation', 'xmls', 'xml', 'labels', 'label')
IMAGE_FOLDERS = ('jpegimages', 'images', 'image', 'imgs', 'img', 'jpgimages', 'pngimages')
LOOKED_AT = 5  # files that decide whether a folder has annotations of Pascal VOC
CORNERS = ('xmin', 'ymin', 'xmax', 'ymax')
TRUE = ('1', 'true', 'yes')
PER_CLASS = re.compile(r'\s+(-1|0|1)$')  # the last word in lists of one class
TWO_PATHS = re.compile(rf'^(\S.*(?:{"|".join(map(re.escape, IMAGE_SUFFIXES))}))\s.*\.xml$', re.I)


def find_voc(root: Path) -> LabelFolder | None:
    """Annotations/, JPEGImages/ and lists in ImageSets/Main; or folders of XML files and images.

    The lists, or folders of the splits within or around these two, say which image is in which
    split; else a hash does. Folders may have the other names of ``LABEL_FOLDERS`` and
    ``IMAGE_FOLDERS``, or XML files lie beside the images.
    """
    home = voc_home(root)
    together = labels_in(home)
    if together and (found := by_lists(home, together)):
        return LabelFolder(VOC, *found)
    if found := by_folder(lambda name: labels_of_split(home, together, name)):
        return LabelFolder(VOC, *found)
    if together is None and (together := beside_images(home)) is None:
        return None
    return LabelFolder(VOC, *by_hash(together, stems_in(together)))


def voc_home(root: Path) -> Path:
    """The folder of the data set: VOC2012 or the like below the root, else the root.

    Raises:
        ValueError: several of them.
    """
    if labels_in(root):
        return root
    depths = ('VOC20*', '*/VOC20*', '*/*/VOC20*')
    homes = [path for depth in depths for path in sorted(root.glob(depth)) if path.is_dir()]
    homes = [path for path in homes if labels_in(path)]
    if len(homes) > 1:
        names = ', '.join(str(path) for path in homes)
        raise ValueError(f'{root} has several VOC data sets: set own.data_root to one of {names}')
    return homes[0] if homes else root


def labels_in(home: Path) -> Labels | None:
    """The folders of XML files and of images in a folder, or the folder itself if it has both."""
    folders = subfolders(home)
    images = next((folders[name] for name in IMAGE_FOLDERS if name in folders), None)
    for name in LABEL_FOLDERS:
        if name in folders and has_voc(list_files(folders[name], ('.xml',))):
            return Labels(folders[name], images or home)
    if images and has_voc(list_files(images, ('.xml',))):
        return Labels(images, images)
    if has_voc(sorted(home.glob('*.xml'))):
        return Labels(home, home)
    return None


def beside_images(root: Path) -> Labels | None:
    """The root, if folders below it have images with an XML file beside each, and no split."""
    files = list_files(root, ('.xml',))
    folders = {part.lower() for path in files for part in path.relative_to(root).parts[:-1]}
    if folders & {*SPLITS['train'], *SPLITS['val']} or not has_voc(files):
        return None
    labels = Labels(root, root)
    images = Images(labels, Report())
    return labels if all(stem_of(path, labels) in images.by_stem for path in files) else None


def has_voc(files: Sequence[Path]) -> bool:
    """Return whether one of the first XML files is an annotation of Pascal VOC.

    Raises:
        ValueError: none of them can be read.
    """
    problems = []
    for path in files[:LOOKED_AT]:
        try:
            if read_xml(path).tag == 'annotation':
                return True
        except ValueError as problem:
            problems.append(problem)
    if problems and len(problems) == len(files[:LOOKED_AT]):
        raise problems[0]
    return False


def by_lists(home: Path, labels: Labels) -> tuple[dict[str, Labels], str] | None:
    """The splits by trainval.txt, train.txt, ... in ImageSets/Main, ImageSets or the folder itself.

    Lists of images without labels, such as VOC2012's test images, are not taken. A part of the
    training list is for validation where no other list is.

    Raises:
        ValueError: there are lists, but none of labelled training images.
    """
    if not (files := lists_in(home)):
        return None
    images, stems = Images(labels, Report()), stems_in(labels)
    lists = {name: listed(path, images, labels) for name, path in files.items()}
    shares = {name: len(names & stems) / max(len(names), 1) for name, names in lists.items()}
    for least in (0.5, 1e-9):
        for train, val in PAIRS:
            if min(shares.get(train, 0), shares.get(val, 0)) >= least:
                splits = {'train': lists[train], 'val': lists[val]}
                parts = {split: replace(labels, names=names) for split, names in splits.items()}
                return parts, f'ImageSets ({files[train].name}, {files[val].name})'
    for name in TRAINING:
        if shares.get(name):
            parts, described = by_hash(labels, lists[name])
            return parts, f'{files[name].name} and {described}'
    names = ', '.join(str(path.relative_to(home)) for path in files.values())
    raise ValueError(
        f'{home} has {names}, but no list of training images (train.txt) with labels in '
        f'{labels.source}'
    )


PAIRS = (('trainval', 'test'), *product(SPLITS['train'], SPLITS['val']))
TRAINING = ('trainval', *SPLITS['train'], 'default')  # CVAT exports default.txt


def lists_in(home: Path) -> dict[str, Path]:
    """The lists of a data set by name, from the first folder that has some."""
    known = {*TRAINING, *SPLITS['val']}
    for place in (home / 'ImageSets' / 'Main', home / 'ImageSets', home):
        files = {path.stem.lower(): path for path in sorted(place.glob('*.txt'))}
        found = {name: path for name, path in files.items() if name in known}
        if found and (place != home or any(name in TRAINING for name in found)):
            return found
    return {}


def listed(path: Path, images: Images, labels: Labels) -> frozenset[str]:
    """The images in a list, as paths in their folder without suffix; also those not there.

    A line is a name or path, with a suffix or without, in quotes or not, and may end with the
    number of a list of one class or with the path of the XML file.
    """
    names = set()
    for line in read_text(path).splitlines():
        if not (name := line.strip().strip('"').strip()):
            continue
        short = PER_CLASS.sub('', name)
        if match := TWO_PATHS.match(name):
            name = short = match[1]
        if file := images.find(name) or images.find(short):
            names.add(labels.path_of(file))
        else:
            names.add(without_suffix(short))
    return frozenset(names)


def without_suffix(name: str) -> str:
    """A path without the suffix of an image."""
    path = Path(name)
    known = path.suffix.lower() in IMAGE_SUFFIXES
    return (path.with_suffix('') if known else path).as_posix()


def labels_of_split(home: Path, together: Labels | None, name: str) -> Labels | None:
    """The labels in the folder of a split, or in folders of the split for labels and images."""
    if (folder := subfolders(home).get(name)) and (found := labels_in(folder)):
        return found
    if together is None or together.source == home:
        return None
    source = subfolders(together.source).get(name)
    images = subfolders(together.images).get(name)
    if source and not has_voc(list_files(source, ('.xml',))):
        source = None
    if source and images:
        return Labels(source, images)
    if source:
        part = Labels(source, together.images)
        return Labels(source, together.images, frozenset(stems_in(part)))
    if images and together.source != together.images:
        files = list_files(images, IMAGE_SUFFIXES)
        names = frozenset(together.path_of(file) for file in files)
        return Labels(together.source, together.images, names)
    return None


def stems_in(labels: Labels) -> set[str]:
    """The images with a file of labels, as paths without suffix; the file's path if none is."""
    files = list_files(labels.source, ('.xml',))
    owned = own_images(files, labels, Images(labels, Report()))
    return {labels.path_of(owned[f]) if f in owned else stem_of(f, labels) for f in files}


def stem_of(path: Path, labels: Labels) -> str:
    """The path of an XML file in the folder of labels, without its suffix."""
    return path.relative_to(labels.source).as_posix()[: -len('.xml')]


def own_images(files: Sequence[Path], labels: Labels, images: Images) -> dict[Path, Path]:
    """The image of each XML file that has the path of an image, or the name of one only."""
    found: dict[Path, Path] = {}
    for path in files:
        stem = stem_of(path, labels)
        if file := images.by_stem.get(stem) or images.by_path.get(stem):  # a.xml, a.jpg.xml
            found[path] = file
    taken = set(found.values())
    for path in files:
        same = images.by_name.get(path.stem, ())
        if path not in found and len(same) == 1 and same[0] not in taken:
            found[path] = same[0]
            taken.add(same[0])
    return found


def read_voc(labels: Labels, classes: Sequence[str] | None, report: Report) -> Read:
    """Images with an XML file: of their name, else the one whose ``filename`` they are."""
    return classes or (), labelled_images(labels, report)


def labelled_images(labels: Labels, report: Report) -> Iterator[Labelled]:
    """The images of a split that have a file of labels."""
    images = Images(labels, report)
    files = list_files(labels.source, ('.xml',))
    owned = own_images(files, labels, images)
    for path, file in owned.items():
        if labels.takes(file) and (root := annotation_in(path, report)) is not None:
            yield labelled(path, root, file, report)
    taken = set(owned.values())
    for path in files:
        if path in owned or (root := annotation_in(path, report)) is None:
            continue
        name = (root.findtext('filename') or '').strip()
        file = images.find(f'{(root.findtext("folder") or "").strip()}/{name}') if name else None
        is_second = file in taken
        if file is not None:
            taken.add(file)
        stem = stem_of(path, labels)
        if not (labels.names is None or stem in labels.names or (file and labels.takes(file))):
            continue
        if file is not None and not is_second:
            yield labelled(path, root, file, report)
        elif number := len(root.findall('object')):
            kind = 'object of an image that has another XML file' if is_second else NO_IMAGE
            report.leave_out(kind, path.name, number)
        else:
            report.note('XML file of no image or of one that has another', path.name)
    note_unlabelled(images, files, taken, report)


def note_unlabelled(
    images: Images, files: Sequence[Path], taken: set[Path], report: Report
) -> None:
    """Note images of the split that have no XML file, and listed ones that are not there."""
    labels = images.labels
    for _, file in images.chosen():
        if file not in taken:
            report.note('image without an XML file (not labelled, so left out)', file.name)
    stems = {stem_of(path, labels) for path in files}
    for name in sorted((labels.names or frozenset()) - images.by_stem.keys() - stems):
        report.note('listed image that is not there', name)


def annotation_in(path: Path, report: Report) -> Element | None:
    """The root of an annotation; None for other XML files, which are noted."""
    root = read_xml(path)
    if root.tag == 'annotation':
        return root
    report.note('XML file that is no annotation of Pascal VOC (left out)', path.name)
    return None


def labelled(path: Path, root: Element, file: Path, report: Report) -> Labelled:
    """An image with the objects of its XML file."""
    item = Labelled(file, size=size_in(root))
    for number, node in enumerate(root.findall('object'), start=1):
        where = f'{path.name}, object {number}'
        if not len(node) or (node.findtext('deleted') or '').strip() == '1':
            report.note('empty or deleted <object>', where)
            continue
        with naming(where):
            shape = shape_of(node, where, report)
        if shape is None:
            item.leave_out('object without bndbox, polygon or robndbox', where)
        else:
            item.shapes.append(shape)
    return item


def size_in(root: Element) -> tuple[int, int] | None:
    """(height, width) of the image; None where a tool wrote 0, 'None' or nothing."""
    try:
        height, width = (int(float(root.findtext(f'size/{k}') or 0)) for k in ('height', 'width'))
    except ValueError:
        return None
    return (height, width) if height > 0 and width > 0 else None


def shape_of(node: Element, where: str, report: Report) -> Shape | None:
    """The object of a node: a rotated box, polygons, or a box; None if it has none of them."""
    if not (label := (node.findtext('name') or '').strip()):
        raise ValueError('its <name> is empty or missing')
    difficult = node.findtext('difficult') or node.findtext('Difficult') or ''
    more: dict[str, Any] = dict(where=where, difficult=difficult.strip().lower() in TRUE)
    box, rotated = node.find('bndbox'), node.find('robndbox')
    if rotated is not None and rotated.find('angle') is not None:
        return rotated_box(rotated, label, more)
    polygons = [points for part in node.findall('polygon') if len(points := points_in(part)) > 4]
    upright = None
    if box is not None:
        if box.find('xmin') is None and len(points := points_in(box)) > 4:  # corners x0, y0, ...
            polygons.append(points)
        else:
            upright = upright_box(box, label, more, report)
    if not polygons:
        return upright
    outline = polygon_shape(label, np.concatenate(polygons), **more)
    outline.outline = polygons
    outline.box = upright.box if upright else outline.box
    return outline


def upright_box(box: Element, label: str, more: dict[str, Any], report: Report) -> Shape:
    """The box of the pixels from (xmin, ymin) to (xmax, ymax), which count from 1."""
    values = [finite([box.findtext(name)], f'<{name}>')[0] for name in CORNERS]
    left, right = sorted(values[::2])
    top, bottom = sorted(values[1::2])
    if [left, top, right, bottom] != values:
        report.note('box with its corners in another order (put in order)', more['where'])
    return box_shape(label, left - 1, top - 1, right, bottom, **more)


def rotated_box(box: Element, label: str, more: dict[str, Any]) -> Shape:
    """The box of roLabelImg: centre and sides in pixels from 0, and clockwise radians.

    Raises:
        ValueError: its angle is more than a circle, so not in radians.
    """
    names = ('cx', 'cy', 'w', 'h', 'angle')
    x, y, width, height, angle = (finite([box.findtext(k)], f'<{k}>')[0] for k in names)
    if abs(angle) > 2 * np.pi:
        raise ValueError(f'<angle> is {angle:g}, more than a circle: write it in radians')
    place = (x - width / 2, y - height / 2, width, height)
    return rotated_shape(label, place, np.rad2deg(angle), **more)


def points_in(polygon: Element) -> list[float]:
    """The corners [x, y, ...] of a polygon, from <x1>, <y1>, ..., which count from 1.

    Or from the <pt><x>, <y></pt> of LabelMe's XML files, which count from 0.
    """
    if pairs := [(point.findtext('x'), point.findtext('y')) for point in polygon.findall('pt')]:
        return [value for pair in pairs for value in finite(pair, 'a corner')]
    numbered = {node.tag.lower(): node.text for node in polygon}
    order = sorted(int(name[1:]) for name in numbered if re.fullmatch(r'x\d+', name))
    values = [numbered.get(f'{axis}{number}') for number in order for axis in 'xy']
    return [value - 1 for value in finite(values, 'a corner')]


VOC = Format('voc', 'Pascal VOC', ('.xml',), find_voc, read_voc)
