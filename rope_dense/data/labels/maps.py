"""Masks and depth maps: the image of each, and both splits, kept as a list of pairs."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ...utils.configs import DOCS
from ...utils.disk import atomic_write_text
from .files import IMAGE_SUFFIXES
from .foreign import foreign_form
from .inventory import Inventory
from .kept import write_if_changed
from .objects import EXAMPLES, Report, Split
from .pairs import SPLITS, FileKind, find_pairs, pairs_in, stem_without
from .splits import BY_HASH, part_of, split_files, split_pairs_by_hash

MISSING_PART = 10  # not more than a tenth of the images may lack a map
UNREAD = ('.jpg', '.jpeg', '.webp', '.npy')  # of maps, unless a kind has them
PLACES = 8  # folders that are named where no layout is recognised
IMAGES = 'images?|imgs?|jpegimages|leftimg8bit|image_2|input'
CITYSCAPES = '(?:gtFine_|gtCoarse_)?'  # begins the names of its masks
MASK_WORDS = (
    'annotation',
    'masks?',
    'labels?',
    'seg',
    'segmentation',
    'gt',
    'L',
    'P',
    'manual1',
)
MASKS = FileKind(
    'masks',
    'a mask',
    ('.png', '.tif', '.tiff', '.bmp', '.gif'),
    'annotations?|masks?|labels?|annot|ann|gt|ground_truth|segmentation|semantic|target'
    '|segmentationclass(png)?|gtfine',
    IMAGES,
    is_map=True,
    lists='segmentation',
    words=(f'{CITYSCAPES}labelTrainIds', *MASK_WORDS),
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
Given = Mapping[
    str, Sequence[str] | None
]  # [folder of images, folder of maps] of each split
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
    splits: Mapping[
        str, Split
    ]  # 'train' and 'val'; ``pairs`` has the image of each map
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
        pairs, report = PairsOf(), Report()
        report.note_results(inventory)
        for split, part in folder.splits.items():
            pairs[split] = []
            for image, file in sorted(
                (image, file) for file, image in part.pairs.items()
            ):
                try:
                    inventory.header(image)
                    pairs[split].append((image, file))
                except ValueError:
                    report.note('image that cannot be read (left out)', image.name)
            lines = [
                [relative_path(path, inventory.root) for path in pair]
                for pair in pairs[split]
            ]
            atomic_write_text(fresh / f'{split}.json', json.dumps(dict(pairs=lines)))
        images = {split: len(some) for split, some in pairs.items()}
        text = report_text(folder, inventory, report)
        return dict(images=images, text=text, survey=survey(pairs))

    find = partial(find_maps, kind=kind, given=given)
    target, summary = write_if_changed(
        inventory, out, (kind.title, dict(given), settings), find, write
    )
    files = {split: str((target / f'{split}.json').absolute()) for split in SPLITS}
    return MapFiles(files, state=target.name, **summary)


def relative_path(path: Path, root: Path) -> str:
    """A path below the root, else absolute."""
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def find_maps(
    inventory: Inventory, kind: FileKind, given: Given | None = None
) -> MapFolder:
    """The images with their maps in a folder; ValueError where one of both is not found."""
    named = {
        split: names for split, names in (given or {}).items() if names is not None
    }
    if named:
        folder = maps_by_settings(inventory, kind, named)
    elif (pairs := find_pairs(inventory, kind)) and pairs.image_of:
        folder = MapFolder(kind, *split_files(pairs, inventory))
    else:
        refuse_layout(inventory, kind)
    for part in folder.splits.values():
        check_missing_maps(part, kind, inventory)
    return folder


def maps_by_settings(
    inventory: Inventory, kind: FileKind, named: Mapping[str, Sequence[str]]
) -> MapFolder:
    """The images and maps in folders that settings name, and the other split beside them."""
    root, parts = inventory.root, dict[str, Split]()
    for split, folders in named.items():
        images, maps = (root / name for name in folders)
        if not {str(images), str(maps)} <= inventory.folders.keys():
            raise ValueError(
                f'{root}: no folders of images and {kind.plural} of {split}; looked for '
                f'{" with ".join(folders)}: {folders_advice_text(kind, split)}'
            )
        pairs = pairs_in(kind, images, maps, inventory)
        parts[split] = part_of(pairs, inventory, pairs.files, pairs.images)
    by = 'folder'
    for split in SPLITS.keys() - parts.keys():
        names = SPLITS[split]
        try:
            others = find_pairs(inventory, kind)
        except ValueError:  # of folders that are not named
            others = None
        if others and (
            files := [x for x in others.image_of if others.split_of(x) in names]
        ):
            beside = [x for x, one in others.images.items() if one.split in names]
            parts[split] = part_of(others, inventory, files, beside)
        elif split == 'train':
            raise ValueError(
                f'{root}: no training images with {kind.plural}: {folders_advice_text(kind)}'
            )
        else:
            both, by = split_pairs_by_hash(pairs, inventory, pairs.files), BY_HASH
            parts = {
                name: part_of(pairs, inventory, *some) for name, some in both.items()
            }
    return MapFolder(kind, {split: parts[split] for split in SPLITS}, by)


def check_missing_maps(part: Split, kind: FileKind, inventory: Inventory) -> None:
    """Raise ValueError if too many of the images of a split have no map."""
    missing = [
        *part.absent,
        *(relative_path(path, part.images) for path in part.unlabelled),
    ]
    count = len(part.pairs) + len(missing)
    if len(missing) * MISSING_PART <= count and part.pairs:
        return
    refuse_lossy(inventory, part.source, kind)
    names = f': {", ".join(missing[:EXAMPLES])}' if missing else ''
    raise ValueError(
        f'{len(missing)} of {count} images of {part.images} have no {kind.noun} of their name in '
        f'{part.source}{names}. Looked for images {", ".join(IMAGE_SUFFIXES)} and {kind.plural} '
        f'{", ".join(kind.suffixes)}; there are {inventory.suffixes_in(part.images)} and '
        f'{inventory.suffixes_in(part.source)}'
    )


def refuse_lossy(inventory: Inventory, folder: Path, kind: FileKind) -> None:
    """Raise ValueError for a folder whose maps are files that are not read, such as JPEG."""
    suffixes = {os.path.splitext(path)[1].lower() for path in inventory.paths(folder)}
    if suffixes.isdisjoint(kind.suffixes) and (unread := suffixes.intersection(UNREAD)):
        raise ValueError(
            f'{folder}: {kind.plural} are {", ".join(sorted(unread))}, which is not read (JPEG '
            'changes the numbers): save them as PNG'
        )


def refuse_layout(inventory: Inventory, kind: FileKind) -> NoReturn:
    """Raise the ValueError for a folder whose layout is not known."""
    root = inventory.root
    if known := foreign_form(inventory):
        raise ValueError(known)
    for name in inventory.folders:
        if not (word := kind.word(os.path.basename(name))) or not word[1]:
            continue
        refuse_lossy(inventory, Path(name), kind)
        files = inventory.paths(Path(name), kind.suffixes)
        stems = [os.path.splitext(os.path.basename(path))[0] for path in files]
        ends = {stem[len(stem_without(stem, kind.others)) :] for stem in stems}
        if stems and '' not in ends:
            raise ValueError(
                f'{name}: no {kind.plural} of class numbers, only files that end with '
                f'{", ".join(sorted(ends))}. Of Cityscapes, *_labelTrainIds.png have them '
                '(createTrainIdLabelImgs of cityscapesScripts); of colours, `rope-dense '
                'convert-data colours` makes them'
            )
    places = sorted({os.path.dirname(path) for path in inventory.paths(root)})[:PLACES]
    there = [
        f'{relative_path(Path(x), root)}: {inventory.suffixes_in(Path(x))}'
        for x in places
    ]
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
    kind, parts = folder.kind, folder.splits
    for part in parts.values():
        for note, place in part.notes:
            report.note(note, place)
        for name in part.absent:
            report.note(
                'image that a list names and that is not there (left out)', name
            )
        for image in part.unlabelled:
            report.note(f'image without {kind.what} (left out)', image.name)
    used = {file for part in parts.values() for file in part.pairs}
    for file in sorted(
        {file for part in parts.values() for file in part.orphans} - used
    ):
        report.note(f'{kind.noun} without an image (left out)', file.name)
    train, val = ({*part.pairs.values()} for part in parts.values())
    for image in sorted(train & val):
        report.note('validation image that is a training image, too', image.name)
    folders = [
        relative_path(x, inventory.root)
        for x in (parts['train'].images, parts['train'].source)
    ]
    numbers = f'{len(train)} training and {len(val)} validation images'
    text = f'{kind.plural}, {numbers}, by {folder.split_by} ({" with ".join(folders)})'
    return '\n'.join([text, *report.lines()])
