"""CVAT's own format: one XML file, "CVAT for images 1.1" or "CVAT for video 1.1".

The format, https://docs.cvat.ai/docs/manual/advanced/xml_format, was compared with CVAT's exporter,
cvat/apps/dataset_manager/formats/cvat.py.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from .cvat_pictures import Node, Picture, read_contents
from .files import errors_at, finite_numbers, named_numbers
from .geometry import (
    check_mask,
    ellipse,
    mask_shape,
    polygon_shape,
    rotated_shape,
)
from .inventory import TWO_IMAGES, Inventory, are_elsewhere
from .label_folder import Format, LabelFolder, Read, Split
from .objects import ELSEWHERE, Labelled, Report, Shape
from .places import SPLIT_NAMES, SPLITS
from .splits import split_by_hash, unlabelled_error

FILE = 'annotations.xml'
MOST_FILES = 20  # a folder with more XML files has one for each image, so is not CVAT's
CORNERS = ('xtl', 'ytl', 'xbr', 'ybr')


def find_cvat(inventory: Inventory) -> LabelFolder | None:
    """annotations.xml beside images/, or train/annotations.xml and val/ or train.xml and val.xml.

    They are in the folder, or in one of the folders in it. One file is split by the subsets of its
    images, else by a hash. ValueError for several files that no split names, or tracks of frames
    without images.
    """
    root = inventory.root
    found = files_in(root, inventory)
    if not found:
        several = []
        sources = []
        for folder in inventory.subfolders(root).values():
            splits = files_in(folder, inventory)
            if splits:
                several.append(splits)
                sources += [part.source for part in splits.values()]
        if len(several) > 1:
            raise several_files_error(root, sources)
        found = several[0] if several else {}
    if not found:
        return None
    if len(found) == len(SPLITS):
        return LabelFolder(CVAT, found, 'folder')
    return split_one(found['train'])


def files_in(home: Path, inventory: Inventory) -> dict[str, Split]:
    """The file of each split in a folder, or the only file as 'train'.

    A split has the only file in train/, train.xml or annotations/train.xml.
    """
    found = {}
    folders = inventory.subfolders(home)
    for split, names in SPLITS.items():
        for name in names:
            file = single_file(folders[name], inventory) if name in folders else None
            for path in (home / f'{name}.xml', home / 'annotations' / f'{name}.xml'):
                if file is None and inventory.is_file(path) and is_cvat(path):
                    file = path
            if file:
                found[split] = part_of(file, inventory)
                break
    if inventory.asked and 'val' in found:
        found.setdefault('train', found['val'])
    if found and 'train' not in found:
        raise ValueError(
            f'{found["val"].source} has labels for validation, and no train/ beside it has labels'
        )
    is_single = not found
    if is_single:
        file = single_file(home, inventory)
        if file:
            found['train'] = part_of(file, inventory)
    if len(found) == 1 and not (is_single and found['train'].images == home):
        for name in SPLITS['val']:
            if name in folders and name != 'test':
                place = folders[name]
                if inventory.paths(place, inventory.image_suffixes):
                    raise unlabelled_error(place, found['train'].source)
    return found


def part_of(file: Path, inventory: Inventory) -> Split:
    """A file of labels and the folder of its images: images/ beside it or beside its folder."""
    home = file.parent.parent if file.parent.name == 'annotations' else file.parent
    places = [home / 'images' / file.stem, home / 'images', home]
    images = next(place for place in places if str(place) in inventory.folders)
    return Split(file, images, inventory=inventory)


def single_file(folder: Path, inventory: Inventory) -> Path | None:
    """The only file of labels in a folder, mostly annotations.xml."""
    files = inventory.directly(folder, ('.xml',))
    if len(files) > MOST_FILES:
        files = [path for path in files if path.name.startswith('annotations')]
    found = [path for path in files if is_cvat(path)]
    if len(found) > 1:
        raise several_files_error(inventory.root, found)
    if found:
        return found[0]
    return None


def several_files_error(root: Path, files: Sequence[Path]) -> ValueError:
    """The error of several files that no split names."""
    names = ', '.join(path.relative_to(root).as_posix() for path in files)
    return ValueError(
        f'{root} has {names} of CVAT, and nothing says which is for training: put them in '
        f'train/{FILE} and val/{FILE}, export the project as one, or set own.data_root to one'
    )


def is_cvat(file: Path) -> bool:
    """Return whether the root of an XML file is CVAT's; ValueError for a broken annotations.xml."""
    try:
        with errors_at(file):
            _, root = next(ElementTree.iterparse(file, events=('start',)))
            return root.tag == 'annotations'
    except ValueError:
        if file.name == FILE:
            raise
        return False


