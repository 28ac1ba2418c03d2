"""Data sets that are not in COCO's format: recognised, split and converted once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import mmengine

from ..utils.atomic_write import atomic_write_text
from .conversion import convert
from .label_readers import Odd, image_files
from .own_data import SPLITS, CocoSplit, coco_split, read_classes

VAL_PART = 5  # every fifth image is for validation where nothing says which
LABELS = {
    'coco': 'COCO',
    'voc': 'Pascal VOC',
    'yolo': 'YOLO',
    'labelme': 'LabelMe',
    'cvat': 'CVAT',
    'dota': 'DOTA',
}


@dataclass(frozen=True)
class Labels:
    """The labels of one split.

    Attributes:
        source: folder or file of the labels.
        images: folder of the images.
        names: paths of its images in that folder, without suffix; None for all.
    """

    source: Path
    images: Path
    names: frozenset[str] | None = None


@dataclass(frozen=True)
class LabelFolder:
    """A data set in another format than COCO's.

    Attributes:
        kind: a key of ``conversion.READERS``.
        splits: labels by 'train' and 'val'.
        split_by: what says which image is in which, in words.
        classes: names of its classes, or None for those that occur.
        oriented: rectangles of any orientation; see ``conversion.convert``.
    """

    kind: str
    splits: Mapping[str, Labels]
    split_by: str
    classes: Sequence[str] | None = None
    oriented: bool = False

    def as_coco(self, folder: Path) -> tuple[dict[str, CocoSplit], str]:
        """The splits as COCO files in a folder of ``folder``, and what was found, in words.

        Files that were written for the same labels are taken as they are.

        Raises:
            ValueError: labels cannot be read, or a split has none.
        """
        target = folder / self.key()
        report = target / 'report.txt'
        if not report.is_file():
            self.write(target, report)
        files = {split: (target / f'{split}.json').absolute() for split in self.splits}
        found = {
            split: coco_split(file, self.splits[split].images) for split, file in files.items()
        }
        return found, report.read_text(encoding='utf-8').strip()

    def write(self, target: Path, report: Path) -> None:
        """Convert all splits; the report is written last."""
        counts, odd, contents, classes = [], Odd(), {}, self.all_classes()
        for split, labels in self.splits.items():
            content, found = convert(
                self.kind,
                labels.source,
                labels.images,
                classes,
                labels.names,
                oriented=self.oriented,
                ignore_difficult=split == 'val',
            )
            contents[split] = content
            counts.append(f'{len(content["images"])} {WORDS[split]} images')
            for kind, places in found.found.items():
                odd.found.setdefault(kind, []).extend(places)
        target.mkdir(parents=True, exist_ok=True)
        for split, content in contents.items():
            atomic_write_text(target / f'{split}.json', json.dumps(content) + '\n')
        text = f'{LABELS[self.kind]}, {" and ".join(counts)}, by {self.split_by}'
        atomic_write_text(report, f'{text}\n{odd}\n')

    def all_classes(self) -> Sequence[str]:
        """The classes of all splits, in one order."""
        if self.classes:
            return self.classes
        found: set[str] = set()
        for labels in self.splits.values():
            content, _ = convert(self.kind, labels.source, labels.images, None, labels.names)
            found |= {category['name'] for category in content['categories']}
        return sorted(found)

    def key(self) -> str:
        """A name for the labels as they are now: their files, sizes and times of change."""
        about = self.kind, self.classes, self.split_by, *(['oriented'] if self.oriented else [])
        digest = hashlib.sha256(repr(about).encode())
        for split, labels in sorted(self.splits.items()):
            digest.update(repr((split, labels.images, sorted(labels.names or ()))).encode())
            files = [labels.source] if labels.source.is_file() else labels.source.rglob('*')
            for path in sorted(files):
                if path.suffix in SUFFIXES[self.kind]:
                    state = path.stat()
                    digest.update(repr((str(path), state.st_size, state.st_mtime_ns)).encode())
        return digest.hexdigest()[:16]


WORDS = {'train': 'training', 'val': 'validation'}
SUFFIXES = {
    'coco': ('.json',),
    'dota': ('.txt',),
    'voc': ('.xml',),
    'cvat': ('.xml',),
    'labelme': ('.json',),
    'yolo': ('.txt',),
}


def find_labels(root: Path) -> LabelFolder | None:
    """The data set in a folder; None if it has no labels of a known format.

    Raises:
        ValueError: there are labels, but not of both splits.
    """
    for find in (find_yolo, find_voc, find_cvat, find_dota, find_labelme):
        if found := find(root):
            return found
    return None


def find_yolo(root: Path) -> LabelFolder | None:
    """A yaml with ``names``, ``train`` and ``val`` (folders of images, or lists of files)."""
    for file in sorted([*root.glob('*.yaml'), *root.glob('*.yml')]):
        content = mmengine.load(file)
        if not isinstance(content, dict) or not {'names', 'train', 'val'} <= content.keys():
            continue
        names = content['names']
        classes = list(names.values()) if isinstance(names, dict) else list(names)
        base = root / str(content.get('path') or '')
        found = {split: yolo_labels(content[split], base, root) for split in WORDS}
        return LabelFolder('yolo', found, file.name, classes)
    splits: dict[str, Labels] = {}
    for split in WORDS:  # without a yaml: images/train beside labels/train, and classes.txt
        for name in SPLITS[split]:
            for images, labels in ((f'images/{name}', f'labels/{name}'), (name, name)):
                if any((root / labels).glob('*.txt')) and (root / images).is_dir():
                    splits.setdefault(split, Labels(root / labels, root / images))
    listing = root / 'classes.txt'
    if len(splits) < len(WORDS) or not listing.is_file():
        return None
    return LabelFolder('yolo', splits, 'folder', read_classes(listing)[0])


def yolo_labels(given: object, base: Path, root: Path) -> Labels:
    """The labels of a split, which a yaml names by one folder of images.

    Raises:
        ValueError: it is no folder that is there.
    """
    parts = Path(str(given)).parts
    inside = Path(*(part for part in parts if part != '..'))  # as Roboflow writes it
    for folder in (base / str(given), root / str(given), root / inside):
        if folder.is_dir():
            break
    else:
        raise ValueError(f'{root}: {given!r} of its yaml is no folder of images')
    folder = folder.resolve()
    parts = folder.parts
    if 'images' not in parts:
        return Labels(folder, folder)
    place = len(parts) - 1 - parts[::-1].index('images')
    return Labels(Path(*parts[:place], 'labels', *parts[place + 1 :]), folder)


def find_voc(root: Path) -> LabelFolder | None:
    """Annotations/, JPEGImages/ and ImageSets/Main; or a folder of a split with both files."""
    homes = [
        path.parent
        for path in sorted([*root.glob('Annotations'), *root.glob('**/VOC20*/Annotations')])
        if (path.parent / 'JPEGImages').is_dir()
    ]
    if len(homes) > 1:
        raise ValueError(f'{root} has several VOC data sets: give one of {[*map(str, homes)]}')
    if not homes:
        return by_folder('voc', root, '.xml', is_voc)
    home = homes[0]
    labels, images = home / 'Annotations', home / 'JPEGImages'
    lists = {
        path.stem: frozenset(line.split()[0] for line in path.read_text().splitlines() if line)
        for path in (home / 'ImageSets' / 'Main').glob('*.txt')
    }
    for train, val in (('trainval', 'test'), ('train', 'val'), ('train', 'test')):
        if lists.get(train) and lists.get(val):
            splits = {'train': lists[train], 'val': lists[val]}
            described = f'ImageSets ({train}.txt, {val}.txt)'
            return LabelFolder(
                'voc', {s: Labels(labels, images, n) for s, n in splits.items()}, described
            )
    return by_chance('voc', labels, images, '.xml')


def is_voc(path: Path) -> bool:
    """Return whether an XML file is an annotation of Pascal VOC."""
    return ElementTree.parse(path).getroot().tag == 'annotation'


def find_dota(root: Path) -> LabelFolder | None:
    """Text files in labelTxt*/ or annfiles/ beside images/, of all or in train/ and val/."""
    splits: dict[str, Labels] = {}
    for split in WORDS:
        for name in SPLITS[split]:
            if labels := dota_labels(root / name) or dota_labels(root, name):
                splits.setdefault(split, labels)
    if len(splits) == len(WORDS):
        return LabelFolder('dota', splits, 'folder')
    if together := dota_labels(root):
        return by_chance('dota', together.source, together.images, '.txt')
    return None


def dota_labels(home: Path, below: str = '') -> Labels | None:
    """The first folder of text files in `home`, with its images, both in a folder `below`."""
    patterns = ('labelTxt*', 'labelTxt*/labelTxt*', 'annfiles')
    folders = [path / below for pattern in patterns for path in sorted(home.glob(pattern))]
    found = next((path for path in folders if any(path.glob('*.txt'))), None)
    images = home / 'images' / below
    return Labels(found, images) if found and images.is_dir() else None


def find_labelme(root: Path) -> LabelFolder | None:
    """A json file beside each image, in train/ and val/ or in one folder."""
    if found := by_folder('labelme', root, '.json', is_labelme):
        return found
    files = [path for path in sorted(root.rglob('*.json')) if is_labelme(path)]
    return by_chance('labelme', root, root, '.json') if files else None


def is_labelme(path: Path) -> bool:
    """Return whether a json file is LabelMe's."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except ValueError:
        return False
    return isinstance(content, dict) and 'shapes' in content


