"""COCO files in a folder: parsed, recognised, and which one is of which split."""

from __future__ import annotations

import filecmp
import json
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from .files import errors_at, parts_of, read_text, size_in, without_suffix
from .foreign import other_tool
from .inventory import Images, Inventory
from .places import SPLITS
from .splits import WORDS

# Words of file names and folders that do not tell one COCO file from another.
USUAL_NAMES = set(
    'annotation annotations instance instances label labels result results '
    'coco default json'.split()
)
USUAL_FOLDERS = USUAL_NAMES | {'images', 'data'}
DEPTH = 4  # of a file below the folder: export/train/annotations/instances_default.json
CROWD = 20  # JSON files in one folder: more are files of one image each
FEDERATED = ('not_exhaustive_category_ids', 'neg_category_ids')  # of images of LVIS
GAP = re.compile(r'[\s,:]*')
decode = json.JSONDecoder().raw_decode


@dataclass
class CocoFile:
    """A COCO file.

    COCO's own has 450 MB, and its annotations would take 3 GB as objects. So they stay text, and
    each is decoded where its image is read.
    """

    path: Path
    content: Any  # all but the annotations, of which the first may be there
    text: str  # '' unless the file is read whole
    # Of annotations in the text.
    starts: array[int] = field(default_factory=lambda: array('q'))
    # Of the annotations, see ``id_of``.
    image_ids: list[str] = field(default_factory=list)
    category_ids: set[str] = field(default_factory=set)  # that annotations have

    def annotation(self, number: int) -> dict[str, Any]:
        """An annotation by its number in the file, which is its id if it has none."""
        item, _ = decode(self.text, self.starts[number])
        return {'id': f'number {number}', **item}

    def image_names(self) -> list[str]:
        """The file names of the images that have one."""
        entries = [item for item in self.content['images'] if isinstance(item, dict)]
        return [*filter(None, map(name_of, entries))]

    def check(self) -> None:
        """Raise ValueError unless the file has annotations of objects by COCO."""
        reason = why_not_coco(self.content)
        if reason:
            raise ValueError(f'{self.path} is no COCO file of objects, but {reason}')


def load_coco(path: Path, *, is_whole: bool = False) -> CocoFile:
    """A JSON file, of COCO's `annotations` only the first unless it is read whole.

    COCO's images come first, which takes one to two seconds of a file of 450 MB. An error of JSON
    is a ValueError that names the file.
    """
    with errors_at(path):
        text = read_text(path)
        file = CocoFile(path, {}, text)
        index = after_gap(text, 0)
        if not text.startswith('{', index):
            file.content, index = decode(text, index)
        else:
            index = after_gap(text, index + 1)
            while not text.startswith('}', index):
                key, end = decode(text, index)
                if not isinstance(key, str):
                    raise json.JSONDecodeError('Expecting a name', text, index)
                index = after_gap(text, end)
                if key != 'annotations' or not text.startswith('[', index):
                    file.content[key], index = decode(text, index)
                else:
                    index = parse_annotations(file, index, is_whole)
                    if index < 0:
                        break
                index = after_gap(text, index)
            index += 1
        if not is_whole:
            file.text = ''  # its memory
        elif text[index:].strip():
            raise json.JSONDecodeError('Extra data', text, index)
    return file


def parse_annotations(file: CocoFile, index: int, is_whole: bool) -> int:
    """The place behind the list of annotations at `index`; -1 to stop, with the first one read."""
    text = file.text
    first: list[Any] = []
    file.content['annotations'] = first
    index = after_gap(text, index + 1)
    images: dict[str, str] = {}  # so that an id of many annotations is one text
    while not text.startswith(']', index):
        item, end = decode(text, index)
        if not first:
            first.append(item)
        if is_whole:
            if not isinstance(item, dict):
                raise ValueError(
                    f'number {len(file.starts)} of annotations is {item!r:.80}'
                )
            key = id_of(item.get('image_id'))
            file.starts.append(index)
            file.image_ids.append(images.setdefault(key, key))
            file.category_ids.add(id_of(item.get('category_id')))
        elif 'images' in file.content:
            return -1
        index = after_gap(text, end)
    return index + 1


def after_gap(text: str, index: int) -> int:
    """The place behind white space, commas and colons."""
    found = GAP.match(text, index)
    if found:
        return found.end()
    return index


def id_of(value: Any) -> str:
    """An id as text: 1, 1.0 and '1' are the same; '01' is another one."""
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if is_whole else value).strip()


