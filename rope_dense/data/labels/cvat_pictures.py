"""The images and frames that a file of CVAT labels: their image files, sizes and shapes."""

import re
from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from .files import errors_at, finite_numbers, without_suffix
from .inventory import Images
from .label_folder import Split

FRAME = re.compile(r'(?:^|/)frame_(\d+)$')  # as CVAT exports frames
NUMBER = re.compile(r'(\d+)$')
# Attributes of shapes that are read: a file may have a million shapes.
NUMBERS = set(
    'xtl ytl xbr ybr cx cy rx ry left top width height rotation points rle'.split()
)


class Node(NamedTuple):
    """A shape: its label, type and numbers as text."""

    label: str
    tag: str
    attrib: dict[str, str]


@dataclass
class Picture:
    """An image, or a frame of a video."""

    name: str  # in the file of labels
    subset: str  # of the project; '' for none
    size: tuple[int, int] | None  # (height, width); None if the labels do not say it
    nodes: list[Node]
    # Path in the folder of images without suffix; by its name without a file.
    stem: str = ''
    file: Path | None = None  # None if it is not there
    is_frame: bool = False  # its shapes are of tracks


# The pictures of a file, first the <image> elements, and its classes in their order.
Contents = tuple[list[Picture], list[str]]


def read_contents(part: Split) -> Contents:
    """The pictures of a file with their shapes, and its classes; parsed once for both splits.

    Raises:
        ValueError: no XML, or frames whose image files cannot be told; the message has the file.
    """
    with errors_at(part.source):
        images = part.inventory.images(part.images)
        return part.inventory.content(
            part.source, lambda file: parse_pictures(file, images)
        )


def parse_pictures(file: Path, images: Images) -> Contents:
    """The pictures of a file with their shapes, and its classes."""
    meta = Element('meta')
    pictures = []
    by_frame = {}
    tracks = defaultdict(list)
    for _, element in ElementTree.iterparse(file):
        subset = element.get('subset') or ''
        if element.tag == 'image':
            name = (element.get('name') or '').replace('\\', '/')
            nodes = [node_of(shape, shape.get('label')) for shape in element]
            picture = Picture(name, subset, frame_size(element), nodes)
            pictures.append(picture)
            by_frame[subset, element.get('id') or ''] = picture
            element.clear()
        elif element.tag == 'track':
            tracks[subset].append(element)
        elif element.tag == 'meta':
            meta = element
    assign_files(pictures, images)
    for subset, some in tracks.items():
        frames = {}
        for number, nodes in frames_of(some, subset):
            named = by_frame.get((subset, str(number)))
            if named:
                named.nodes += nodes
            else:
                frames[number] = nodes
        if frames:
            pictures += frames_as_pictures(frames, some, meta, subset, images)
    names = []
    for label in meta.iterfind('.//labels/label'):
        # Not parts of skeletons, tags of images.
        if not label.findtext('parent') and label.findtext('type') != 'tag':
            names.append((label.findtext('name') or '').strip())
    return pictures, [*filter(None, dict.fromkeys(names))]


def frames_of(tracks: Sequence[Element], subset: str) -> list[tuple[int, list[Node]]]:
    """The frames of a subset's tracks in their order, each with its number and its shapes."""
    if len({track.get('task_id') for track in tracks}) > 1:
        raise ValueError(
            f'subset {subset!r} has tracks of several tasks, which number their frames alike: '
            'export each task, or "CVAT for images 1.1"'
        )
    frames: dict[int, list[Node]] = defaultdict(list)
    for track in tracks:
        for number, shape in frame_shapes(track):
            nodes = frames[number]  # there may be none
            if shape.get('outside') != '1':
                nodes.append(node_of(shape, track.get('label')))
    return sorted(frames.items())


def node_of(shape: Element, label: str | None) -> Node:
    """A shape without what is not read of it."""
    attrib = {name: value for name, value in shape.items() if name in NUMBERS}
    return Node((label or '').strip(), shape.tag, attrib)


def frame_shapes(track: Element) -> list[tuple[int, Element]]:
    """The shapes of a track with the numbers of their frames, from 0."""
    found = []
    for shape in track:
        if shape.tag != 'attribute':
            what = f'a frame of track {track.get("id")}'
            (number,) = finite_numbers([shape.get('frame')], what)
            found.append((int(number), shape))
    return found


