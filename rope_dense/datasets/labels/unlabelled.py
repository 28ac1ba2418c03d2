"""Pictures without labels: the images of a folder and frames of its videos, kept as a list."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2

from ...utils.atomic_write import atomic_write_text
from ...utils.progress import progress
from .files import VIDEO_SUFFIXES
from .inventory import Inventory
from .kept import kept
from .maps import DEPTH, MASKS, MapFiles, within
from .objects import Part, Report

SAMPLE = 512  # pictures that are looked at during training, evenly chosen
IS_MAP = 'file of a folder of masks or depth maps (left out)'
UNREAD = 'image that cannot be read (left out)'
DOUBLE = 'copy of another image, to the byte (left out)'


@dataclass(frozen=True)
class Pictures:
    """The images and videos in a folder."""

    splits: Mapping[str, Part]  # of one, 'train': ``unlabelled`` are its files
    report: Report

    def known(self) -> object:
        return 'pictures'


def as_pictures(
    inventory: Inventory,
    out: Path,
    folder: str | None,
    survey: Callable[[Mapping[str, Sequence[Path]]], Any],
    settings: object,
) -> MapFiles:
    """Lists of pictures, for ``UnlabelledDataset``, as files in a folder of ``out``.

    Copies of an image are left out, because each picture is a class of its own; of a video one
    frame a second is taken. See ``as_pairs``.

    Args:
        folder: below the data set's, or None for all of it without folders of masks and depths.
    """

    def write(found: Pictures, fresh: Path) -> dict[str, Any]:
        files, report = found.splits['train'].unlabelled, found.report
        videos = [file for file in files if is_video(file)]
        images = distinct([file for file in files if not is_video(file)], report)
        images = readable(inventory, images, report)
        frames = [frame for video in videos for frame in save_frames(video, fresh / 'frames')]
        listed = [within(path, inventory.root) for path in images]
        listed += [within(path, fresh) for path in frames]
        if len(listed) < 2:
            raise ValueError(f'{inventory.root}: {len(listed)} pictures; {report}')
        numbered = [*enumerate(listed)]
        sample = numbered[:: -(-len(listed) // SAMPLE)]
        for split, some in dict(train=numbered, val=sample).items():
            content = dict(pictures=some, total=len(listed), frames=len(frames))
            atomic_write_text(fresh / f'{split}.json', json.dumps(content))
        text = f'{len(listed)} pictures without labels'
        text += f', {len(frames)} of them frames of {len(videos)} videos' if videos else ''
        taken = [*images, *frames]
        return dict(
            images=dict(train=len(taken), val=len(sample)),
            text='\n'.join([text, *report.lines()]),
            survey=survey(dict(train=taken, val=[taken[number] for number, _ in sample])),
        )

    def find(inventory: Inventory) -> Pictures:
        return find_pictures(inventory, folder)

    target, summary = kept(inventory, out, ('pictures', folder, settings), find, write)
    lists = {split: str((target / f'{split}.json').absolute()) for split in ('train', 'val')}
    return MapFiles(lists, state=target.name, **summary)


def find_pictures(inventory: Inventory, folder: str | None) -> Pictures:
    """The images and videos of a folder; ValueError if there is none."""
    root, report = inventory.root, Report()
    top = root if folder is None else root / folder
    found = [*(file for _, file in sorted(inventory.images(top).by_path.items()))]
    found += inventory.below(top, VIDEO_SUFFIXES)
    files = []
    for path in found:
        words = (kind.word(x) for kind in (MASKS, DEPTH) for x in path.relative_to(top).parts[:-1])
        if folder is None and any(word and word[1] for word in words):
            report.note(IS_MAP, within(path, root))
        else:
            files.append(path)
    if not files:
        raise ValueError(f'{top}: no picture; there are {inventory.suffixes_in(top)}')
    part = Part(source=files[0], images=root, inventory=inventory, unlabelled=files)
    return Pictures(dict(train=part), report)


def is_video(path: Path) -> bool:
    """Return whether a file is a video, by its suffix."""
    return path.suffix.lower() in VIDEO_SUFFIXES


def distinct(files: Iterable[Path], report: Report) -> list[Path]:
    """The files but for copies, to the byte, of an earlier one."""
    sizes = defaultdict[int, list[Path]](list)
    for file in files:
        sizes[file.stat().st_size].append(file)
    copies, alike = set[Path](), [some for some in sizes.values() if len(some) > 1]
    for some in alike:
        seen = set[bytes]()
        for file in some:
            with file.open('rb') as opened:
                digest = hashlib.file_digest(opened, 'sha256').digest()
            if digest in seen:
                copies.add(file)
                report.note(DOUBLE, file.name)
            seen.add(digest)
    return sorted(file for some in sizes.values() for file in some if file not in copies)


def readable(inventory: Inventory, files: Iterable[Path], report: Report) -> list[Path]:
    """The images whose headers can be read."""
    images = []
    for file in files:
        try:
            inventory.header(file)
            images.append(file)
        except ValueError:
            report.note(UNREAD, file.name)
    return images


def save_frames(video: Path, folder: Path) -> list[Path]:
    """The first frame of each second of a video as JPEG files; ValueError if it has none."""
    from ..images.sources import find_video  # PyTorch, which pictures do without

    found, frames = find_video(str(video)), []
    assert found is not None  # by its suffix
    target = folder / f'{video.stem}-{hashlib.sha256(bytes(video)).hexdigest()[:8]}'
    target.mkdir(parents=True)
    step = max(1, round(found.rate))
    for number, frame in enumerate(progress(found.frames(), f'frames of {video.name}')):
        if number % step == 0:
            frames.append(target / f'{number:06d}.jpg')
            cv2.imwrite(str(frames[-1]), frame)
    return frames
