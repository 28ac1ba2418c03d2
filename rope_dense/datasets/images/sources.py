"""The images that a user names: one, a folder, a list, the frames of a video."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os.path import commonpath
from pathlib import Path

import cv2
import mmcv
import numpy as np
from PIL import Image, ImageOps

from ..labels.files import IMAGE_SUFFIXES, list_files, suffixes_in
from ..labels.image_headers import header
from .band_files import ARRAY, is_first
from .bands import bands_in, picture
from .deep import read_deep, to_8_bits

# Of images that are not read, some of them because Pillow lacks a plugin.
OTHERS = tuple(
    {'.heic', '.heif', '.avif', '.jp2', '.jxl', '.dng', '.cr2', '.nef', '.arw', '.raw', '.psd'}
    - {*IMAGE_SUFFIXES}
)
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


def find_sources(
    given: Path, without: Path | None = None, suffixes: Sequence[str] = IMAGE_SUFFIXES
) -> list[Source]:
    """The images of a folder and of the folders below it, but for one of them; or the one image.

    Of an animated GIF it is the first frame.

    Raises:
        ValueError: there is none; the message has the suffixes that were looked for.
    """
    if given.is_dir():
        files = outside(list_files(given, suffixes), without)
        if not files:
            raise ValueError(
                f'{given}: no image in it. Looked for {", ".join(suffixes)}; there are '
                f'{suffixes_in(given)}'
            )
        return named_sources(files, given)
    if not given.is_file():
        raise ValueError(f'{given}: no such file or folder')
    return named_sources([given], given.parent)


def unreadable_sources(given: Path, without: Path | None = None) -> list[Source]:
    """Files in a folder that seem to be images, and are none or of a format that is not read.

    With folders and links to no file that have the name of an image.
    """
    found = [
        path
        for path in sorted(given.rglob('*') if given.is_dir() else ())
        if (path.suffix.lower() in OTHERS or not path.is_file())
        and path.suffix.lower() in (*OTHERS, *IMAGE_SUFFIXES)
        and not any(part.startswith('.') for part in path.relative_to(given).parts)
    ]
    return named_sources(outside(found, without), given)


def outside(paths: Iterable[Path], folder: Path | None) -> list[Path]:
    """The paths that are not in a folder."""
    return [p for p in paths if folder is None or folder.absolute() not in p.absolute().parents]


def listed_sources(lines: Iterable[str]) -> list[Source]:
    """The images whose paths are the lines of a list; they may not be there.

    Raises:
        ValueError: there is none.
    """
    files = [Path(line.strip()).absolute() for line in lines if line.strip()]
    files = list(dict.fromkeys(files))
    if not files:
        raise ValueError('-: no path on standard input; give one a line')
    return named_sources(files, Path(commonpath([path.parent for path in files])))


def named_sources(files: Sequence[Path], root: Path) -> list[Source]:
    """Files below `root`, with a picture each. A name that two would have keeps the suffix."""
    names = [path.relative_to(root) for path in files]
    pictures = [name.with_suffix('').as_posix() for name in names]
    while True:
        times = Counter(picture.lower() for picture in pictures)  # some systems ignore case
        whole = [
            name.as_posix() if times[picture.lower()] > 1 else picture
            for name, picture in zip(names, pictures, strict=True)
        ]
        if whole == pictures:
            break
        pictures = whole
    return [
        Source(path, name.as_posix(), f'{picture}.jpg')
        for path, name, picture in zip(files, names, pictures, strict=True)
    ]


def read_image(path: Path, max_value: int | None = None) -> np.ndarray | None:
    """Pixels, BGR uint8 [H, W, 3], as the pipelines read them; None if the file is no image.

    Pillow reads what OpenCV cannot, if it has 8 bits.

    Args:
        max_value: of 16-bit images, see ``LoadDeepImage``.
    """
    pixels = None
    try:
        if max_value is not None and (deep := read_deep(path)) is not None:
            return to_8_bits(deep, max_value)
        pixels = mmcv.imread(str(path))
    except (cv2.error, OSError):  # what is left of a file, a folder, a link to nothing
        pass
    return read_by_pillow(path) if pixels is None else pixels


def read_by_pillow(path: Path) -> np.ndarray | None:
    """Pixels, BGR uint8 [H, W, 3], turned as EXIF says; None if the file has none of 8 bits."""
    try:
        with Image.open(path) as image:
            if image.mode.startswith(('I', 'F')):  # integers and floats would be cut off at 255
                return None
            rgb = np.asarray(ImageOps.exif_transpose(image).convert('RGB'))
    except Exception:  # a damaged file can fail in any way
        return None
    return np.ascontiguousarray(rgb[..., ::-1])


class ImageReader:
    """Reads images as a test pipeline does, for prediction and pictures.

    Args:
        pipeline: a test pipeline.

    Attributes:
        bands: its loader of images of any number of channels, or None for pictures.
    """

    def __init__(self, pipeline: Iterable[Mapping]) -> None:
        steps = [*pipeline]
        self.max_value, self.bands = range_in(steps), bands_in(steps)

    def read(self, path: Path) -> np.ndarray | None:
        """Pixels as the pipeline takes them: BGR uint8 [H, W, 3], or float32 [H, W, n] with NaN.

        None if the file cannot be read, see ``problem``.
        """
        if self.bands is None:
            return read_image(path, self.max_value)
        try:
            return self.bands.load(path)
        except ValueError:
            return None

    def problem(self, path: Path) -> str:
        """The reason why ``read`` gives nothing, in words."""
        if self.bands is not None and path.is_file():
            try:
                self.bands.load(path)
            except ValueError as error:
                return str(error).removeprefix(f'{path}: ')
        return first_problem(path)

    def picture(self, pixels: np.ndarray) -> np.ndarray:
        """A picture of an image that was read: BGR uint8 [H, W, 3]."""
        return pixels if self.bands is None else picture(pixels, self.bands.show)

    def find(self, given: Path, without: Path | None = None) -> list[Source]:
        """``find_sources``, with .npy, and one for images of a file for each channel."""
        if self.bands is None:
            return find_sources(given, without)
        found = find_sources(given, without, (*IMAGE_SUFFIXES, ARRAY))
        return [source for source in found if is_first(source.path, self.bands.names or ())]


def first_problem(path: Path) -> str:
    """The reason why ``read_image`` gives nothing, in words."""
    if path.is_dir():
        return 'a folder'
    if path.is_symlink() and not path.exists():
        return 'a link to a file that is not there'
    if not path.exists():
        return 'no such file'
    if path.suffix.lower() in OTHERS:
        return f'{path.suffix} is not read here: convert it to .png or .jpg'
    return 'cannot be read as an image' if os.access(path, os.R_OK) else 'no permission to read it'


def pixels_of(path: Path) -> int:
    """Height x width of an image file, read from its header; 0 if that is not known."""
    try:
        image = header(path)
    except (OSError, ValueError):
        return 0
    return image.height * image.width


@dataclass(frozen=True)
class Video:
    """A video, a camera or a stream.

    Attributes:
        given: the path, the number of a camera or the address of a stream.
        name: of the drawn video, and of the folder of its frames.
        count: number of frames, as the file says; None of a camera or a stream, which has no end.
        rate: frames a second.
    """

    given: str
    name: str
    count: int | None
    rate: float

    def frames(self) -> Iterator[np.ndarray]:
        """The frames, BGR uint8 [H, W, 3]."""
        capture = capture_of(self.given)
        try:
            while (read := capture.read())[0]:
                yield read[1]
        finally:
            capture.release()


def find_video(given: str) -> Video | None:
    """The video, camera (0, 1, ...) or stream (an address) of this name; None of images.

    Raises:
        ValueError: there is no such file, or OpenCV cannot read it.
    """
    is_stream = given.isdecimal() or '://' in given
    if not is_stream and not given.lower().endswith(VIDEO_SUFFIXES):
        return None
    if not is_stream and not Path(given).is_file():
        raise ValueError(f'{given}: no such file')
    capture = capture_of(given)
    opened, rate = capture.isOpened(), capture.get(cv2.CAP_PROP_FPS) or 25.0
    count = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    capture.release()
    if is_stream and not opened:
        raise ValueError(f'{given}: OpenCV cannot open this camera or stream')
    if is_stream:
        return Video(given, stream_name(given), None, rate)
    if count < 1:
        raise ValueError(f'{given}: OpenCV reads no frame of this video')
    return Video(given, Path(given).stem, count, rate)


def capture_of(given: str) -> cv2.VideoCapture:
    """OpenCV's reader of a video, a camera or a stream."""
    return cv2.VideoCapture(int(given) if given.isdecimal() else given)


def stream_name(given: str) -> str:
    """The name of a camera or a stream: 'camera0', or the end of the address."""
    if given.isdecimal():
        return f'camera{given}'
    last = given.split('?')[0].rstrip('/').rpartition('/')[2]
    return ''.join(c if c.isalnum() or c in '-_' else '_' for c in last)


def range_in(pipeline: Iterable[Mapping]) -> int | None:
    """``max_value`` of the ``LoadDeepImage`` of a test pipeline, or None."""
    return next((step['max_value'] for step in pipeline if step['type'] == 'LoadDeepImage'), None)