def assign_files(pictures: list[Picture], images: Images) -> None:
    """Fill in the file and the stem of each picture, by all names: see ``Images.find``."""
    for picture in pictures * 2:
        named = f'{picture.subset}/{picture.name}'
        file = picture.file = images.find(named) or images.find(picture.name)
        picture.stem = images.stem_of(file) if file else without_suffix(picture.name)


def frame_size(node: Element | None) -> tuple[int, int] | None:
    """(height, width) of an <image>, or of the <original_size> of a task."""
    if node is None:
        return None
    sides = [node.get(name) or node.findtext(name) or 0 for name in ('height', 'width')]
    height, width = map(int, finite_numbers(sides, 'a side of the image'))
    if height > 0 and width > 0:
        return height, width
    return None


def frames_as_pictures(
    frames: dict[int, list[Node]],
    tracks: Sequence[Element],
    meta: Element,
    subset: str,
    images: Images,
) -> list[Picture]:
    """The frames with their image files, which have the numbers of the frames in their names."""
    tasks = meta.findall('project/tasks/task')
    tasks += meta.findall('task') + meta.findall('job')
    number = tracks[0].get('task_id')
    fitting = [task for task in tasks if number in (None, task.findtext('id'))]
    task = fitting[0] if fitting else Element('task')
    stems = [stem for stem in images.by_stem if stem.startswith(f'{subset}/')]
    files: dict[int, list[Path]] = defaultdict(list)
    for pattern in (FRAME, NUMBER):
        if files:
            break
        for stem in stems or images.by_stem:
            match = pattern.search(stem)
            if match:
                files[int(match[1])].append(images.by_stem[stem])
    check_frame_numbers(frames.keys(), files, task, images)
    check_tracks(tracks, files, task)
    size = frame_size(task.find('original_size'))
    found = []
    for frame, nodes in frames.items():
        same = files.get(frame, [])
        if len(same) > 1:
            raise ValueError(
                f'frame {frame} is both {same[0]} and {same[1]}: remove one of them'
            )
        name = f'frame_{frame:06d}'
        picture = Picture(name, subset, size, nodes, stem=name, is_frame=True)
        if same:
            picture.stem = images.stem_of(same[0])
            picture.file = same[0]
        found.append(picture)
    return found


def check_frame_numbers(
    frames: Set[int],
    files: dict[int, list[Path]],
    task: Element,
    images: Images,
) -> None:
    """Refuse images that are other frames than the frames of the video, counted from 0."""
    start = int(task.findtext('start_frame') or 0)
    count = task.findtext('size')
    last = task.findtext('stop_frame')
    stop = None
    if last is not None:
        stop = int(last)
    elif count:
        stop = start + int(count) - 1
    if stop is None or max(frames) > stop:  # a job may count the frames of its task
        is_other = 0 in frames and 0 not in files
    else:
        counts_from_1 = 0 not in files and 1 in files
        is_beyond = max(files, default=0) > stop
        is_other = is_beyond and (start not in files or counts_from_1)
    if is_other or not files.keys() & frames:
        numbers = 'no number'
        if files:
            numbers = f'{min(files)} to {max(files)}'
        raise ValueError(
            f'its tracks are of frames {min(frames)} to {max(frames)} of a video, and the images '
            f'in {images.folder} have {numbers}: export "CVAT for images 1.1" with images, '
            'or extract the frames as images/frame_%06d.jpg, the first as frame_000000'
        )


def check_tracks(
    tracks: Sequence[Element],
    files: dict[int, list[Path]],
    task: Element,
) -> None:
    """Refuse tracks that have their key frames only, where others have images."""
    match = re.search(r'step=(\d+)', task.findtext('frame_filter') or '')
    step = 1
    if match:
        step = int(match[1])
    for track in tracks:
        for (first, shape), (last, _) in pairwise(frame_shapes(track)):
            between = any(number in files for number in range(first + step, last, step))
            if between and shape.get('outside') != '1':
                raise ValueError(
                    f'track {track.get("id")} has no shape between frames {first} and {last}, but '
                    'there are images of them: export "CVAT for video 1.1" with all its frames'
                )
