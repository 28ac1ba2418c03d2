"""The shapes of COCO's annotations: boxes, rotated boxes, polygons, run lengths.

The images of COCO files: their folder, and the splits that their folders name.
"""

import ast
import math
import re
from collections.abc import Set
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from ..rotated import check_rectangle, rectangle_corners
from . import geometry
from .coco_files import USUAL_FOLDERS, CocoFile, splits_in, words_of
from .files import finite_numbers, parts_of, without_suffix
from .inventory import Images, Inventory
from .objects import Box, Outline, Report, Shape, Split, printable_text
from .splits import SPLITS, Splits, split_by_hash, unlabelled_error

UNLIKE = 'box unlike its polygon or mask (boxes are trained on the first, masks on the second)'
ARE_CORNERS = 'box that its polygon or mask shows to be [left, top, right, bottom]'
NO_BOX = 'object without a box (the box of its polygon or mask is taken)'
OTHER_FORM = 'run lengths in another form than COCO has (read as run lengths)'
NUMBERS = re.compile(r'\s*\d+([\s,]+\d+)+\s*')
CORNERS = 0  # the bbox_mode of detectron2 for [left, top, right, bottom]


@dataclass(frozen=True)
class Annotation:
    """An annotation of COCO; its methods raise ValueError for numbers that cannot be meant."""

    given: dict[str, Any]
    size: (
        tuple[int, int] | None
    )  # (height, width) of the image, which run lengths must have
    convention: (
        str | None
    )  # of (x, y, w, h, angle), as `angle_version` of `info` names it
    where: str
    report: Report

    def shape(self, label: str) -> Shape | None:
        """The object; None without a box and an outline."""
        outline = self.outline()
        five = self.given.get('rbox') or self.given.get('bbox')
        if isinstance(five, list) and len(five) == 5:
            if self.convention is None:
                raise ValueError(
                    'a box of five numbers, and no info.angle_version in the file'
                )
            values = finite_numbers(five, 'a number of the box')
            check_rectangle(values, self.convention)
            return geometry.polygon_shape(label, rectangle_corners(np.asarray(values)))
        box = self.box(outline)
        if box is None or (0 in box[2:] and self.given.get('keypoints')):
            return None
        attributes = self.given.get('attributes')
        rotation = attributes.get('rotation') if isinstance(attributes, dict) else None
        if not rotation or outline or 0 in box[2:]:
            return Shape(label, box, outline)
        (angle,) = finite_numbers([rotation], 'attributes.rotation')
        return geometry.rotated_shape(label, box, angle)

    def outline(self) -> Outline | None:
        """Its polygons or run lengths, also in forms that COCO has not; None for none."""
        given = unquoted(self.given.get('segmentation'))
        if not given:
            return None
        if isinstance(given, dict):
            return self.lengths(given)
        if are_polygons(given):
            return given
        if not isinstance(given, list):
            raise ValueError(
                f'segmentation is {given!r:.80}, neither polygons nor run lengths'
            )
        if all(isinstance(part, dict) for part in given):
            self.report.note(OTHER_FORM, self.where)
            lengths = [x for part in given if (x := self.lengths(part))]
            return geometry.merge_outlines(lengths) or None
        parts = (
            [given]
            if is_points(given) or not isinstance(given[0], (list, dict))
            else given
        )
        if odd := [part for part in parts if not isinstance(part, list)]:
            raise ValueError(f'segmentation has {odd[0]!r:.80}, which is no polygon')
        flat: list[Any] = [
            [*chain(*part)] if is_points(part) else part for part in parts
        ]
        polygons = [finite_numbers(points, 'a coordinate') for points in flat]
        kept = [
            points for points in polygons if len(points) >= 6 and len(points) % 2 == 0
        ]
        if len(kept) < len(polygons):
            rest = 'its other parts are taken' if kept else 'its box is taken'
            self.report.note(
                f'polygon with a part of less than three corners ({rest})', self.where
            )
        if kept and kept != given:
            note = 'polygons in another form than COCO has (read as polygons)'
            self.report.note(note, self.where)
        return kept or None

    def lengths(self, given: dict[str, Any]) -> Outline | None:
        """COCO's run lengths, compressed; None if they are incomplete or of no pixel."""
        counts, sides = unquoted(given.get('counts')), unquoted(given.get('size'))
        if not counts or not sides:
            self.report.note(
                'run lengths without counts or size (left out)', self.where
            )
            return None
        if counts is not given['counts'] or sides is not given['size']:
            self.report.note(OTHER_FORM, self.where)
        if isinstance(counts, (list, tuple)):
            counts = [int(n) for n in finite_numbers(counts, 'a run length')]
        if isinstance(sides, (list, tuple)):
            sides = [
                int(side) for side in finite_numbers(sides, 'a side of run lengths')
            ]
            if self.size and sides != [*self.size]:
                size = [*self.size]
                raise ValueError(
                    f'run lengths of {sides} for an image of {size} (height, width)'
                )
        lengths = geometry.run_lengths(dict(size=sides, counts=counts))
        if not geometry.coco_mask.area(lengths):
            self.report.note('run lengths without a pixel (left out)', self.where)
            return None
        return geometry.text_lengths(lengths)

    def box(self, outline: Outline | None) -> Box | None:
        """The box, else the box of the outline; None without both."""
        given, mode = self.given.get('bbox'), self.given.get('bbox_mode')
        if mode not in (None, CORNERS, 1):
            raise ValueError(
                f'bbox_mode is {mode!r}, not 0 (corners) or 1 (corner, width, height)'
            )
        if given and not (isinstance(given, list) and len(given) == 4):
            raise ValueError(f'bbox is {given!r:.80}, not [left, top, width, height]')
        if given and not is_plain(given):
            given = finite_numbers(given, 'a number of bbox')
            self.report.note('box whose numbers are text (read as numbers)', self.where)
        around = geometry.outline_box(outline) if outline else None
        if not given or (around and 0 in given[2:]):
            if around:
                self.report.note(NO_BOX, self.where)
            return around or (tuple(given) if given else None)
        left, top, width, height = given
        if mode == CORNERS:
            width, height = width - left, height - top
        if width < 0 or height < 0:
            note = 'box of negative width or height (its corners put in order)'
            self.report.note(note, self.where)
            corners = [left, top, left + width, top + height]
            left, top, width, height = geometry.bounding_box(corners)
        if around:
            boxes = np.array([(left, top, width, height), around], float)
            if geometry.coco_mask.iou(boxes[:1], boxes[1:], [0])[0, 0] < 0.5:
                as_corners = left, top, width - left, height - top
                are_corners = (left or top) and np.allclose(as_corners, around, atol=2)
                self.report.note(ARE_CORNERS if are_corners else UNLIKE, self.where)
        return left, top, width, height


