"""Objects of every format as COCO's annotations, by one set of rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..rotated import rectangle_corners, smallest_rectangle
from .files import class_name, naming
from .geometry import (
    as_shown,
    bounding_box,
    box_corners,
    check_outline,
    clipped,
    coco_mask,
    crosses_itself,
    has_nested,
    outer_points,
    outline_lengths,
)
from .objects import Labelled, Part, Report, Shape

if TYPE_CHECKING:
    from ..images.headers import Header

TWICE = 'object that is there twice (taken once)'
NESTED = (
    'polygon wholly within another of its object (filled, as COCO does; a hole needs run lengths)'
)
NO_OUTLINE = 'object without an outline (the outline of its box is taken)'
CUT = 0.9  # share of a box within the image: less counts as cut
FARTHEST = 1e9  # pixels: no image is as large
LEAST_SIDE = 1.0  # pixels: mmdet leaves out smaller boxes without a word


@dataclass(frozen=True)
class Rules:
    """Rules by which objects become annotations.

    Attributes:
        numbers: of the classes, from 1, by name.
        unchosen: names that the labels have, too, and that ``own.classes`` does not choose: their
            objects are no objects of this data set.
        oriented: an object is the smallest rectangle around it, which nothing clips.
        outlines: masks are trained: an object without an outline gets the outline of its box.
        ignore_difficult: difficult objects are ``iscrowd``, which is not evaluated.
        is_choice: ``own.classes`` chooses the classes: other objects that are lost do not count.
    """

    numbers: Mapping[str, int]
    unchosen: Collection[str] = ()
    oriented: bool = False
    outlines: bool = False
    ignore_difficult: bool = False
    is_choice: bool = False

    def count(self, item: Labelled) -> int:
        """Number of an image's objects that are, or may be, of this data set."""
        labels = [shape.label for shape in item.shapes] + [label for *_, label in item.lost]
        return sum(map(self.may_have, labels))

    def may_have(self, label: str) -> bool:
        """Return whether an object of a class, '' if it is not known, may be of this data set."""
        return not (self.is_choice and label) or class_name(label) in self.numbers


def annotate(
    items: Iterator[Labelled], part: Part, rules: Rules, report: Report
) -> Iterator[tuple[dict, list[dict]]]:
    """The entry of each image of a COCO file, and its annotations; both without ids.

    Boxes are put in order and clipped to the image; objects without area, outside of their image,
    of an unknown class or there twice are left out, as are images that lose all of their objects.

    Args:
        part: the labels of the items; `file_name` is relative to its folder of images.

    Raises:
        ValueError: images of another size than their labels say, or labels that no rule fits; the
            message names the file.
    """
    wrong_sizes, seen = Report(), set[Path]()
    for item in items:
        if item.file in seen:
            kind = 'object of an image that has labels already, in another file or entry'
            report.leave_out(kind, item.file.name, rules.count(item))
            continue
        seen.add(item.file)
        try:
            image = part.inventory.header(item.file)
        except ValueError:  # no image, or cut off
            report.note('image that cannot be read (left out with its objects)', item.file.name)
            if count := rules.count(item):
                report.leave_out('object of an image that cannot be read', item.file.name, count)
            continue
        with naming(part.source), naming(item.file):
            item = as_shown(item, image, report)
            if item.size not in (None, (image.height, image.width)):
                height, width = item.size or (0, 0)
                said = f'{item.file.name}: {width} x {height} by its labels, the image has '
                wrong_sizes.note('', f'{said}{image.width} x {image.height}')
                continue
            annotations = annotations_of(item, image, rules, report)
        report.kept += len(annotations)
        lost = [(kind, where) for kind, where, label in item.lost if rules.may_have(label)]
        for kind, where in lost:
            report.leave_out(kind, where)
        if lost and not annotations:
            report.note('image that lost all of its objects (left out)', item.file.name)
            continue
        name = item.file.relative_to(part.images).as_posix()
        yield dict(file_name=name, height=image.height, width=image.width), annotations
    if wrong := wrong_sizes.notes.get(''):
        raise ValueError(
            f'{part.images}: {wrong.count} images have another size than their labels say (width x '
            f'height): {"; ".join(wrong.examples[:3])}. Were images resized after labelling?'
        )