def ids_in(entry: dict[str, Any], key: str) -> frozenset[str]:
    """A list of ids."""
    return frozenset(map(id_of, entry.get(key) or ()))


def name_of(entry: dict[str, Any]) -> str:
    """The file name of an image; LVIS has only its address. '' for none."""
    return str(entry.get('file_name') or entry.get('coco_url') or '')


def gsd_of(entry: dict[str, Any]) -> object:
    """What an image has as its ground distance; None for nothing."""
    return entry.get('gsd', entry.get('GSD'))


class Entry(NamedTuple):
    """An image of a COCO file: its size (height, width), and the numbers of its annotations."""

    name: str
    size: tuple[int, int] | None
    numbers: list[int]
    # Ids of categories, as LVIS has them: without an object here (None for all without one), and
    # with objects that are not labelled.
    absent: frozenset[str] | None
    unfinished: frozenset[str]
    gsd: object


def image_entries(file: CocoFile) -> dict[str, Entry]:
    """The images by their ids; ValueError if two images have one id, or one has no name."""
    entries: dict[str, Entry] = {}
    images = file.content['images']
    rows = [item for item in images if isinstance(item, dict)]
    is_federated = any(item.get(key) for item in rows for key in FEDERATED)
    for number, item in enumerate(images):
        with errors_at(f'{file.path.name}, image number {number}'):
            if not isinstance(item, dict):
                raise ValueError(
                    f'it is {item!r:.80}, not {{"id": ..., "file_name": ...}}'
                )
            key = id_of(item['id'])
            name = name_of(item)
            if not name:
                raise ValueError("'file_name' is missing")
            unfinished, absent = (ids_in(item, key) for key in FEDERATED)
            is_whole = not is_federated or FEDERATED[1] not in item
            size = size_in(item, 'height', 'width')
            entry = Entry(
                name, size, [], None if is_whole else absent, unfinished, gsd_of(item)
            )
            other = entries.setdefault(key, entry).name
            if other != name:
                raise ValueError(f'id {key} is of {other} and of {name}')
    for number, key in enumerate(file.image_ids):
        if key in entries:
            entries[key].numbers.append(number)
    return entries


def why_not_coco(content: Any) -> str | None:
    """The reason why a JSON file has no annotations of objects by COCO; None if it has some."""
    reason = other_tool(content)
    if reason:
        return reason
    if not isinstance(content, dict):
        if isinstance(content, list):
            return 'a list'
        return 'no object of JSON'
    if isinstance(content.get('shapes'), list):
        return 'labels of one image by LabelMe: give the folder of all of them as data_root'
    lists = ('images', 'annotations')
    lacking = [key for key in lists if not isinstance(content.get(key), list)]
    if lacking:
        return f'without a list of {" and ".join(lacking)}'
    return None


class Rank(NamedTuple):
    """How little a file's name says that it is the one of its split; the lowest is taken."""

    is_test: bool
    has_other_words: bool


@dataclass(frozen=True)
class Candidate:
    """A JSON file, by its name and folders."""

    path: Path
    # Its folders, without the ones that name a split or are usual.
    home: tuple[str, ...]
    split: str  # 'train', 'val' or '', for files whose names tell no split, or both
    rank: Rank

    def read(self) -> CocoFile | None:
        """The file if it is COCO's; ValueError for one that is broken, and has no other words."""
        try:
            file = load_coco(self.path)
        except ValueError:
            if self.rank.has_other_words:
                return None
            raise
        if why_not_coco(file.content):
            return None
        return file


def candidates(inventory: Inventory) -> list[Candidate]:
    """The files that may be COCO's: no LabelMe file beside its image, none of very many."""
    root = inventory.root
    found = []
    files = inventory.below(root, ('.json',))
    images = inventory.images(root)
    crowds = Counter(path.parent for path in files)
    for path in files:
        folders = path.relative_to(root).parts[:-1]
        words = words_of(path.name.lower().removesuffix('.json'))
        others = [word for word in words if not splits_in([word])]
        has_others = not USUAL_NAMES.issuperset(others)
        is_crowded = has_others and crowds[path.parent] > CROWD
        has_image = images.stem_of(path) in images.by_stem
        if is_crowded or has_image or len(folders) >= DEPTH:
            continue
        splits = splits_in(words)
        home = []
        for folder in reversed(folders):
            named = splits_in(words_of(folder))
            splits = splits or named
            if not named and folder.lower() not in USUAL_FOLDERS:
                home.append(folder)
        split = ''
        if len(splits) == 1:
            split = next(iter(splits))
        rank = Rank(splits.get(split, '').startswith('test'), has_others)
        found.append(Candidate(path, tuple(reversed(home)), split, rank))
    return found


