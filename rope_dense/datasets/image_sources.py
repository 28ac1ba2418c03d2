"""The images that a user names: one, a folder, a list, the frames of a video."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os.path import commonpath
from pathlib import Path

import cv2
import mmcv
import numpy as np
from PIL import Image

from .deep_images import read_deep, to_8_bits
from .own_data import IMAGE_SUFFIXES, suffixes_in

SUFFIXES = (*IMAGE_SUFFIXES, '.gif')
VIDEO_SUFFIXES = ('.mp4', '.avi', '.mov', '.mkv', '.webm', '.m4v')


@dataclass(frozen=True)
class Source:
    """An image file.

    Attributes:
        path: of the file.
        file_name: its path below what the user gave.
        picture: the path of the drawn picture below the folder of pictures, .jpg.
    """

    path: Path
    file_name: str
    picture: str


def find_sources(given: Path, without: Path | None = None) -> list[Source]:
    """The images of a folder and of the folders below it, but for one of them; or the one image.

    Of an animated GIF it is the first frame.

    Raises:
        ValueError: there is none; the message has the suffixes that were looked for.
    """
    if given.is_dir():
        files = [path for path in sorted(given.rglob('*')) if path.suffix.lower() in SUFFIXES]
        if without is not None:
            files = [path for path in files if without.absolute() not in path.absolute().parents]
        if not files:
            raise ValueError(
                f'{given}: no image in it. Looked for {", ".join(SUFFIXES)}; there are '
                f'{suffixes_in(given)}'
            )
        return named_sources(files, given)
    if not given.is_file():
        raise ValueError(f'{given}: no such file or folder')
    return named_sources([given], given.parent)


def listed_sources(lines: Iterable[str]) -> list[Source]:
    """The images whose paths are the lines of a list.

    Raises:
        ValueError: there is none, or a file is not there.
    """
    files = [Path(line.strip()).absolute() for line in lines if line.strip()]
    if not files:
        raise ValueError('-: no path on standard input; give one a line')
    if missing := [path for path in files if not path.is_file()]:
        raise ValueError(f'-: {len(missing)} of {len(files)} files are not there: {missing[0]}')
    return named_sources(files, Path(commonpath([path.parent for path in files])))


def named_sources(files: list[Path], root: Path) -> list[Source]:
    """Files below `root`. Two that differ by their suffixes keep them in the names of pictures."""
    names = [path.relative_to(root) for path in files]
    times = Counter(name.with_suffix('') for name in names)
    return [
        Source(path, name.as_posix(), f'{(name if times[stem] > 1 else stem).as_posix()}.jpg')
        for path, name in zip(files, names, strict=True)
        for stem in [name.with_suffix('')]
    ]


def read_image(path: Path, max_value: int | None = None) -> np.ndarray | None:
    """Pixels, BGR uint8 [H, W, 3], as the pipelines read them; None if the file is no image.

    Args:
        max_value: of 16-bit images, see ``LoadDeepImage``.
    """
    try:
        if max_value is not None and (pixels := read_deep(path)) is not None:
            return to_8_bits(pixels, max_value)
        return mmcv.imread(str(path))
    except cv2.error:  # what is left of a file, for instance
        return None


def pixels_of(path: Path) -> int:
    """Height x width of an image file, read from its header; 0 if that is not known."""
    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:
        with Image.open(path) as image:
            return image.width * image.height
    except OSError:
        return 0
    finally:
        Image.MAX_IMAGE_PIXELS = limit


def is_stream(given: str) -> bool:
    """Return True for the number of a camera, or the address of a stream."""
    return given.isdecimal() or '://' in given


def stream_name(given: str) -> str:
    """The name of the frames of a camera or a stream: 'camera0', or the end of the address."""
    if given.isdecimal():
        return f'camera{given}'
    last = given.split('?')[0].rstrip('/').rpartition('/')[2]
    return ''.join(c if c.isalnum() or c in '-_' else '_' for c in last)


def read_frames(given: Path | str) -> Iterator[np.ndarray]:
    """The frames of a video, a camera or a stream, BGR uint8 [H, W, 3]."""
    name = str(given)
    capture = cv2.VideoCapture(int(name)) if name.isdecimal() else cv2.VideoCapture(name)
    try:
        while True:
            there, frame = capture.read()
            if not there:
                return
            yield frame
    finally:
        capture.release()


def stream_rate(given: str) -> float:
    """Frames a second of a camera or a stream.

    Raises:
        ValueError: OpenCV cannot open it.
    """
    capture = cv2.VideoCapture(int(given)) if given.isdecimal() else cv2.VideoCapture(given)
    opened, rate = capture.isOpened(), capture.get(cv2.CAP_PROP_FPS)
    capture.release()
    if not opened:
        raise ValueError(f'{given}: OpenCV cannot open this camera or stream')
    return rate or 25.0


def video_properties(path: Path) -> tuple[int, float]:
    """Number of frames, as the file says, and frames a second.

    Raises:
        ValueError: OpenCV cannot read it.
    """
    capture = cv2.VideoCapture(str(path))
    count, rate = capture.get(cv2.CAP_PROP_FRAME_COUNT), capture.get(cv2.CAP_PROP_FPS)
    capture.release()
    if count < 1:
        raise ValueError(f'{path}: OpenCV reads no frame of this video')
    return int(count), rate or 25.0


def range_in(pipeline: Iterable[Mapping]) -> int | None:
    """``max_value`` of the ``LoadDeepImage`` of a test pipeline, or None."""
    return next((step['max_value'] for step in pipeline if step['type'] == 'LoadDeepImage'), None)
