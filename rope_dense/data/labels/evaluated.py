"""The labelled images that an evaluation asks for: of one split of a folder, or all."""

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from .inventory import Inventory
from .joined import join, together
from .label_folder import LabelFolder, Read, Split
from .objects import Report
from .places import SPLITS
from .splits import BY_HASH, TEST

ALL, TEST_SPLIT = 'all', 'test'
ASKED = ('train', 'val', TEST_SPLIT)  # of a command; without one of them ``ALL``
VAL_WORDS = '|'.join(word for word in SPLITS['val'] if word != TEST_SPLIT)
# Where they are hidden, test/ is for validation.
VALIDATION = re.compile(
    rf'(?<![a-z0-9])(?:{VAL_WORDS})(?:20\d\d)?(?![a-z0-9])', re.IGNORECASE
)


def evaluated(inventory: Inventory, find: Callable[[Inventory], Any]) -> Any:
    """The data set as it is found, or with what ``inventory.asked`` names as 'val' alone.

    Args:
        find: the data set in a folder, with 'train' and 'val' as ``splits``.

    Raises:
        ValueError: as ``find``; or there are no test images.
    """
    asked = inventory.asked
    if not asked:
        return find(inventory)
    if asked == TEST_SPLIT:
        test = find_test(inventory, find)
        return with_parts(test, [test.splits['val']])
    folder = find(inventory)
    if asked != ALL:
        return with_parts(folder, [folder.splits[asked]])
    parts = [*folder.splits.values()]
    with suppress(ValueError):  # no test, or one without labels
        parts.append(find_test(inventory, find).splits['val'])
    return replace(with_parts(folder, parts), split_by='their labels (all splits)')


def find_test(inventory: Inventory, find: Callable[[Inventory], Any]) -> Any:
    """The data set whose validation images are the test images; ValueError without such."""
    root = inventory.root
    folder = find(inventory.without(VALIDATION))
    part = folder.splits['val']
    places = [os.path.relpath(place, root) for place in (part.source, part.images)]
    is_named = any(map(TEST.search, [folder.split_by, *places]))
    if is_named and BY_HASH not in folder.split_by:
        return folder
    raise ValueError(
        f'--split test: {root} names no labelled images for tests (test/, test.json, '
        'test.txt); --data FOLDER evaluates all of another folder'
    )


def with_parts(folder: Any, parts: Sequence[Split]) -> Any:
    """A data set with the images of these parts as its only split, each image once."""
    if len(parts) == 1:
        return replace(folder, splits=dict(val=parts[0]))
    joined = replace(folder, splits=dict(val=join(parts)))
    if not isinstance(folder, LabelFolder):
        return joined
    read = folder.format.read

    def read_parts(_: Split, classes: Sequence[str] | None, report: Report) -> Read:
        return together([read(part, classes, report) for part in parts])

    return replace(joined, format=replace(folder.format, read=read_parts))
