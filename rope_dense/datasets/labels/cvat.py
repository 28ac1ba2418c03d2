"""CVAT's own format: one XML file, "CVAT for images 1.1" or "CVAT for video 1.1".

The format, https://docs.cvat.ai/docs/manual/advanced/xml_format, was compared with CVAT's exporter,
cvat/apps/dataset_manager/formats/cvat.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from ..images.headers import read_header
from .cvat_pictures import Contents, Picture, contents_of, with_nodes
from .files import Images, finite, naming, subfolders
from .geometry import ellipse, mask_shape, polygon_shape, rotated_shape
from .objects import NO_IMAGE, Format, LabelFolder, Labelled, Labels, Read, Report, Shape
from .splits import (
    SPLIT_NAMES,
    SPLITS,
    Splits,
    by_folder,
    by_hash,
    check_unlabelled,
    in_folders,
)

FILE = 'annotations.xml'
MOST_FILES = 20  # a folder with more XML files has one for each image, so is not CVAT's
CORNERS = ('xtl', 'ytl', 'xbr', 'ybr')


def find_cvat(root: Path) -> LabelFolder | None:
    """annotations.xml beside images/, or train/annotations.xml and val/ or train.xml and val.xml.

    They are in the folder, or in one of the folders in it. One file is split by the subsets of its
    images, else by a hash.

    Raises:
        ValueError: several files that no split names, or tracks of frames without images.
    """
    found = {root: files} if (files := files_in(root)) else {}
    if not found:
        found = {path: files for path in subfolders(root).values() if (files := files_in(path))}
    if len(found) > 1:
        raise several(
            root, [labels.source for files in found.values() for labels in files.values()]
        )
    for files in found.values():
        both = len(files) == len(SPLITS)
        return LabelFolder(CVAT, files, 'folder') if both else split_one(files['train'])
    return None


def files_in(home: Path) -> dict[str, Labels]:
    """The file of each split in a folder, or the only file as 'train'."""
    if splits := in_folders(lambda name: labels_of_split(home, name), [home]):
        return splits
    if (labels := single_file(home)) is None:
        return {}
    if labels.images != home:
        check_unlabelled([home], labels.source)
    return dict(train=labels)


def several(root: Path, files: Sequence[Path]) -> ValueError:
    """The error of several files that no split names."""
    names = ', '.join(path.relative_to(root).as_posix() for path in files)
    return ValueError(
        f'{root} has {names} of CVAT, and nothing says which is for training: put them in '
        f'train/{FILE} and val/{FILE}, export the project as one, or set own.data_root to one'
    )


def split_one(labels: Labels) -> LabelFolder:
    """Both splits of one file."""
    images = Images(labels, Report())
    contents = contents_of(labels.source, images)
    classes = contents.classes or None
    if found := by_subset(labels, contents.pictures):
        return LabelFolder(CVAT, *found, classes)
    stems = {*images.by_stem, *(picture.stem for picture in contents.pictures)}
    splits, described = by_hash(labels, stems)
    if any(picture.is_frame for picture in contents.pictures):
        described += ', so both splits have frames of one video'
    return LabelFolder(CVAT, splits, described, classes)


def labels_of_split(root: Path, name: str) -> Labels | None:
    """The labels of a split: the only file in train/, train.xml or annotations/train.xml."""
    folder = subfolders(root).get(name)
    if folder and (labels := single_file(folder)):
        return labels
    files = root / f'{name}.xml', root / 'annotations' / f'{name}.xml'
    return next((labels_of(x, name) for x in files if x.is_file() and is_cvat(x)), None)


def labels_of(file: Path, split: str = '') -> Labels:
    """A file of labels and the folder of its images: images/ beside it or beside its folder."""
    home = file.parent.parent if file.parent.name == 'annotations' else file.parent
    places = [home / 'images' / split, home / 'images', home]
    return Labels(file, next(place for place in places if place.is_dir()))


def single_file(root: Path) -> Labels | None:
    """The only file of labels in a folder, mostly annotations.xml.

    Raises:
        ValueError: several of them, or one that is cut off.
    """
    files = [path for path in sorted(root.glob('*.xml')) if not path.name.startswith('.')]
    if len(files) > MOST_FILES:
        files = [path for path in files if path.name.startswith('annotations')]
    found = [path for path in files if is_cvat(path)]
    if len(found) > 1:
        raise several(root, found)
    return labels_of(found[0]) if found else None


def is_cvat(file: Path) -> bool:
    """Return whether the root of an XML file is CVAT's.

    Raises:
        ValueError: it has the name of CVAT's file, and is no XML.
    """
    try:
        return next(ElementTree.iterparse(file, events=('start',)))[1].tag == 'annotations'
    except (ElementTree.ParseError, StopIteration, LookupError, ValueError) as error:
        if file.name != 'annotations.xml':
            return False
        raise ValueError(f'{file} is no XML, or cut off ({error})') from error


def by_subset(labels: Labels, pictures: Sequence[Picture]) -> Splits | None:
    """The splits by subsets of a project, or folders in names of images; None for none.

    Raises:
        ValueError: a subset for validation, and none for training.
    """
    subsets: dict[str, set[str]] = {}
    for picture in pictures:
        subsets.setdefault(subset_of(picture), set()).add(picture.stem)
    taken: list[str] = []

    def find(name: str) -> Labels | None:
        if not (stems := subsets.get(name)):
            return None
        taken.append(name)
        return Labels(labels.source, labels.images, frozenset(stems))

    if (found := by_folder(find)) is None:
        if taken:
            raise ValueError(
                f'{labels.source} has a subset {taken[0]!r} for validation, and none for training '
                f'among {", ".join(sorted(subsets))}'
            )
        return None
    splits, described = found
    others = sorted(name or 'images of none' for name in subsets.keys() - {*taken})
    words = f'subset ({", ".join(taken)}{"; not " + ", ".join(others) if others else ""})'
    return splits, words if len(taken) > 1 else f'{words} and {described}'


def subset_of(picture: Picture) -> str:
    """The subset of an image, or the folder of its name that is a split's; '' for neither."""
    if picture.subset.lower() not in ('', 'default'):
        return picture.subset.lower()
    folders = picture.stem.lower().split('/')[:-1]
    return next((name for name in folders if name in SPLIT_NAMES), picture.subset.lower())


