"""The folders of images, and of their masks or depth maps, in a data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from .labels.files import IMAGE_SUFFIXES, list_files, subfolders, suffixes_in
from .labels.objects import Report
from .labels.splits import BY_HASH, SPLITS, WORDS, is_for_validation
from .pairs import MASKS, Kind, Pair, match, refuse_lossy, stem_of

LISTS = ('imagesets/segmentation', 'imagesets', '')  # folders of train.txt and val.txt
LIST_NAMES = {'train': (*SPLITS['train'], 'trainval', 'default'), 'val': SPLITS['val']}
PLACES = 8  # folders that are named where no layout is recognised
Tier = list[tuple[str, str]]


@dataclass(frozen=True)
class PairFolders:
    """The folders of a split, below the folder of the data set.

    Attributes:
        images, maps: folders of images and maps; '' for the data set's own.
        ann_file: list of the images; '' for all.
        part: 'train' or 'val' for that part of the images by a hash of their names, or None.
    """

    images: str
    maps: str
    ann_file: str = ''
    part: str | None = None

    def settings(self, maps: str) -> dict[str, Any]:
        """Settings of a data set whose ``data_prefix`` calls the folder of the maps `maps`."""
        prefix = {'img_path': self.images, maps: self.maps}
        return dict(data_prefix=prefix, ann_file=self.ann_file, part=self.part)

    def pairs(self, root: Path, kind: Kind) -> list[Pair]:
        """(Image, map) of each image of the split; see ``Match.pairs``."""
        found = match(root / self.images, root / self.maps, kind)
        return found.pairs(self.list_below(root), self.part)

    def list_below(self, root: Path) -> str:
        """The path of the list; '' for none."""
        return str(root / self.ann_file) if self.ann_file else ''


Splits = dict[str, PairFolders]


def find_pairs(
    root: Path, kind: Kind = MASKS, given: Mapping[str, Sequence[str] | None] | None = None
) -> tuple[Splits, str]:
    """The folders of 'train' and 'val', and what says which image is in which split, in words.

    Args:
        given: [folder of images, folder of maps] of a split, below `root`, or None.

    Raises:
        ValueError: no folders of the common names, several of them, or not the given ones.
    """
    places, found = folders_below(root), Splits()
    for split, names in SPLITS.items():
        if (folders := (given or {}).get(split)) is not None:
            found[split] = given_folders(root, split, folders, kind)
            continue
        tiers = (tier for name in names for tier in layouts(name, kind))
        if (common := first_of(tiers, root, places, kind)) is not None:
            found[split] = common
    if len(found) == len(SPLITS):
        return found, 'folder'
    if 'train' in found:
        return by_hash(root, found['train'], kind)
    whole = None if found else first_of(layouts('', kind), root, places, kind)
    if whole is None:
        refuse(root, kind)
    return by_lists(root, places, whole, kind)


def folders_below(root: Path) -> dict[str, str]:
    """The folders in a folder, and those in them, by their paths in lower case."""
    places = {'': ''}
    for name, folder in subfolders(root).items():
        places[name] = folder.name
        for inner, path in subfolders(folder).items():
            places[f'{name}/{inner}'] = f'{folder.name}/{path.name}'
    return places


def layouts(split: str, kind: Kind) -> Iterator[Tier]:
    """Common folders of images and of maps. A tier is looked for if those before it have no pair.

    Args:
        split: its name; '' for a data set without splits.
    """
    pairs = [(images, maps) for images in kind.images for maps in kind.maps]
    if not split:
        yield pairs
        yield [('', maps) for maps in kind.maps]
        yield [(images, images) for images in kind.images]
        yield [('', '')]
        return
    forms = ('{0}/{1}', '{1}/{0}', '{0}_{1}', '{1}_{0}')
    beside = (*forms[:1], *forms[2:], '{1}{0}')
    yield [
        *((form.format(a, split), form.format(b, split)) for form in forms for a, b in pairs),
        *((split, form.format(maps, split)) for form in beside for maps in kind.maps),
    ]
    yield [(f'{images}/{split}', maps) for images, maps in pairs]
    yield [(split, f'{split}/{maps}') for maps in kind.maps]
    yield [(split, split), *((f'{images}/{split}', f'{images}/{split}') for images in kind.images)]


def first_of(
    tiers: Iterable[Tier], root: Path, places: Mapping[str, str], kind: Kind
) -> PairFolders | None:
    """The folders of the first tier that have a pair; ValueError if two of one tier have some."""
    for tier in tiers:
        there = ((places[a], places[b]) for a, b in tier if a in places and b in places)
        found = [
            PairFolders(images, maps)
            for images, maps in dict.fromkeys(there)
            if match(root / images, root / maps, kind).map_of
        ]
        if len(found) > 1:
            texts = ' and '.join(f'{pair.images} with {pair.maps}' for pair in found)
            raise ValueError(f'{root}: {kind.title}s in several folders, {texts}: {advice(kind)}')
        if found:
            return found[0]
    return None


def given_folders(root: Path, split: str, folders: Sequence[str], kind: Kind) -> PairFolders:
    """The folders of a split that a setting names; ValueError if they are not there."""
    images, maps = folders
    if not all((root / name).is_dir() for name in folders):
        raise ValueError(
            f'{root}: no folders of images and {kind.title}s of {split}; looked for {images} with '
            f'{maps}: {advice(kind, split)}'
        )
    return PairFolders(images, maps)


def by_lists(
    root: Path, places: Mapping[str, str], whole: PairFolders, kind: Kind
) -> tuple[Splits, str]:
    """Both splits of one folder, by train.txt and val.txt if they are there, else by a hash."""
    for folder in (places[name] for name in LISTS if name in places):
        files = {split: list_of(split, root / folder) for split in SPLITS}
        train, val = files['train'], files['val']
        if train is None and val is not None:
            raise ValueError(f'{root / folder / val}: no train.txt beside it lists the others')
        if train is not None:
            listed = {
                s: replace(whole, ann_file=str(Path(folder, f or ''))) for s, f in files.items()
            }
            by = f'{folder or "lists"} ({train}, {val})'
            return (listed, by) if val is not None else by_hash(root, listed['train'], kind)
    return by_hash(root, whole, kind)


def list_of(split: str, folder: Path) -> str | None:
    """The name of the list of a split in a folder, or None."""
    names = (f'{name}.txt' for name in LIST_NAMES[split])
    return next((name for name in names if (folder / name).is_file()), None)


def by_hash(root: Path, folders: PairFolders, kind: Kind) -> tuple[Splits, str]:
    """Both splits of one folder by a hash of each name.

    Raises:
        ValueError: a split is empty, or there are images for validation without maps.
    """
    refuse_validation(root, folders, kind)
    images = [image for image, _ in folders.pairs(root, kind)]
    val = sum(is_for_validation(stem_of(image, root / folders.images)) for image in images)
    for split, count in (('train', len(images) - val), ('val', val)):
        if not count:
            raise ValueError(
                f'{root / folders.images}: no image for {WORDS[split]} among {len(images)}: put '
                'training and validation images in train/ and val/'
            )
    return {split: replace(folders, part=split) for split in SPLITS}, BY_HASH


def refuse_validation(root: Path, train: PairFolders, kind: Kind) -> None:
    """Raise ValueError for a folder of validation images that have no maps."""
    places, own = folders_below(root), root / train.images
    for name in SPLITS['val'][:-1]:  # images of a test often have none
        forms = ('{0}/{1}', '{1}/{0}', '{0}_{1}', '{1}_{0}')
        paths = [form.format(images, name) for form in forms for images in kind.images]
        for folder in (root / places[path] for path in (*paths, name) if path in places):
            if own not in (folder, *folder.parents) and list_files(folder, IMAGE_SUFFIXES):
                raise ValueError(
                    f'{folder} has images, but no {kind.title}s as {own} has in '
                    f'{root / train.maps}: add them, or move the images away'
                )


def refuse(root: Path, kind: Kind) -> NoReturn:
    """Raise the ValueError for a folder whose layout is not known."""
    for name, place in folders_below(root).items():
        if not {*name.replace('_', '/').split('/')}.isdisjoint(kind.maps):
            refuse_lossy(root / place, kind)
    counts = {path.parent for path in list_files(root)}
    there = [
        f'{place.relative_to(root)}: {suffixes_in(place)}' for place in sorted(counts)[:PLACES]
    ]
    images, maps = kind.images[0], kind.maps[0]
    raise ValueError(
        f'{root}: no images with {kind.title}s. Looked for {images}/train with {maps}/train, '
        f'train/{images} with train/{maps}, {images} with {maps}, each of the same name '
        f'({", ".join(kind.suffixes)}) or as NAME_{kind.title.split()[0]}; there are '
        f'{"; ".join(there) or "no files"}. {advice(kind)} (docs/own_data.md)'
    )


def advice(kind: Kind, split: str = 'train') -> str:
    """The setting that names folders."""
    return f'name them by "own.{split}=[IMAGES,{kind.name.upper()}]", below data_root'


def count_pairs(root: Path, splits: Splits, by: str, kind: Kind) -> tuple[int, str]:
    """Number of training images; and what was found and what is left out, in words.

    Raises:
        ValueError: see ``match`` and ``Match.pairs``.
    """
    report, images, used, orphans = Report(), dict[str, set[Path]](), set[Path](), set[Path]()
    for split, folders in splits.items():
        found = match(root / folders.images, root / folders.maps, kind)
        pairs = found.pairs(folders.list_below(root), folders.part, report)
        images[split] = {image for image, _ in pairs}
        used |= {file for _, file in pairs}
        orphans |= {*found.orphans}
    for file in sorted(orphans - used):
        report.note(f'{kind.title} without an image (left out)', file.name)
    for image in sorted(images['train'] & images['val']):
        report.note('validation image that is a training image, too', image.name)
    folders = splits['train']
    text = (
        f'{kind.title}s, {len(images["train"])} training and {len(images["val"])} validation '
        f'images, by {by} ({folders.images or "."} with {folders.maps or "."})'
    )
    return len(images['train']), '\n'.join([text, *report.lines()])
