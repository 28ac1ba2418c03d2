"""The images and frames that a file of CVAT labels: their image files, sizes and shapes."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from .files import finite, naming, without_suffix
from .inventory import Images
from .objects import Part

FRAME = re.compile(r'(?:^|/)frame_(\d+)$')  # as CVAT exports frames
NUMBER = re.compile(r'(\d+)$')
# Attributes of shapes that are read: a file may have a million shapes.
NUMBERS = (*'xtl ytl xbr ybr cx cy rx ry left top width height rotation points rle'.split(),)


class Node(NamedTuple):
    """A shape: its label, type and numbers as text."""

    label: str
    tag: str
    attrib: dict[str, str]


@dataclass
class Picture:
    """An image, or a frame of a video.

    Attributes:
        name: in the file of labels.
        subset: of the project; '' for none.
        size: (height, width); None if the labels do not say it.
        nodes: its shapes.
        stem: path in the folder of images without suffix; by its name if the file is not there.
        file: None if it is not there.
        is_frame: its shapes are of tracks.
    """

    name: str
    subset: str
    size: tuple[int, int] | None
    nodes: list[Node] = field(default_factory=list)
    stem: str = ''
    file: Path | None = None
    is_frame: bool = False


@dataclass
class Contents:
    """The pictures of a file, first the <image> elements, and its classes in their order."""

    pictures: list[Picture]
    classes: list[str]


def contents_of(part: Part) -> Contents:
    """The pictures of a file with their shapes, and its classes; parsed once for both splits.

    Raises:
        ValueError: no XML, or frames whose image files cannot be told; the message has the file.
    """
    with naming(part.source):
        images = part.inventory.images(part.images)
        return part.inventory.content(part.source, lambda file: parse(file, images))


def parse(file: Path, images: Images) -> Contents:
    """The pictures of a file with their shapes, and its classes."""
    meta, tracks, by_frame = Element('meta'), list[Element](), dict[tuple[str, str], Picture]()
    pictures = list[Picture]()
    try:
        for _, element in ElementTree.iterparse(file):
            if element.tag == 'image':
                name = (element.get('name') or '').replace('\\', '/')
                nodes = [node_of(shape, shape.get('label')) for shape in element]
                picture = Picture(name, element.get('subset') or '', size_of(element), nodes)
                pictures.append(picture)
                by_frame[picture.subset, element.get('id') or ''] = picture
                element.clear()
            elif element.tag == 'track':
                tracks.append(element)
            elif element.tag == 'meta':
                meta = element
    except (ElementTree.ParseError, LookupError) as error:
        raise ValueError(f'{file} is no XML, or cut off ({error})') from error
    find_files(pictures, images)
    for subset in dict.fromkeys(track.get('subset') or '' for track in tracks):
        some = [track for track in tracks if (track.get('subset') or '') == subset]
        if len({track.get('task_id') for track in some}) > 1:
            raise ValueError(
                f'subset {subset!r} has tracks of several tasks, which number their frames alike: '
                'export each task, or "CVAT for images 1.1"'
            )
        frames = frames_in(some)
        for number in [number for number in frames if (subset, str(number)) in by_frame]:
            by_frame[subset, str(number)].nodes += frames.pop(number)
        if frames:
            pictures += frames_as_pictures(frames, some, task_of(meta, some[0]), subset, images)
    names = [
        (label.findtext('name') or '').strip()
        for label in meta.iterfind('.//labels/label')  # not parts of skeletons, tags of images
        if not label.findtext('parent') and label.findtext('type') != 'tag'
    ]
    return Contents(pictures, [name for name in dict.fromkeys(names) if name])


def node_of(shape: Element, label: str | None) -> Node:
    """A shape without what is not read of it."""
    attrib = {name: value for name in NUMBERS if (value := shape.get(name)) is not None}
    return Node((label or '').strip(), shape.tag, attrib)


def find_files(pictures: Sequence[Picture], images: Images) -> None:
    """Fill in the file and the stem of each picture.

    An image file is one picture's whose path it has; where it is none's, a name is enough.
    """
    for picture in pictures:
        name = picture.name
        picture.file = image_at(f'{picture.subset}/{name}', images) or image_at(name, images)
    taken = {picture.file for picture in pictures}
    for picture in pictures:
        if picture.file is None and (named := images.find(picture.name)) not in taken:
            picture.file = named
        file = picture.file
        picture.stem = images.stem_of(file) if file else without_suffix(picture.name)


def image_at(path: str, images: Images) -> Path | None:
    """The image of a path, which may have no suffix or another one."""
    path = path.strip('/')
    return images.by_path.get(path) or images.by_stem.get(without_suffix(path))


def size_of(node: Element | None) -> tuple[int, int] | None:
    """(height, width) of an <image>, or of the <original_size> of a task."""
    if node is None:
        return None
    sides = [node.get(name) or node.findtext(name) or 0 for name in ('height', 'width')]
    height, width = (int(side) for side in finite(sides, 'a side of the image'))
    return (height, width) if height > 0 and width > 0 else None


def task_of(meta: Element, track: Element) -> Element | None:
    """The description of the task or job of a track."""
    tasks = [*meta.iterfind('project/tasks/task'), *meta.iterfind('task'), *meta.iterfind('job')]
    number = track.get('task_id')
    return next((task for task in tasks if number in (None, task.findtext('id'))), None)


def frames_in(tracks: Sequence[Element]) -> dict[int, list[Node]]:
    """The shapes of each frame: those that are within it."""
    frames: dict[int, list[Node]] = {}
    for track in tracks:
        for shape in shapes_of(track):
            nodes = frames.setdefault(frame_of(shape, track), [])
            if shape.get('outside') != '1':
                nodes.append(node_of(shape, track.get('label')))
    return dict(sorted(frames.items()))


def shapes_of(track: Element) -> list[Element]:
    """The shapes of a track, one for each of its frames."""
    return [shape for shape in track if shape.tag != 'attribute']


def frame_of(shape: Element, track: Element) -> int:
    """The number of the frame of a shape, from 0."""
    return int(finite([shape.get('frame')], f'a frame of track {track.get("id")}')[0])


def frames_as_pictures(
    frames: dict[int, list[Node]],
    tracks: Sequence[Element],
    task: Element | None,
    subset: str,
    images: Images,
) -> list[Picture]:
    """The frames with their image files, which have the numbers of the frames in their names.

    Raises:
        ValueError: no image has such a number, or the numbers do not count from 0.
    """
    files = numbered_files(images, subset)
    check_numbers(frames.keys(), files, task, images)
    check_tracks(tracks, files, task)
    size = size_of(None if task is None else task.find('original_size'))
    found = []
    for number, nodes in frames.items():
        same = files.get(number, [])
        if len(same) > 1:
            raise ValueError(f'frame {number} is both {same[0]} and {same[1]}: remove one of them')
        file = same[0] if same else None
        name = f'frame_{number:06d}'
        stem = images.stem_of(file) if file else name
        found.append(Picture(name, subset, size, nodes, stem, file, is_frame=True))
    return found


def numbered_files(images: Images, subset: str) -> dict[int, list[Path]]:
    """The images by the number at the end of their names: of a subset's folder, if it has one."""
    stems = {s: file for s, file in images.by_stem.items() if s.startswith(f'{subset}/')}
    for pattern in (FRAME, NUMBER):
        found: dict[int, list[Path]] = {}
        for stem, file in (stems or images.by_stem).items():
            if match := pattern.search(stem):
                found.setdefault(int(match[1]), []).append(file)
        if found:
            return found
    return {}