def words_of(name: str) -> list[str]:
    """The words of a name, in lower case: 'instances_train2017' has two."""
    return re.findall('[a-z0-9]+', name.lower())


def splits_in(words: Sequence[str]) -> dict[str, str]:
    """The splits that words name, with the word: a year may follow, as in 'train2014'."""
    bare = {re.sub(r'(?:19|20)\d\d$', '', word): word for word in words}
    found = {}
    for split, names in SPLITS.items():
        for name in names:
            if name in bare:
                found[split] = bare[name]
                break
    return found


def chosen_files(inventory: Inventory) -> tuple[Path, dict[str, CocoFile]]:
    """The folder of a data set and its files by split, '' for a file of both; {} for none."""
    root = inventory.root
    homes = defaultdict(list)
    for candidate in candidates(inventory):
        homes[candidate.home].append(candidate)
    for depth in sorted({*map(len, homes)}):
        found = {}
        for home, given in homes.items():
            files = {}
            if len(home) == depth:
                files = best_files(given, bool(inventory.asked))
            if files:
                found[root.joinpath(*home)] = files
        if len(found) > 1:
            names = ', '.join(str(place.relative_to(root)) for place in found)
            raise ValueError(
                f'{root} has several COCO data sets ({names}): give one as data_root, or '
                'own.format=folders, which joins them'
            )
        if found:
            return next(iter(found.items()))
    for one in chain(*homes.values()):
        if one.rank.has_other_words:
            continue
        file = load_coco(one.path)
        content = file.content
        if isinstance(content, dict) and isinstance(content.get('images'), list):
            file.check()
    return root, {}


def best_files(
    given: Sequence[Candidate], is_evaluation: bool = False
) -> dict[str, CocoFile]:
    """The file of each split, or the file '' of both; {} for none. One of training is needed.

    For an evaluation, the only file is of both.
    """
    found = {}
    for split in SPLITS:
        file = best_file(given, split)
        if file:
            found[split] = file
    if not found:
        file = best_file(given, '')
        if file:
            return {'': file}
        return {}
    if is_evaluation and 'val' in found:
        found.setdefault('train', found['val'])
    lacking = 'train'
    if 'train' in found:
        lacking = 'val'
    named = []
    for one in given:
        if one.split == lacking and (lacking == 'train' or not any(one.rank)):
            named.append(one.path)
    if lacking not in found or found[lacking].path not in named:
        for path in named:
            load_coco(path).check()
    if 'train' not in found:
        names = ', '.join(one.path.name for one in given)
        raise ValueError(
            f'{found["val"].path} is of the validation split, and no COCO file of the training '
            f'split (there are {names}): name it by own.train=FILE, or another format by own.format'
        )
    return found


def best_file(given: Sequence[Candidate], split: str) -> CocoFile | None:
    """The COCO file of a split whose name says it best; ValueError for several that differ."""
    items = [item for item in given if item.split == split]
    for rank in sorted({item.rank for item in items}):
        best = None
        several = []
        for item in items:
            file = item.read() if item.rank == rank else None
            if file and not (best and filecmp.cmp(best.path, file.path, shallow=False)):
                several.append(str(file.path))
                best = best or file
        if len(several) > 1:
            what = 'the labels'
            if split:
                what = f'the {WORDS[split]} labels'
            raise ValueError(
                f'several COCO files could be {what}: {", ".join(several)}: '
                f'name one by own.{split or "train"}=FILE, or leave one in the folder'
            )
        if best:
            return best
    return None


def find_image(images: Images, name: str) -> Path | None:
    """The file of an image's name: a path, or an address as Label Studio writes it."""
    plain = plain_name(name)
    return images.find(name) or (images.find(plain) if plain != name else None)


def plain_name(name: str) -> str:
    """The path in an address, as in /data/local-files/?d=folder/a%20b.jpg."""
    return unquote(re.split('[?#]', name.rpartition('?d=')[2])[0])


def stem_of(name: str, images: Images) -> str:
    """The path of an image without suffix; its name where it is not there."""
    file = find_image(images, name)
    if file:
        return images.stem_of(file)
    return without_suffix('/'.join(parts_of(name)))