def split_one(part: Split) -> LabelFolder:
    """Both splits of one file: by subsets of a project, by folders of images, or by a hash."""
    pictures, classes = read_contents(part)
    subsets = defaultdict(set)
    for picture in pictures:
        subset = picture.subset.lower()
        if subset in ('', 'default'):
            folders = picture.stem.lower().split('/')[:-1]
            named = [name for name in folders if name in SPLIT_NAMES]
            subset = named[0] if named else subset
        hides = part.inventory.hides
        if not (hides and hides.search(subset)):
            subsets[subset].add(picture.stem)
    train, val = [next(filter(subsets.get, some), '') for some in SPLITS.values()]
    if part.inventory.asked:
        train = train or val
    if val and not train:
        raise ValueError(
            f'{part.source} has a subset {val!r} for validation, and none for training among '
            f'{", ".join(sorted(subsets))}'
        )
    if train:
        taken = [train, val] if val else [train]
        said = ', '.join(taken)
        others = sorted(name or 'images of none' for name in subsets.keys() - {*taken})
        if others:
            said += f'; not {", ".join(others)}'
        words = f'subset ({said})'
        if val:
            splits = {
                'train': replace(part, names=frozenset(subsets[train])),
                'val': replace(part, names=frozenset(subsets[val])),
            }
        else:
            splits, described = split_by_hash(part, subsets[train])
            words += f' and {described}'
    else:
        stems = set(part.inventory.images(part.images).by_stem)
        splits, words = split_by_hash(part, stems.union(*subsets.values()))
        if any(picture.is_frame for picture in pictures):
            words += ', so both splits have frames of one video'
    return LabelFolder(CVAT, splits, words, classes or None)


def read_cvat(part: Split, classes: Sequence[str] | None, report: Report) -> Read:
    """The images and frames of one file; classes in the order of its project, task or job."""
    pictures, listed = read_contents(part)
    return classes or listed, labelled_images(pictures, part, report)


def labelled_images(
    pictures: list[Picture],
    part: Split,
    report: Report,
) -> Iterator[Labelled]:
    """The images of a split that the file has."""
    images = part.inventory.images(part.images)
    named = set[Path]()
    for picture in pictures:
        if not part.has(picture.stem):
            continue
        if picture.file is not None:
            named.add(picture.file)
            if are_elsewhere(picture.name, picture.stem):
                report.note(ELSEWHERE, picture.name)
            yield labelled(picture, picture.file, part, report)
        else:
            number = sum(node.tag != 'tag' for node in picture.nodes)
            report.leave_out_image(picture.name, number)
    for stem, file in images:
        if part.has(stem) and file not in named:
            report.note('image that the labels do not name (left out)', file.name)
    for file, first in images.doubles:
        if part.has(images.stem_of(file)) and file not in named:
            both = f'{first.name} and {file.name}'
            report.note(TWO_IMAGES, both)


def labelled(picture: Picture, file: Path, part: Split, report: Report) -> Labelled:
    """An image or frame with its objects."""
    item = Labelled(file, size=picture.size)
    for number, node in enumerate(picture.nodes, start=1):
        where = f'{picture.name}, {node.tag} {number}'
        if node.tag == 'tag':
            report.note('tag of a whole image (no object)', where)
            continue
        with errors_at(f'{part.source}, {where}'):
            if not node.label:
                raise ValueError('its label is empty or missing')
            shape = mask_of(node, item, part) if node.tag == 'mask' else shape_of(node)
        if isinstance(shape, Shape):
            shape.where = where
            item.shapes.append(shape)
        else:
            item.leave_out(shape, where, node.label)
    return item


def shape_of(node: Node) -> Shape | str:
    """The object of a node; the reason to leave it out if it has no area or another form."""
    label = node.label
    (degrees,) = finite_numbers([node.attrib.get('rotation') or 0], 'rotation')
    if node.tag == 'box':
        left, top, right, bottom = named_numbers(node.attrib.get, *CORNERS)
        box = left, top, right - left, bottom - top
        if degrees:
            return rotated_shape(label, box, degrees)
        return Shape(label, box)
    if node.tag == 'ellipse':
        x, y, across, down = named_numbers(node.attrib.get, 'cx', 'cy', 'rx', 'ry')
        return polygon_shape(label, ellipse(x, y, across, down, degrees))
    if node.tag == 'polygon':
        given = node.attrib.get('points', '')
        points = finite_numbers(re.split('[,;]', given), 'a corner')
        if given.count(';') < 2:
            return 'polygon of less than three corners'
        return polygon_shape(label, points)
    return f'object of type {node.tag}'


def mask_of(node: Node, item: Labelled, part: Split) -> Shape | str:
    """A mask: run lengths of the rows in its box, the first of pixels outside of the object."""
    place = named_numbers(node.attrib.get, 'left', 'top', 'width', 'height')
    left, top, width, height = map(int, place)
    lengths = finite_numbers(node.attrib.get('rle', '').split(','), 'a run length')
    counts = np.array(lengths, int)
    if min(width, height, counts.min() + 1) < 1 or counts.sum() != width * height:
        raise ValueError(f'run lengths of {counts.sum()} pixels for {width} x {height}')
    try:
        image = part.inventory.header(item.file)
    except ValueError:
        return 'object of an image that cannot be read'
    check_mask(width, height, image)
    values = (np.arange(len(counts)) % 2).astype(np.uint8)
    mask = np.repeat(values, counts).reshape(height, width)
    item.size = item.size or (image.height, image.width)
    try:
        return mask_shape(node.label, mask, left, top, item.size)
    except ValueError:
        return 'mask without a pixel in its image'


CVAT = Format('cvat', 'CVAT', ('.xml',), find_cvat, read_cvat)
