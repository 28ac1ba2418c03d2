"""Masks and depth maps: the image of each, and both splits, kept as a list of pairs."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ...utils.configs import DOCS
from ...utils.disk import atomic_write_text
from .evaluated import evaluated
from .files import IMAGE_SUFFIXES
from .foreign import foreign_form
from .inventory import Inventory
from .kept import write_if_changed
from .label_folder import Split
from .objects import EXAMPLES, MOST_LEFT_OUT, Report
from .pairs import find_pairs, pairs_in
from .places import SPLITS, FileKind, stem_without
from .splits import (
    BY_HASH,
    Chosen,
    copies_in,
    make_split,
    split_files,
    split_pairs_by_hash,
    split_word,
    unused_tests,
)

UNREAD = ('.jpg', '.jpeg', '.webp', '.npy')  # of maps, unless a kind has them
PLACES = 8  # folders that are named where no layout is recognised
IMAGES = 'images?|imgs?|jpegimages|leftimg8bit|image_2|input'
CITYSCAPES = '(?:gtFine_|gtCoarse_)?'  # begins the names of its masks
MASK_WORDS = f'{CITYSCAPES}labelTrainIds annotation masks? labels? seg segmentation gt L P manual1'
MASKS = FileKind(
    'masks',
    'a mask',
    ('.png', '.tif', '.tiff', '.bmp', '.gif'),
    'annotations?|masks?|labels?|annot|ann|gt|ground_truth|segmentation|semantic|target'
    '|segmentationclass(png)?|gtfine',
    IMAGES,
    is_map=True,
    lists='segmentation',
    words=tuple(MASK_WORDS.split()),
    others=(f'{CITYSCAPES}(?:labelIds|instanceIds|instanceTrainIds|color)',),
    image_words=('leftImg8bit', 'image', 'img', 'sat', 'rgb'),
)
DEPTH = replace(
    MASKS,
    title='depth',
    what='a depth map',
    suffixes=('.png', '.tif', '.tiff', '.npy'),
    folders='depths?|annotations|depth_maps',
    images=f'{IMAGES}|rgb|color',
    words=('depth', 'sync_depth'),
    others=(),
)
# [folder of images, folder of maps] of each split
Given = Mapping[str, Sequence[str] | None]
PairsOf = dict[str, list[tuple[Path, Path]]]  # (image, map) of each split


@dataclass(frozen=True)
class MapFiles:
    """Lists of images and maps as files, by splits.

    A list is JSON, {"pairs": [[image, map], ...]}, paths in the data set's folder or absolute.
    """

    ann_file: dict[str, str]
    images: dict[str, int]  # number
    text: str  # the report
    survey: Any  # what was kept of the maps and images, see ``write_pair_lists``
    state: str  # a digest of the content of maps and of the names, sizes and headers of images


@dataclass(frozen=True)
class MapFolder:
    """Images and their maps in a folder."""

    kind: FileKind
    # 'train' and 'val', or 'val' alone; the ``pairs`` of their files have the image of each map.
    splits: Mapping[str, Split]
    split_by: str  # what says which image is in which split, in words

    def known(self) -> object:
        return self.kind.title, self.split_by


def write_pair_lists(
    inventory: Inventory,
    kind: FileKind,
    out: Path,
    given: Given,
    survey: Callable[[PairsOf], Any],
    settings: object,
) -> MapFiles:
    """Lists of images and maps as files in a folder of ``out``; see ``write_canonical``.

    Args:
        survey: what is to be kept of images and maps, as JSON can hold it; ValueError to refuse.
        settings: which ``survey`` depends on.
    """

    def write(folder: MapFolder, fresh: Path) -> dict[str, Any]:
        report = Report()
        pairs = PairsOf()
        images = {}
        report.note_results(inventory.skipped)
        for name, split in folder.splits.items():
            pairs[name] = []
            lines = []
            files = split.files.pairs
            for image, file in sorted(zip(files.values(), files, strict=True)):
                try:
                    inventory.header(image)
                except ValueError:
                    report.note('image that cannot be read (left out)', image.name)
                    continue
                pairs[name].append((image, file))
                lines.append([relative_path(x, inventory.root) for x in (image, file)])
            atomic_write_text(fresh / f'{name}.json', json.dumps(dict(pairs=lines)))
            images[name] = len(lines)
        text = report_text(folder, inventory, report)
        return dict(images=images, text=text, survey=survey(pairs))

    def find(inventory: Inventory) -> MapFolder:
        return evaluated(inventory, partial(find_maps, kind=kind, given=given))

    about = (kind.title, dict(given), settings)
    target, summary = write_if_changed(inventory, out, about, find, write)
    files = {}
    for split in summary['images']:
        files[split] = str((target / f'{split}.json').absolute())
    return MapFiles(files, state=target.name, **summary)


def relative_path(path: Path, root: Path) -> str:
    """A path below the root, else absolute."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def find_maps(
    inventory: Inventory, kind: FileKind, given: Given | None = None
) -> MapFolder:
    """The images with their maps in a folder; ValueError where one of both is not found."""
    given = given or {}
    named = {name: folders for name, folders in given.items() if folders is not None}
    if named:
        folder = maps_by_settings(inventory, kind, named)
    else:
        pairs = find_pairs(inventory, kind)
        if pairs is None or not pairs.image_of:
            refuse_layout(inventory, kind)
        folder = MapFolder(kind, *split_files(pairs, inventory))
    for split in folder.splits.values():
        check_missing_maps(split, kind, inventory)
    return folder