def find_cvat(root: Path) -> LabelFolder | None:
    """annotations.xml ("CVAT for images") beside images/, of all or in train/ and val/."""
    splits: dict[str, Labels] = {}
    for split in WORDS:
        for name in SPLITS[split]:
            for file in (root / name / 'annotations.xml', root / f'{name}.xml'):
                if file.is_file():
                    splits.setdefault(split, cvat_labels(file))
    if len(splits) == len(WORDS):
        return LabelFolder('cvat', splits, 'folder')
    file = root / 'annotations.xml'
    if not file.is_file():
        return None
    labels = cvat_labels(file)
    subsets: dict[str, set[str]] = {}
    for image in ElementTree.parse(file).getroot().iter('image'):
        name = Path(image.get('name', '')).with_suffix('').as_posix()
        subsets.setdefault(image.get('subset', '').lower(), set()).add(name)
    chosen = {
        split: next((frozenset(subsets[n]) for n in SPLITS[split] if n in subsets), None)
        for split in WORDS
    }
    if all(chosen.values()):
        splits = {s: Labels(file, labels.images, names) for s, names in chosen.items()}
        return LabelFolder('cvat', splits, 'subset')
    return by_chance('cvat', file, labels.images, None)


def cvat_labels(file: Path) -> Labels:
    """A file of CVAT and the folder of its images."""
    images = file.parent / 'images'
    return Labels(file, images if images.is_dir() else file.parent)