def are_polygons(given: Any) -> bool:
    """Return whether an outline is as COCO has it, [[x, y, x, y, ...], ...] of finite numbers."""
    with suppress(TypeError, OverflowError):
        return all(
            len(x) >= 6 and len(x) % 2 == 0 and math.isfinite(sum(x)) for x in given
        )
    return False


def is_points(given: Any) -> bool:
    """Return whether something is a list of at least three points [x, y]."""
    is_long = isinstance(given, list) and len(given) > 2
    return is_long and all(
        isinstance(point, list) and len(point) == 2 for point in given
    )


def is_plain(box: Any) -> bool:
    """Return whether a box is a list of four finite numbers."""
    with suppress(TypeError, OverflowError):
        return type(box) is list and len(box) == 4 and math.isfinite(sum(box))
    return False


def unquoted(given: Any) -> Any:
    """A value that is given as its text in Python or JSON: "b'...'", '[5, 5]', '5 5', '{...}'."""
    if not isinstance(given, str):
        return given
    if NUMBERS.fullmatch(given):
        return re.split(r'[\s,]+', given.strip())
    if given.startswith(('{', '[', '(', "b'", 'b"')):  # as compressed counts also may
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(given)
    return given


IMAGE_FOLDERS = ('images', 'data', 'jpegimages')
SAMPLE = 50  # names that are looked for in a folder of images