def annotations_of(
    item: Labelled, image: Header, rules: Rules, report: Report
) -> list[dict[str, Any]]:
    """The annotations of an image, without the ones that are there twice, as in merged exports.

    Of two with one class, box and outline the first is taken, and is ignored if one of them is.
    """
    found = list[dict[str, Any]]()
    alike: dict[tuple[float, ...], list[dict[str, Any]]] = {}
    for shape in item.shapes:
        where, label = shape.where or item.file.name, class_name(shape.label)
        if label not in rules.numbers:
            if label not in rules.unchosen:
                item.leave_out(f'object of the unknown class {label!r}', where)
            continue
        form = rectangle if rules.oriented else visible_part
        with naming(where):
            if not shape.outline and not max(map(abs, shape.box)) < FARTHEST:  # not so for NaN
                raise ValueError(f'its box is {[*shape.box]}')
            place = form(shape, item, image, where, report)
        if place is None:
            continue
        if rules.outlines and 'segmentation' not in place:
            report.note(NO_OUTLINE, where)
            place['segmentation'] = [box_corners(place['bbox'])]
        number, outline = rules.numbers[label], place.get('segmentation')
        is_crowd = int(shape.crowd or (rules.ignore_difficult and shape.difficult))
        others = alike.setdefault((number, place['area'], *place['bbox']), [])
        if same := [other for other in others if other.get('segmentation') == outline]:
            same[0]['iscrowd'] |= is_crowd
            report.note(TWICE, where)
            continue
        found.append(dict(category_id=number, iscrowd=is_crowd, **place))
        others.append(found[-1])
    return found


def visible_part(
    shape: Shape, item: Labelled, image: Header, where: str, report: Report
) -> dict[str, Any] | None:
    """Box, area and outline of the part of an object within its image; None if left out."""
    size = image.height, image.width
    left, top, width, height = shape.box
    box = min(left, left + width), min(top, top + height), abs(width), abs(height)
    if width < 0 or height < 0:
        report.note('box with its corners in another order (put in order)', where)
    outline = shape.outline
    lengths = None
    if outline:
        lengths = outline_lengths(outline, size)
        area = float(coco_mask.area(lengths))
        if not area and isinstance(outline, list):
            report.note('outline without a pixel in its image (left out, its box is taken)', where)
            outline = lengths = None
        elif isinstance(outline, list) and has_nested(outline, size):
            report.note(NESTED, where)
    if (inside := clipped(box, *size)) != box:
        if min(inside[2:]) <= 0:
            item.leave_out('object outside of its image', where)
            return None
        report.note('object partly outside of its image (clipped)', where)
        report.num_cut += inside[2] * inside[3] < CUT * box[2] * box[3]
        if lengths is not None:  # the box of a slope is smaller than the clipped box
            inside = tuple(coco_mask.toBbox(lengths).tolist())
    if min(inside[2:]) < LEAST_SIDE:
        item.leave_out('box of less than a pixel', where)
        return None
    if lengths is None:
        return dict(bbox=list(inside), area=inside[2] * inside[3])
    return dict(bbox=list(inside), area=area or inside[2] * inside[3], segmentation=outline)


def rectangle(
    shape: Shape, item: Labelled, image: Header, where: str, report: Report
) -> dict[str, Any] | None:
    """The smallest rectangle around an object, which may reach beyond the image; None if left out.

    A rectangle of which the image has less than the centre is left out.
    """
    if shape.outline:
        check_outline(shape.outline, (image.height, image.width))
    points = outer_points(shape.outline) if shape.outline else box_corners(shape.box)
    polygons = shape.outline if isinstance(shape.outline, list) else ()
    if any(map(crosses_itself, polygons)):
        report.note('corners in an order that crosses (their smallest rectangle is taken)', where)
    found = smallest_rectangle(points)
    x, y, *sides = found[:4].tolist()
    if min(sides) < LEAST_SIDE:
        item.leave_out('rectangle of less than a pixel', where)
        return None
    if not (0 <= x < image.width and 0 <= y < image.height):
        item.leave_out('rectangle with its centre outside of its image', where)
        return None
    corners = rectangle_corners(found).tolist()
    report.num_rotated += not np.isclose(found[4] % (np.pi / 2), (0, np.pi / 2), atol=0.01).any()
    box, area = list(bounding_box(corners)), sides[0] * sides[1]
    return dict(bbox=box, area=area, segmentation=[corners])


def chosen_classes(
    given: Sequence[str] | None, labelled: Sequence[str], source: Path
) -> tuple[str, ...]:
    """The classes of a data set: the given ones in their order, else all of the labels.

    Raises:
        ValueError: a given class is none of the labels, or none is left.
    """
    if given is None:
        chosen = tuple(labelled)
    else:
        names = [class_name(name) for name in given]
        if unknown := [name for name in names if name not in labelled]:
            raise ValueError(
                f'classes {", ".join(unknown[:5])} are not in the labels of {source}, which have '
                f'{", ".join(labelled[:20])}'
            )
        chosen = tuple(dict.fromkeys(names))
    if not chosen:
        raise ValueError(f'{source}: no object and no class in the labels')
    return chosen