def by_folder(
    kind: str, root: Path, suffix: str, is_kind: Callable[[Path], bool]
) -> LabelFolder | None:
    """Labels beside the images, in a folder for each split."""
    splits: dict[str, Labels] = {}
    for split in WORDS:
        for name in SPLITS[split]:
            first = next(iter(sorted((root / name).rglob(f'*{suffix}'))), None)
            if first is not None and is_kind(first):
                splits.setdefault(split, Labels(root / name, root / name))
    return LabelFolder(kind, splits, 'folder') if len(splits) == len(WORDS) else None


def by_chance(kind: str, source: Path, images: Path, suffix: str | None) -> LabelFolder:
    """Every fifth image is for validation, by a hash of its name: more images move none."""
    names = image_files(images)
    if suffix is not None:  # images with a file of labels
        stems = {path.stem for path in source.rglob(f'*{suffix}')}
        names = {name: path for name, path in names.items() if path.stem in stems}
    parts = dict(split_names(names))
    for split, chosen in parts.items():
        if not chosen:
            raise ValueError(
                f'{source}: no image for {WORDS[split]} among {len(names)}: put training and '
                'validation images in train/ and val/'
            )
    labels = {split: Labels(source, images, names) for split, names in parts.items()}
    return LabelFolder(kind, labels, f'chance (one image of {VAL_PART} for validation)')


def split_names(names: Mapping[str, Path]) -> Iterator[tuple[str, frozenset[str]]]:
    """The names of each split."""
    val = {n for n in names if hashlib.sha256(n.encode()).digest()[0] % VAL_PART == 0}
    yield 'train', frozenset(names.keys() - val)
    yield 'val', frozenset(val)