def maps_by_settings(
    inventory: Inventory, kind: FileKind, named: Mapping[str, Sequence[str]]
) -> MapFolder:
    """The images and maps in folders that settings name, and the other split beside them."""
    root = inventory.root
    splits = {}
    for name, folders in named.items():
        images, maps = map(root.joinpath, folders)
        if not {str(images), str(maps)} <= inventory.folders.keys():
            raise ValueError(
                f'{root}: no folders of images and {kind.plural} of {name}; looked for '
                f'{" with ".join(folders)}: {folders_advice_text(kind, name)}'
            )
        pairs = pairs_in(kind, images, maps, inventory)
        chosen = Chosen([*pairs.files], [*pairs.images])
        splits[name] = make_split(pairs, inventory, chosen)
    by = 'folder'
    for name in SPLITS.keys() - splits.keys():
        words = SPLITS[name]
        others = None
        with suppress(ValueError):  # of folders that are not named
            others = find_pairs(inventory, kind)
        files = []
        if others:
            files = [file for file in others.image_of if others.split_of(file) in words]
        if others and files:
            beside = [x for x, place in others.images.items() if place.split in words]
            splits[name] = make_split(others, inventory, Chosen(files, beside))
        elif name == 'train':
            raise ValueError(
                f'{root}: no training images with {kind.plural}: {folders_advice_text(kind)}'
            )
        else:
            both = split_pairs_by_hash(pairs, inventory, pairs.files)
            for split, choice in both.items():
                splits[split] = make_split(pairs, inventory, choice)
            by = BY_HASH
    return MapFolder(kind, dict(train=splits['train'], val=splits['val']), by)


def check_missing_maps(split: Split, kind: FileKind, inventory: Inventory) -> None:
    """Raise ValueError if too many of the images of a split have no map."""
    files = split.files
    missing = [*files.absent]
    missing += [relative_path(path, split.images) for path in files.unlabelled]
    count = len(files.pairs) + len(missing)
    if len(missing) <= MOST_LEFT_OUT * count and files.pairs:
        return
    refuse_lossy(inventory, split.source, kind)
    names = f': {", ".join(missing[:EXAMPLES])}' if missing else ''
    raise ValueError(
        f'{len(missing)} of {count} images of {split.images} have no {kind.noun} of their name in '
        f'{split.source}{names}. Looked for images {", ".join(IMAGE_SUFFIXES)} and {kind.plural} '
        f'{", ".join(kind.suffixes)}; there are {inventory.suffixes_in(split.images)} and '
        f'{inventory.suffixes_in(split.source)}'
    )


