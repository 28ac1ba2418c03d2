"""COCO files in a folder: recognised, and which one is of which split."""

from __future__ import annotations

import filecmp
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .files import IMAGE_SUFFIXES, list_files, read_text
from .splits import SPLITS, WORDS

# Words of file names and folders that do not tell one COCO file from another.
USUAL_NAMES = {*'annotation annotations instances instance coco labels label default json'.split()}
USUAL_NAMES |= {'result', 'results'}
USUAL_FOLDERS = USUAL_NAMES | {'images', 'data'}
DEPTH = 4  # of a file below the folder: export/train/annotations/instances_default.json
CROWD = 20  # JSON files in one folder: more are files of one image each
GAP = re.compile(r'[\s,:]*')


@dataclass(frozen=True)
class Candidate:
    """A JSON file, by its name and folders.

    Attributes:
        home: its folders, without those that name a split or are usual.
        split: 'train', 'val' or '', for files whose names tell no split, or both.
        rank: the lowest is taken: not of a test split, no other words in the name.
    """

    path: Path
    home: tuple[str, ...]
    split: str
    rank: tuple[bool, bool]


@dataclass(frozen=True)
class CocoFile:
    """A COCO file with the entries of its images."""

    path: Path
    images: list[Any]

    def image_names(self) -> list[str]:
        """The file names of the images, of those that have one."""
        return [
            name for entry in self.images if isinstance(entry, dict) and (name := name_of(entry))
        ]


def candidates(root: Path) -> Iterator[Candidate]:
    """The files that may be COCO's: no LabelMe file beside its image, none of very many."""
    paths = list_files(root, ('.json', *IMAGE_SUFFIXES))
    pictures = {path.with_suffix('') for path in paths if path.suffix.lower() != '.json'}
    files = [path for path in paths if path.suffix.lower() == '.json']
    crowds = Counter(path.parent for path in files)
    for path in files:
        if path.with_suffix('') in pictures or len(path.relative_to(root).parts) > DEPTH:
            continue
        candidate = candidate_of(path, root)
        if crowds[path.parent] <= CROWD or not candidate.rank[1]:
            yield candidate


def candidate_of(path: Path, root: Path) -> Candidate:
    """A file with the split and rank that its name and its folders say."""
    folders = path.relative_to(root).parts[:-1]
    words = words_of(path.name.lower().removesuffix('.json'))
    splits = splits_in(words)
    if not splits:
        splits = next(filter(None, (splits_in(words_of(name)) for name in folders[::-1])), {})
    home = tuple(
        name
        for name in folders
        if not splits_in(words_of(name)) and name.lower() not in USUAL_FOLDERS
    )
    others = [word for word in words if word not in USUAL_NAMES and not splits_in([word])]
    split = next(iter(splits)) if len(splits) == 1 else ''
    return Candidate(path, home, split, (splits.get(split, '').startswith('test'), bool(others)))


def words_of(name: str) -> list[str]:
    """The words of a name, in lower case: 'instances_train2017' has two."""
    return [word for word in re.split('[^a-z0-9]+', name.lower()) if word]


def splits_in(words: Sequence[str]) -> dict[str, str]:
    """The splits that words name, with the word: a year may follow, as in 'train2014'."""
    bare = {re.sub(r'(?:19|20)\d\d$', '', word): word for word in words}
    found = {split: [name for name in names if name in bare] for split, names in SPLITS.items()}
    return {split: bare[names[0]] for split, names in found.items() if names}


def chosen_files(root: Path) -> tuple[Path, dict[str, CocoFile]]:
    """The folder of a data set and its files by split, '' for a file of both; {} for none.

    Raises:
        ValueError: several files could be meant, or the only one has images and no objects.
    """
    homes: dict[tuple[str, ...], list[Candidate]] = {}
    for candidate in candidates(root):
        homes.setdefault(candidate.home, []).append(candidate)
    for depth in sorted({len(home) for home in homes}):
        found = {
            root.joinpath(*home): files
            for home, given in homes.items()
            if len(home) == depth and (files := best_files(given))
        }
        if len(found) > 1:
            names = ', '.join(str(home.relative_to(root)) for home in found)
            raise ValueError(f'{root} has several COCO data sets ({names}): give one as data_root')
        if found:
            return next(iter(found.items()))
    check_others(root, [one for given in homes.values() for one in given])
    return root, {}


def check_others(root: Path, given: Sequence[Candidate]) -> None:
    """Check that no file is of COCO's kind or of another tool where labels of no format are.

    Raises:
        ValueError: one is; the message has what it is.
    """
    labels = list_files(root, ('.txt', '.xml', '.yaml', '.yml', '.json'))
    paths = {one.path for one in given}
    is_alone = all(path in paths or path.stem.lower().startswith('readme') for path in labels)
    for one in given:
        try:
            content = head(one.path)
        except ValueError:  # its name promises nothing
            continue
        has_images = isinstance(content, dict) and isinstance(content.get('images'), list)
        if (is_alone and other_tool(content)) or (has_images and not one.rank[1]):
            check_coco(one.path, content)


def best_files(given: Sequence[Candidate]) -> dict[str, CocoFile]:
    """The file of each split, or the file '' of both; {} for none."""
    found = {split: file for split in SPLITS if (file := best_file(given, split))}
    if 'train' in found:
        check_validation(given, found.get('val'))
        return found
    whole = best_file(given, '')
    if not found:
        return {'': whole} if whole else {}
    for item in given:
        if item.split == 'train':
            check_coco(item.path, head(item.path))
    names = ', '.join(item.path.name for item in given)
    raise ValueError(
        f'{found["val"].path} is of the validation split, and no COCO file of the training split '
        f'(there are {names}): name it by own.train=FILE, or another format by own.format'
    )