def part_of(file: CocoFile, home: Path, split: str, inventory: Inventory) -> Split:
    """The labels of a file, with the folder that has most of its images.

    Images are looked for by their names as they are, then anywhere below. A split's folder that has
    some is not left for a wider one, where another split may have an image of the same name.

    Args:
        home: folder of the data set.

    Raises:
        ValueError: it has no image, or they are in none of the usual folders.
    """
    path, names = file.path, file.image_names()
    if not names:
        what = 'no file_name of an image' if file.content['images'] else 'no image'
        raise ValueError(f'{path}: {what} in it')
    folders = image_folders(path, home, split, inventory)
    sample = names[:: max(1, len(names) // SAMPLE)]
    best, most = home, 0
    for is_below in (False, True):
        for folder in folders:
            if is_below:
                images = inventory.images(folder)
                found = [find_image(images, name) is not None for name in sample]
            else:
                found = [
                    inventory.is_file(folder.joinpath(*parts_of(name)))
                    for name in sample
                ]
            if sum(found) > most:
                best, most = folder, sum(found)
        if most == len(sample) or (split and most):
            break
    if not most:
        looked = ', '.join(
            dict.fromkeys(relative_folder(place, home) for place in folders)
        )
        name = printable_text(names[0])
        such = f'its images, such as {name:.200}, are in none of {looked} of {home}'
        raise ValueError(f'{path}: {such}, which has {inventory.suffixes_in(home)}')
    return Split(path, best, inventory=inventory)


def relative_folder(folder: Path, home: Path) -> str:
    """A folder as the user knows it."""
    return (
        folder.relative_to(home).as_posix()
        if folder.is_relative_to(home)
        else str(folder)
    )


def tops_of(home: Path, inventory: Inventory) -> list[Path]:
    """The folder of a data set, and the ones in it that may have the images of all splits."""
    folders = inventory.subfolders(home)
    return [
        home,
        *(folder for name, folder in folders.items() if name in IMAGE_FOLDERS),
    ]


def image_folders(
    path: Path, home: Path, split: str, inventory: Inventory
) -> list[Path]:
    """The folders that may have the images of a file, the most usual first.

    Folders that name the split of the file, such as train_images, come before the others.
    """
    tops, above = tops_of(home, inventory), path.parent.parent
    if above != home and above.is_relative_to(
        home
    ):  # the data set is in a folder of its own
        tops += tops_of(above, inventory)
    words = {
        word
        for name in relative_folder(path, home).split('/')
        for word in words_of(name)
    }
    inner = [folder for top in tops for folder in inventory.subfolders(top).values()]
    own = [folder for folder in inner if split in splits_in(words_of(folder.name))]
    own.sort(key=lambda folder: words.isdisjoint(words_of(folder.name)))
    folders = [folder / name for folder in own for name in ('', 'images', 'data')]
    folders += [
        *tops[1:],
        *(top / 'default' for top in tops),
        home,
    ]  # default/ is CVAT's
    folders += [path.parent / name for name in ('images', 'data', '')]
    return [x for x in dict.fromkeys([*folders, above]) if str(x) in inventory.folders]


def find_image(images: Images, name: str) -> Path | None:
    """The file of an image's name: a path, or an address as Label Studio writes it."""
    # As in /data/local-files/?d=folder/a%20b.jpg.
    plain = unquote(re.split('[?#]', name.rpartition('?d=')[2])[0])
    return images.find(name) or (images.find(plain) if plain != name else None)


def stem_of(name: str, images: Images) -> str:
    """The path of an image without suffix; its name where it is not there."""
    file = find_image(images, name)
    return images.stem_of(file) if file else without_suffix('/'.join(parts_of(name)))


def split_one(file: CocoFile, part: Split) -> Splits:
    """Both splits of the images of one file, and what says which is in which.

    Their folders do, if all are in one that names a split; else a hash of their names. Images in
    test/ are for validation where no others are.
    """
    images = part.inventory.images(part.images)
    stems = {stem_of(name, images) for name in file.image_names()}
    of_file = f', of {relative_folder(file.path, part.inventory.root)}'
    word_of = dict[str, tuple[str, str]]()
    for stem in stems:
        named = [splits_in(words_of(name)) for name in reversed(stem.split('/')[:-1])]
        found = next(filter(None, named), {})
        word_of[stem] = next(iter(found.items())) if len(found) == 1 else ('', '')
    train, val, others = (
        sorted({word for of, word in word_of.values() if of == split})
        for split in (*SPLITS, '')
    )
    if train and val and not others:
        tests = [word for word in val if word.startswith('test')]
        unused = tests if len(tests) < len(val) else []
        said = ' and '.join(word for word in (*train, *val) if word not in unused)
        said += f'; not {", ".join(unused)}' if unused else ''
        names: dict[str, set[str]] = {split: set() for split in SPLITS}
        for stem, (split, word) in word_of.items():
            if word not in unused:
                names[split].add(stem)
        splits = {
            split: replace(part, names=frozenset(some)) for split, some in names.items()
        }
        return splits, f'the folders of the images ({said}){of_file}'
    splits, described = split_by_hash(part, stems)
    return splits, described + of_file


def check_unlabelled(part: Split, home: Path, listed: Set[Path | None]) -> None:
    """Refuse a folder such as val/ or images/val/ of which the only COCO file lists no image."""
    inventory = part.inventory
    for top in tops_of(home, inventory):
        for folder in inventory.subfolders(top).values():
            words = words_of(folder.name)
            word = splits_in(words).get('val', 'test')
            if word.startswith('test') or not {*words} - {word} <= USUAL_FOLDERS:
                continue
            others = inventory.below(folder, inventory.image_suffixes)
            if others and listed.isdisjoint(others):
                raise unlabelled_error(folder, part.source)