def refuse_lossy(inventory: Inventory, folder: Path, kind: FileKind) -> None:
    """Raise ValueError for a folder whose maps are files that are not read, such as JPEG."""
    suffixes = {os.path.splitext(path)[1].lower() for path in inventory.paths(folder)}
    unread = suffixes.intersection(UNREAD)
    if unread and suffixes.isdisjoint(kind.suffixes):
        raise ValueError(
            f'{folder}: {kind.plural} are {", ".join(sorted(unread))}, which is not read (JPEG '
            'changes the numbers): save them as PNG'
        )


def refuse_layout(inventory: Inventory, kind: FileKind) -> NoReturn:
    """Raise the ValueError for a folder whose layout is not known."""
    root = inventory.root
    known = foreign_form(inventory)
    if known:
        raise ValueError(known)
    for name in inventory.folders:
        word = kind.word(os.path.basename(name))
        if not word or not word.of_labels:
            continue
        refuse_lossy(inventory, Path(name), kind)
        ends = set()
        for path in inventory.paths(Path(name), kind.suffixes):
            stem = os.path.splitext(os.path.basename(path))[0]
            ends.add(stem[len(stem_without(stem, kind.others)) :])
        if ends and '' not in ends:
            raise ValueError(
                f'{name}: no {kind.plural} of class numbers, only files that end with '
                f'{", ".join(sorted(ends))}. Of Cityscapes, *_labelTrainIds.png have them '
                '(createTrainIdLabelImgs of cityscapesScripts); of colours, `rope-dense '
                'convert-data colours` makes them'
            )
    places = sorted({os.path.dirname(path) for path in inventory.paths(root)})
    there = []
    for place in map(Path, places[:PLACES]):
        there.append(f'{relative_path(place, root)}: {inventory.suffixes_in(place)}')
    maps = kind.title
    raise ValueError(
        f'{root}: no images with {kind.plural}. Looked for images/train with {maps}/train, '
        f'train/images with train/{maps}, images with {maps}, each of the same name '
        f'({", ".join(kind.suffixes)}) or as NAME_{maps.rstrip("s")}; there are '
        f'{"; ".join(there) or "no files"}. {folders_advice_text(kind)} ({DOCS}/own_data.md)'
    )


def folders_advice_text(kind: FileKind, split: str = 'train') -> str:
    """The setting that names folders."""
    return f'name them by "own.{split}=[IMAGES,{kind.title.upper()}]", below data_root'


def report_text(folder: MapFolder, inventory: Inventory, report: Report) -> str:
    """The report: a line on the data set, and one for each kind of what is unusual."""
    kind = folder.kind
    splits = folder.splits
    used: set[Path] = set()
    orphans: set[Path] = set()
    labelled = []
    numbers = []
    for name, split in splits.items():
        files = split.files
        for note, place in files.notes:
            report.note(note, place)
        for path in files.absent:
            note = 'image that a list names and that is not there (left out)'
            report.note(note, path)
        for image in files.unlabelled:
            report.note(f'image without {kind.what} (left out)', image.name)
        labelled.append({*files.pairs.values()})
        numbers.append(f'{len(labelled[-1])} {split_word(name, inventory)}')
        used.update(files.pairs)
        orphans.update(files.orphans)
    for file in sorted(orphans - used):
        report.note(f'{kind.noun} without an image (left out)', file.name)
    for image in copies_in(*labelled) if len(labelled) > 1 else ():
        report.note('validation image that is a training image, too', image.name)
    first = next(iter(splits.values()))
    images = relative_path(first.images, inventory.root)
    maps = relative_path(first.source, inventory.root)
    counts = f'{" and ".join(numbers)} images'
    text = f'{kind.plural}, {counts}, by {folder.split_by} ({images} with {maps})'
    lines = [text, *unused_tests(inventory, set().union(*labelled), kind)]
    return '\n'.join([*lines, *report.lines()])