def check_numbers(
    frames: Set[int], files: dict[int, list[Path]], task: Element | None, images: Images
) -> None:
    """Check that the images are frames of the video, counted from 0.

    Raises:
        ValueError: no frame has an image, or the images count from 1 or are others.
    """
    start, stop = 0, None
    if task is not None:
        start = int(task.findtext('start_frame') or 0)
        count, last = task.findtext('size'), task.findtext('stop_frame')
        stop = int(last) if last is not None else start + int(count) - 1 if count else None
    if stop is None or max(frames) > stop:  # a job may count the frames of its task
        is_other = 0 in frames and 0 not in files
    else:
        counts_from_1 = 0 not in files and 1 in files
        is_other = max(files, default=0) > stop and (start not in files or counts_from_1)
    if is_other or not files.keys() & frames:
        numbers = f'{min(files)} to {max(files)}' if files else 'no number'
        raise ValueError(
            f'its tracks are of frames {min(frames)} to {max(frames)} of a video, and the images '
            f'in {images.folder} have {numbers}: export "CVAT for images 1.1" with images, '
            'or extract the frames as images/frame_%06d.jpg, the first as frame_000000'
        )


def check_tracks(
    tracks: Sequence[Element], files: dict[int, list[Path]], task: Element | None
) -> None:
    """Check that the tracks have a shape for each frame of the video whose image is there.

    Raises:
        ValueError: a track has only its key frames.
    """
    match = re.search(r'step=(\d+)', (task is not None and task.findtext('frame_filter')) or '')
    step = int(match[1]) if match else 1
    for track in tracks:
        for shape, following in pairwise(shapes_of(track)):
            first, last = frame_of(shape, track), frame_of(following, track)
            between = any(number in files for number in range(first + step, last, step))
            if between and shape.get('outside') != '1':
                raise ValueError(
                    f'track {track.get("id")} has no shape between frames {first} and {last}, but '
                    'there are images of them: export "CVAT for video 1.1" with all its frames'
                )