def check_validation(given: Sequence[Candidate], taken: CocoFile | None) -> None:
    """Check that no file such as val.json is passed over, for a test split or for none.

    Raises:
        ValueError: it has no labels of objects.
    """
    paths = [one.path for one in given if one.split == 'val' and one.rank == (False, False)]
    if not taken or taken.path not in paths:
        for path in paths:
            check_coco(path, head(path))


def best_file(given: Sequence[Candidate], split: str) -> CocoFile | None:
    """The COCO file of a split whose name says it best.

    Raises:
        ValueError: several names say it equally well, and the files differ.
    """
    items = [item for item in given if item.split == split]
    for rank in sorted({item.rank for item in items}):
        files = [file for item in items if item.rank == rank and (file := coco_file(item))]
        paths = [file.path for file in files]
        if others := [path for path in paths[1:] if not filecmp.cmp(paths[0], path, False)]:
            names = ', '.join(map(str, [paths[0], *others]))
            what = f'the {WORDS[split]} labels' if split else 'the labels'
            raise ValueError(
                f'several COCO files could be {what}: {names}: name one by own.{split or "train"}='
                'FILE, or leave one in the folder'
            )
        if files:
            return files[0]
    return None


def coco_file(item: Candidate) -> CocoFile | None:
    """The file, if it has COCO's annotations.

    Raises:
        ValueError: it is no JSON, or cut off, and its name promises COCO's.
    """
    try:
        content = head(item.path)
    except ValueError:
        if item.rank[1]:
            return None
        raise
    return None if unlike_coco(content) else CocoFile(item.path, content['images'])


def head(path: Path) -> Any:
    """The content of a JSON file, of COCO's `annotations` only the first.

    COCO's own file has 450 MB, of which the images come first: they take one to two seconds.

    Raises:
        ValueError: it is no JSON, or cut off.
    """
    text, content = read_text(path), dict[str, Any]()
    decode = json.JSONDecoder().raw_decode
    try:
        index = after_gap(text, 0)
        if text[index] != '{':
            return decode(text, index)[0]
        index = after_gap(text, index + 1)
        while text[index] != '}':
            key, index = decode(text, index)
            index = after_gap(text, index)
            if key == 'annotations' and 'images' in content and text[index] == '[':
                start = after_gap(text, index + 1)
                return content | {key: [] if text[start] == ']' else [decode(text, start)[0]]}
            content[key], index = decode(text, index)
            index = after_gap(text, index)
    except (json.JSONDecodeError, IndexError) as error:
        raise ValueError(f'{path} is no JSON, or cut off ({error})') from error
    return content


def after_gap(text: str, index: int) -> int:
    """The place behind white space, commas and colons."""
    found = GAP.match(text, index)
    return found.end() if found else index


def check_coco(path: Path, content: Any) -> None:
    """Raise ValueError unless a JSON file has annotations of objects by COCO."""
    if reason := unlike_coco(content):
        raise ValueError(f'{path} is no COCO file of objects, {reason}')


def unlike_coco(content: Any) -> str | None:
    """The reason why a JSON file has no annotations of objects by COCO; None if it has some."""
    if reason := other_tool(content):
        return reason
    if not isinstance(content, dict):
        return 'but a list' if isinstance(content, list) else 'but no object of JSON'
    if isinstance(content.get('shapes'), list):
        return 'but labels of one image by LabelMe: give the folder of all of them as data_root'
    if lacking := [k for k in ('images', 'annotations') if not isinstance(content.get(k), list)]:
        return f'but without a list of {" and ".join(lacking)}'
    return None


def other_tool(content: Any) -> str | None:
    """The tool or task that a JSON file is of, if it is known and not COCO's objects, or None."""
    if isinstance(content, list):
        first = content[0] if content and isinstance(content[0], dict) else {}
        if 'score' in first:
            return 'but a list of predictions, not annotations'
        if 'annotation_id' in first or ('data' in first and 'annotations' in first):
            return 'but tasks of Label Studio: export them as COCO'
        return None
    if not isinstance(content, dict):
        return None
    values = [value for value in content.values() if isinstance(value, dict)]
    if '_via_img_metadata' in content or any('regions' in value for value in values):
        return 'but a project of VIA: export its annotations as COCO'
    if isinstance(content.get('items'), list) and 'categories' in content:
        return 'but a data set of Datumaro: export it as COCO'
    if isinstance(content.get('videos'), list) and 'images' not in content:
        return 'but videos, as YouTube-VIS has them: export their frames as images of COCO'
    annotations = content.get('annotations')
    if not isinstance(annotations, list) or not annotations or not isinstance(annotations[0], dict):
        return None
    if 'segments_info' in annotations[0]:
        return 'but panoptic segments, whose masks are in PNG files: take the instances'
    if 'caption' in annotations[0] and 'bbox' not in annotations[0]:
        return 'but captions, without boxes: take the instances'
    return None


def name_of(entry: dict[str, Any]) -> str:
    """The file name of an image; LVIS has only its address. '' for none."""
    return str(entry.get('file_name') or entry.get('coco_url') or '')
