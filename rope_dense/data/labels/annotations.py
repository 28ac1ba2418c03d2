"""Objects of every format as COCO's annotations, by one set of rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..rotated import rectangle_corners, smallest_rectangle
from .files import class_name, errors_at, part_of
from .geometry import (
    apply_exif_rotation,
    bounding_box,
    box_corners,
    check_outline,
    coco_mask,
    has_nested,
    outer_points,
    outline_lengths,
)
from .label_folder import Split
from .objects import Labelled, Report, Shape

if TYPE_CHECKING:
    from ..images.headers import Header

TWICE = 'object that is there twice (taken once)'
LABELLED_TWICE = 'object of an image that has labels already, in another file or entry'
NO_PIXEL = 'polygon without a pixel in its image (left out, its box is taken)'
NESTED = (
    'polygon wholly within another of its object '
    '(filled, as COCO does; a hole needs run lengths)'
)
NO_OUTLINE = 'object without a polygon or mask (its box is taken as one)'
IGNORED = 'object marked iscrowd, ignore or difficult (neither trained nor evaluated)'
BEYOND = 'object of a class that its image is not labelled for (learned)'
CUT = 0.9  # share of a box within the image: less counts as cut
FARTHEST = 1e9  # pixels: no image is as large
SLACK = 0.01  # pixels outside of an image: the box stays as it is
LEAST_SIDE = 1.0  # pixels: mmdet leaves out smaller boxes; also of an object in a tile


@dataclass(frozen=True)
class Rules:
    """Rules by which objects become annotations; ``write_splits`` gives them the classes."""

    # An object is the smallest rectangle around it, which nothing clips.
    oriented: bool = False
    outlines: bool = False  # an object without an outline gets the outline of its box
    # The classes that images are labelled for, by a part of their path below the data set.
    labelled: Mapping[str, Collection[str]] = field(default_factory=dict)
    # The names of classes by their other names, which labels may have.
    same_as: Mapping[str, str] = field(default_factory=dict)
    # Of the classes, from 1, by name.
    numbers: Mapping[str, int] = field(default_factory=dict)
    # Names that own.classes does not choose: their objects are no objects of this data set.
    unchosen: Collection[str] = ()
    # own.classes chooses: other objects that are lost do not count.
    is_choice: bool = False

    def name_of(self, label: object) -> str:
        """The name of a class in the labels."""
        name = class_name(label)
        return self.same_as.get(name, name)

    def labelled_in(self, item: Labelled, root: Path) -> frozenset[str] | None:
        """The classes that an image is labelled for; None for all."""
        part = part_of(item.file, root, self.labelled)
        names = item.labelled if part is None else self.labelled[part]
        return None if names is None else frozenset(map(self.name_of, names))

    def count(self, item: Labelled) -> int:
        """Number of an image's objects that are, or may be, of this data set."""
        labels = [shape.label for shape in item.shapes]
        labels += [label for _, _, label in item.lost]
        return sum(map(self.may_have, labels))

    def may_have(self, label: str) -> bool:
        """Return whether an object of a class, '' if it is not known, may be of this data set."""
        if self.is_choice and label:
            return self.name_of(label) in self.numbers
        return True


def annotate(
    items: Iterator[Labelled],
    part: Split,
    rules: Rules,
    report: Report,
) -> Iterator[tuple[dict, list[dict], frozenset[str] | None]]:
    """The entry of each image of a COCO file, its annotations, both without ids, and its classes.

    The last are those that it is labelled for, None for all.

    Boxes are put in order and clipped to the image; objects without area, outside of their image,
    of an unknown class or there twice are left out, as are images that lose all of their objects.

    Args:
        part: the labels of the items; `file_name` is relative to its folder of images.

    Raises:
        ValueError: images of another size than their labels say, or labels that no rule fits; the
            message names the file.
    """
    wrong_sizes = []
    seen = set[Path]()
    for item in items:
        name = item.file.name
        if item.file in seen:
            report.leave_out(LABELLED_TWICE, name, rules.count(item))
            continue
        seen.add(item.file)
        item.labelled = rules.labelled_in(item, part.inventory.root)
        try:
            image = part.inventory.header(item.file)
        except ValueError:  # no image, or cut off
            report.note('image that cannot be read (left out with its objects)', name)
            count = rules.count(item)
            if count:
                report.leave_out('object of an image that cannot be read', name, count)
            continue
        with errors_at(part.source), errors_at(item.file):
            item = apply_exif_rotation(item, image, report)
            if item.size and item.size != (image.height, image.width):
                height, width = item.size
                wrong_sizes.append(
                    f'{name}: {width} x {height} by its labels, '
                    f'the image has {image.width} x {image.height}'
                )
                continue
            annotations = annotations_of(item, image, rules, report)
        report.kept += len(annotations)
        has_lost = False
        for kind, where, label in item.lost:
            if rules.may_have(label):
                report.leave_out(kind, where)
                has_lost = True
        if has_lost and not annotations:
            report.note('image that lost all of its objects (left out)', name)
            continue
        path = item.file.relative_to(part.images).as_posix()
        entry: dict[str, Any] = dict(
            file_name=path, height=image.height, width=image.width
        )
        if item.gsd is not None:
            entry.update(gsd=str(item.gsd), labels=part.source.name)
        yield entry, annotations, item.labelled
    if wrong_sizes:
        raise ValueError(
            f'{part.images}: {len(wrong_sizes)} images have another size than their labels say '
            f'(width x height): {"; ".join(wrong_sizes[:3])}. Were images resized after labelling?'
        )


