"""Pictures without labels: the images of a folder and frames of its videos, kept as a list."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2

from ...utils.disk import atomic_write_text
from ...utils.progress import progress
from .files import VIDEO_SUFFIXES
from .inventory import Inventory
from .kept import write_if_changed
from .label_folder import Split, SplitFiles
from .maps import DEPTH, MASKS, MapFiles, MapFolder, relative_path
from .objects import Report

IS_MAP = 'file of a folder of masks or depth maps (left out)'
UNREAD = 'file that cannot be read (left out)'
DOUBLE = 'copy of another image, to the byte (left out)'


def write_picture_list(
    inventory: Inventory,
    out: Path,
    folder: str | None,
    survey: Callable[[Mapping[str, Sequence[Path]]], Any],
    settings: object,
) -> MapFiles:
    """Write a list of pictures, for ``UnlabelledDataset``, to a file in a folder of ``out``.

    Copies of an image are left out, because each picture is a class of its own; of a video one
    frame a second is taken, as a file beside the list. See ``write_pair_lists``.

    Args:
        folder: below the data set's, or None for all of it without folders of masks and depths.
    """
    report = Report()

    def write(found: MapFolder, fresh: Path) -> dict[str, Any]:
        report.note_results(inventory.skipped)
        files = found.splits['train'].files.unlabelled
        videos = [file for file in files if file.suffix.lower() in VIDEO_SUFFIXES]
        images = usable(inventory, files[: len(files) - len(videos)], report)
        frames = list[Path]()
        for video in videos:
            frames += save_frames(video, fresh / 'frames', report)
        number = len(images) + len(frames)
        if number < 2:
            raise ValueError(
                f'{inventory.root}: {number} pictures; {"; ".join(report.lines())}'
            )
        paths = dict(
            images=[relative_path(path, inventory.root) for path in images],
            frames=[relative_path(path, fresh) for path in frames],
        )
        atomic_write_text(fresh / 'pictures.json', json.dumps(paths))
        text = f'{number} pictures without labels'
        if videos:
            text += f', {len(frames)} of them frames of {len(videos)} videos'
        about = survey(dict(train=images + frames, val=()))
        text = '\n'.join([text, *report.lines()])
        return dict(images=dict(train=number), text=text, survey=about)

    find = partial(find_pictures, folder=folder, report=report)
    asked = 'pictures', folder, settings
    target, summary = write_if_changed(inventory, out, asked, find, write)
    listed = str((target / 'pictures.json').absolute())
    return MapFiles(dict(train=listed, val=listed), state=target.name, **summary)


def find_pictures(
    inventory: Inventory,
    folder: str | None,
    report: Report,
) -> MapFolder:
    """Images, then videos, of a folder, as images without a mask; ValueError if there is none."""
    root = inventory.root
    top = root if folder is None else root / folder
    files = []
    paths = [*inventory.images(top).by_path.values()]
    for path in paths + inventory.below(top, VIDEO_SUFFIXES):
        is_map = False
        for name in path.relative_to(top).parts[:-1] if folder is None else ():
            for kind in (MASKS, DEPTH):
                word = kind.word(name)
                is_map |= bool(word and word.of_labels)
        if is_map:
            report.note(IS_MAP, relative_path(path, root))
        else:
            files.append(path)
    if not files:
        raise ValueError(f'{top}: no picture; there are {inventory.suffixes_in(top)}')
    pictures = SplitFiles(unlabelled=files)
    part = Split(files[0], root, inventory=inventory, files=pictures)
    return MapFolder(MASKS, dict(train=part), 'without labels')


def usable(inventory: Inventory, files: Sequence[Path], report: Report) -> list[Path]:
    """The images that can be read, but for copies, to the byte, of an earlier one."""
    sizes = Counter(file.stat().st_size for file in files)
    images = dict[object, Path]()  # by their content
    for file in files:
        content: object = file
        if sizes[file.stat().st_size] > 1:
            content = hashlib.sha256(file.read_bytes()).digest()
        try:
            inventory.header(file)
        except ValueError:
            report.note(UNREAD, file.name)
            continue
        if images.setdefault(content, file) != file:
            report.note(DOUBLE, file.name)
    return [*images.values()]


def save_frames(video: Path, folder: Path, report: Report) -> list[Path]:
    """The first frame of each second of a video, as JPEG files in a folder of its own."""
    from ..images.sources import find_video  # PyTorch, which pictures do without

    target = folder / hashlib.sha256(bytes(video)).hexdigest()[:16]
    target.mkdir(parents=True)
    try:
        found = find_video(str(video))
    except ValueError:
        found = None
    if found is None:
        report.note(UNREAD, video.name)
        return []
    files = []
    step = max(1, round(found.rate))
    for number, frame in enumerate(progress(found.frames(), f'frames of {video.name}')):
        if number % step == 0:
            file = target / f'{video.stem}-{number:06d}.jpg'
            cv2.imwrite(str(file), frame)
            files.append(file)
    return files