def read_cvat(labels: Labels, classes: Sequence[str] | None, report: Report) -> Read:
    """The images and frames of one file; classes in the order of its project, task or job."""
    images = Images(labels, report)
    contents = contents_of(labels.source, images)
    return classes or contents.classes, labelled_images(contents, images, report)


def labelled_images(contents: Contents, images: Images, report: Report) -> Iterator[Labelled]:
    """The images of a split that the file has."""
    labels, named = images.labels, set[Path]()
    for picture in with_nodes(labels.source, contents):
        if not labels.has(picture.stem):
            continue
        if picture.file is not None:
            named.add(picture.file)
            yield labelled(picture, picture.file, labels.source, report)
        elif number := sum(node.tag != 'tag' for _, node in picture.nodes):
            report.leave_out(NO_IMAGE, picture.name, number)
        else:
            report.note('image without objects that is not there', picture.name)
    for _, file in images.chosen():
        if file not in named:
            report.note('image that the labels do not name (left out)', file.name)


def labelled(picture: Picture, file: Path, source: Path, report: Report) -> Labelled:
    """An image or frame with its objects."""
    item = Labelled(file, size=picture.size)
    for number, (label, node) in enumerate(picture.nodes, start=1):
        where = f'{picture.name}, {node.tag} {number}'
        if node.tag == 'tag':
            report.note('tag of a whole image (no object)', where)
            continue
        with naming(f'{source}, {where}'):
            shape = shape_of(node, label, item, where)
        if isinstance(shape, Shape):
            item.shapes.append(shape)
        else:
            item.leave_out(shape, where, label)
    return item


def shape_of(node: Element, label: str, item: Labelled, where: str) -> Shape | str:
    """The object of a node; the reason to leave it out if it has no area or another form."""
    if not label:
        raise ValueError('its label is empty or missing')
    if node.tag == 'box':
        return box_of(node, label, where)
    if node.tag == 'mask':
        return mask_of(node, label, item, where)
    if node.tag == 'ellipse':
        place = *numbers_in(node, 'cx', 'cy', 'rx', 'ry'), rotation_of(node)
        return polygon_shape(label, ellipse(*place), where=where)
    if node.tag == 'polygon':
        pairs = [pair.split(',') for pair in node.get('points', '').split(';')]
        points = finite([value for pair in pairs for value in pair], 'a corner')
        if len(pairs) < 3:
            return 'polygon of less than three corners'
        return polygon_shape(label, points, where=where)
    return f'object of type {node.tag}'


def numbers_in(node: Element, *names: str) -> list[float]:
    """Attributes of a node as finite numbers."""
    return [finite([node.get(name)], name)[0] for name in names]


def rotation_of(node: Element) -> float:
    """Clockwise degrees about the centre."""
    return finite([node.get('rotation') or 0], 'rotation')[0]


def box_of(node: Element, label: str, where: str) -> Shape:
    """A box, upright or rotated."""
    left, top, right, bottom = numbers_in(node, *CORNERS)
    box = left, top, right - left, bottom - top
    if degrees := rotation_of(node):
        return rotated_shape(label, box, degrees, where=where)
    return Shape(label, box, where=where)


def mask_of(node: Element, label: str, item: Labelled, where: str) -> Shape | str:
    """A mask: run lengths of the rows in its box, the first of pixels outside of the object.

    Raises:
        ValueError: the run lengths have another number of pixels than the box.
    """
    left, top, width, height = (int(x) for x in numbers_in(node, 'left', 'top', 'width', 'height'))
    counts = np.array(finite(node.get('rle', '').split(','), 'a run length'), int)
    if counts.min() < 0 or counts.sum() != width * height:
        raise ValueError(f'run lengths of {counts.sum()} pixels for {width} x {height}')
    mask = np.repeat(np.arange(len(counts)) % 2, counts).reshape(height, width)
    if item.size is None:
        image = item.header = read_header(item.file)
        item.size = image.height, image.width
    rows, columns = np.nonzero(mask)
    inside = (rows + top >= 0) & (rows + top < item.size[0])
    inside &= (columns + left >= 0) & (columns + left < item.size[1])
    if not inside.any():
        return 'mask without a pixel in its image'
    return mask_shape(label, mask, left, top, item.size, where=where)


CVAT = Format('cvat', 'CVAT', ('.xml',), lambda inventory: find_cvat(inventory.root), read_cvat)