def annotations_of(
    item: Labelled,
    image: Header,
    rules: Rules,
    report: Report,
) -> list[dict[str, Any]]:
    """The annotations of an image.

    Of two with one class, box and outline, as in merged exports, the first is taken, and is ignored
    if one of them is.
    """
    found = []
    alike: dict[tuple, list[dict]] = defaultdict(list)  # by class, area and box
    form = rectangle if rules.oriented else visible_part
    for shape in item.shapes:
        where = shape.where or item.file.name
        label = rules.name_of(shape.label)
        if label != class_name(shape.label):
            report.note(f'object of {shape.label} (taken as {label})', where)
        if label not in rules.numbers:
            if label not in rules.unchosen:
                item.leave_out(f'object of the unknown class {label!r}', where)
            continue
        with errors_at(where):
            is_near = max(map(abs, shape.box)) < FARTHEST  # not so for NaN
            if not shape.outline and not is_near:
                raise ValueError(f'its box is {[*shape.box]}')
            place = form(shape, (image.height, image.width), where, report)
        if isinstance(place, str):
            item.leave_out(place, where)
            continue
        if rules.outlines and 'segmentation' not in place:
            report.note(NO_OUTLINE, where)
            place['segmentation'] = [box_corners(place['bbox'])]
        number = rules.numbers[label]
        is_crowd = int(shape.crowd)
        others = alike[number, place['area'], *place['bbox']]
        for other in others:
            if other.get('segmentation') == place.get('segmentation'):
                other['iscrowd'] |= is_crowd
                report.note(TWICE, where)
                break
        else:
            annotation = dict(category_id=number, iscrowd=is_crowd, **place)
            found.append(annotation)
            if is_crowd:
                report.note(IGNORED, where)
            elif item.labelled is not None and label not in item.labelled:
                report.note(BEYOND, where)
            others.append(annotation)
    return found


def visible_part(
    shape: Shape,
    size: tuple[int, int],
    where: str,
    report: Report,
) -> dict[str, Any] | str:
    """Box, area and outline of an object within (height, width); or the reason to leave it out."""
    left, top, across, down = shape.box
    if across < 0 or down < 0:
        report.note('box with its corners in another order (put in order)', where)
        left = min(left, left + across)
        top = min(top, top + down)
        across = abs(across)
        down = abs(down)
    outline = shape.outline
    lengths = None
    area = 0.0
    if outline:
        lengths = outline_lengths(outline, size)
        area = float(coco_mask.area(lengths))
        if not area and isinstance(outline, list):
            report.note(NO_PIXEL, where)
            outline = lengths = None
        elif isinstance(outline, list) and has_nested(outline, size):
            report.note(NESTED, where)
    box = left, top, across, down
    right = left + across
    bottom = top + down
    height, width = size
    if min(left, top) < -SLACK or right > width + SLACK or bottom > height + SLACK:
        left = min(max(left, 0.0), width)
        right = min(max(right, 0.0), width)
        top = min(max(top, 0.0), height)
        bottom = min(max(bottom, 0.0), height)
        box = left, top, right - left, bottom - top
        if min(box[2:]) <= 0:
            return 'object outside of its image'
        report.note('object partly outside of its image (clipped)', where)
        report.num_cut += box[2] * box[3] < CUT * across * down
        if lengths:  # the box of a slope is smaller than the clipped box
            box = tuple(coco_mask.toBbox(lengths).tolist())
    if min(box[2:]) < LEAST_SIDE:
        return 'box of less than a pixel'
    area = area or box[2] * box[3]
    found: dict[str, Any] = dict(bbox=list(box), area=area)
    if outline:
        found['segmentation'] = outline
    return found


def rectangle(
    shape: Shape,
    size: tuple[int, int],
    where: str,
    report: Report,
) -> dict[str, Any] | str:
    """The smallest rectangle around an object, also beyond the image; or why it is left out."""
    if shape.outline:
        check_outline(shape.outline, size)
    found = smallest_rectangle(outer_points(shape.outline or [box_corners(shape.box)]))
    x, y, width, height, angle = found.tolist()
    if min(width, height) < LEAST_SIDE:
        return 'rectangle of less than a pixel'
    if not (0 <= x < size[1] and 0 <= y < size[0]):
        return 'rectangle with its centre outside of its image'
    corners = rectangle_corners(found).tolist()
    right = np.pi / 2
    is_upright = np.isclose(angle % right, (0, right), atol=0.01).any()
    report.num_rotated += not is_upright
    box = list(bounding_box(corners))
    return dict(bbox=box, area=width * height, segmentation=[corners])


def chosen_classes(
    given: Sequence[str] | None,
    labelled: Sequence[str],
    source: Path,
) -> tuple[str, ...]:
    """The classes of a data set: the given ones, which labels must have, else all of the labels."""
    chosen = labelled if given is None else given
    unknown = [name for name in chosen if name not in labelled]
    if unknown:
        raise ValueError(
            f'classes {", ".join(unknown[:5])} are not in the labels of {source}, which have '
            f'{", ".join(labelled[:20])}'
        )
    if not chosen:
        raise ValueError(f'{source}: no object and no class in the labels')
    return tuple(dict.fromkeys(chosen))
