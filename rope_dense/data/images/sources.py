"""The images that a user names: one, a folder, a list, the frames of a video."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os.path import commonpath
from pathlib import Path, PurePath

import cv2
import mmcv
import numpy as np
from PIL import Image, ImageOps

from ...utils.results import results_below
from ..labels.files import IMAGE_SUFFIXES, VIDEO_SUFFIXES
from ..labels.inventory import HIDDEN, list_files, suffixes_in
from .band_files import ARRAY, is_first
from .bands import (
    check_array,
    find_load_bands,
    picture,
    range_text,
    read_deep,
    to_8_bits,
)
from .headers import read_header
from .pictures import check_picture

RAW_SUFFIXES = {*'.dng .cr2 .cr3 .nef .arw .orf .rw2 .raf .raw'.split()}
# Of images that a folder may have and that are not looked for, some for lack of a plugin of Pillow.
OTHERS = {*'.heic .heif .avif .jp2 .jxl .exr .hdr .dcm'.split(), ARRAY, *RAW_SUFFIXES}
REGISTERED = Image.registered_extensions().items()
OTHERS.update(suffix for suffix, name in REGISTERED if name in Image.OPEN)
OTHERS.difference_update(IMAGE_SUFFIXES, VIDEO_SUFFIXES)


@dataclass(frozen=True)
class Source:
    """An image file."""

    path: Path
    file_name: str  # its path below what the user gave
    picture: str  # the path of the drawn picture below the folder of pictures, .jpg

    @property
    def id(self) -> str:
        """What tells it from all other images: its whole path."""
        return str(self.path.absolute())


def find_sources(
    given: Path,
    without: Path | None = None,
    suffixes: Sequence[str] = IMAGE_SUFFIXES,
) -> list[Source]:
    """The images of a folder and below it, or one image; ValueError if none.

    Neither those in one folder, nor results of earlier commands.
    """
    if given.is_file():
        return named_sources([given], given.parent)
    if not given.is_dir():
        raise ValueError(f'{given}: no such file or folder')
    found = list_files(given, suffixes)
    files = paths_outside(found, without, given)
    if files:
        return named_sources(files, given)

    if found:
        raise ValueError(
            f'{given}: the {len(found)} images in it are results of earlier commands'
        )
    raise ValueError(
        f'{given}: no image in it. Looked for {", ".join(suffixes)}; '
        f'there are {suffixes_in(given)}'
    )


def unreadable_sources(given: Path, without: Path | None = None) -> list[Source]:
    """Folders, and links to no file, that are named like images."""
    found = []
    for path in visible(given, without):
        if path.suffix.lower() in IMAGE_SUFFIXES and not path.is_file():
            found.append(path)
    return named_sources(found, given)


def left_out_text(
    given: Path,
    suffixes: Sequence[str],
    without: Path | None = None,
) -> str:
    """Files that ``find_sources`` of suffixes leaves out: '1 video (give it alone), 2 .ppm'."""
    videos = 0
    others = Counter[str]()
    for path in visible(given, without):
        suffix = path.suffix.lower()
        if not path.is_file():
            continue
        if suffix in VIDEO_SUFFIXES:
            videos += 1
        elif suffix in OTHERS and suffix not in suffixes:
            others[suffix] += 1
    said = [f'{count} {suffix}' for suffix, count in sorted(others.items())]
    if videos == 1:
        said.insert(0, '1 video (give it alone)')
    elif videos:
        said.insert(0, f'{videos} videos (give each alone)')
    return ', '.join(said)


def visible(given: Path, without: Path | None) -> list[Path]:
    """All that is in a folder, if it is one, but for what is hidden, in another, or a result."""
    shown = []
    start = len(given.parts)
    for path in sorted(given.rglob('*')) if given.is_dir() else []:
        if not any(part.startswith(HIDDEN) for part in path.parts[start:]):
            shown.append(path)
    return paths_outside(shown, without, given)


def paths_outside(
    paths: Iterable[Path],
    folder: Path | None,
    given: Path,
) -> list[Path]:
    """The paths that are neither in a folder nor results in the ``given`` one."""
    results = results_below(given)
    left_out = folder.absolute() if folder else None
    outside = []
    for path in paths:
        whole = path.absolute()
        if whole not in results and left_out not in whole.parents:
            outside.append(path)
    return outside


def listed_sources(lines: Iterable[str]) -> list[Source]:
    """The images whose paths are the lines of a list; they may not be there. ValueError if none."""
    texts = filter(None, map(str.strip, lines))
    files = list(dict.fromkeys(Path(text).absolute() for text in texts))
    if not files:
        raise ValueError('-: no path on standard input; give one a line')
    root = commonpath([path.parent for path in files])
    return named_sources(files, Path(root))


def named_sources(files: Sequence[Path], root: Path) -> list[Source]:
    """Files below `root`, with a picture each. A name that two would have keeps the suffix."""
    names = [path.relative_to(root).as_posix() for path in files]
    pictures = [PurePath(name).with_suffix('').as_posix() for name in names]
    before = None
    while pictures != before:
        before = pictures
        # Some systems ignore case.
        times = Counter(short.lower() for short in before)
        pairs = zip(names, before, strict=True)
        pictures = [name if times[x.lower()] > 1 else x for name, x in pairs]
    sources = zip(files, names, pictures, strict=True)
    return [Source(path, name, f'{short}.jpg') for path, name, short in sources]


def read_image(
    path: Path,
    max_value: int | None = None,
    backend: str = 'cv2',
) -> np.ndarray:
    """Pixels, BGR uint8 [H, W, 3], as the pipelines read them; of an animation the first frame.

    Pillow reads what ``backend`` cannot, if it has 8 bits; for ``max_value`` of 16 bits see
    ``LoadDeepImage``. ValueError if the file is not there, or no picture (``check_picture``), or
    damaged.
    """
    check_there(path)
    suffix = path.suffix.lower()
    unread = f'{path}: {path.suffix} is not read here: convert it to .png or .jpg'
    if suffix in RAW_SUFFIXES:  # the first page of some is a thumbnail
        raise ValueError(unread)
    try:
        header = read_header(path)
    except OSError as error:
        raise ValueError(f'{path}: cannot be opened ({error.strerror})') from error
    except ValueError as error:
        if suffix in OTHERS and suffix != ARRAY:
            raise ValueError(unread) from error
        raise
    check_picture(path, header)
    if max_value is not None and header.is_deep:
        return to_8_bits(read_deep(path), max_value)
    for name in ('cv2',) if header.is_deep else (backend, 'pillow'):
        pixels = None
        with suppress(Exception):  # a damaged file can fail in any way
            pixels = mmcv.imread(str(path), backend=name)
        if pixels is not None:
            return np.ascontiguousarray(pixels)
    raise ValueError(f'{path}: cannot be read as an image (damaged)')


def check_there(path: Path) -> None:
    """Raise ValueError unless a path is a file."""
    if path.is_dir():
        raise ValueError(f'{path}: a folder')
    if path.is_symlink() and not path.exists():
        raise ValueError(f'{path}: a link to a file that is not there')
    if not path.exists():
        raise ValueError(f'{path}: no such file')


class ImageReader:
    """Reads images as a test pipeline does, for prediction and pictures.

    Attributes:
        max_value, backend: of pictures, see ``read_image``.
        bands: its loader of images of any number of channels, or None for pictures.
        suffixes: of the images of a folder: with .npy for any number of channels.
        says_range: whether it has printed a line on a picture's range, see ``range_text``.
    """

    def __init__(self, pipeline: Iterable[Mapping]) -> None:
        steps = list(pipeline)
        self.max_value: int | None = None
        self.backend = 'cv2'
        for step in steps:
            if step['type'] == 'LoadDeepImage':
                self.max_value = step['max_value']
            self.backend = step.get('imdecode_backend', self.backend)
        self.bands = find_load_bands(steps)
        self.says_range = False
        self.suffixes: tuple[str, ...] = IMAGE_SUFFIXES
        if self.bands is not None:
            self.suffixes += (ARRAY,)

    def read(self, path: Path) -> np.ndarray:
        """Pixels as the pipeline takes them: BGR uint8 [H, W, 3], or float32 [H, W, n] with NaN.

        ValueError, with the file, if it cannot be read so.
        """
        if self.bands is None:
            pixels = read_image(path, self.max_value, self.backend)
            if not self.says_range:
                said = range_text(path, pixels, self.max_value)
                self.says_range = bool(said)
                print(said, end='')
            return pixels
        check_there(path)
        return self.bands.load(path)

    def convert(self, image: object) -> np.ndarray:
        """``read`` of a path, a picture of Pillow, or an array (``check_array``)."""
        if isinstance(image, (str, Path)):
            return self.read(Path(image))
        if isinstance(image, np.ndarray):
            return check_array(image, self.bands and self.bands.channels)
        if self.bands is not None or not isinstance(image, Image.Image):
            raise ValueError(
                f'image of type {type(image).__name__}: give a path, an array or, without '
                'own.channels, a picture of Pillow'
            )
        if image.mode.startswith(('I', 'F')):  # which would be cut off at 255
            raise ValueError(
                f'a picture of mode {image.mode}: give its path, or an array of uint8'
            )
        colours = np.asarray(ImageOps.exif_transpose(image).convert('RGB'))
        return np.ascontiguousarray(colours[..., ::-1])

    def picture(self, pixels: np.ndarray) -> np.ndarray:
        """A picture of an image that was read: BGR uint8 [H, W, 3]."""
        return pixels if self.bands is None else picture(pixels, self.bands.show)

    def find(self, given: Path, without: Path | None = None) -> list[Source]:
        """``find_sources``, one for images of a file for each channel."""
        found = find_sources(given, without, self.suffixes)
        if self.bands is None or self.bands.names is None:
            return found
        names = self.bands.names
        root = given if given.is_dir() else None
        return [source for source in found if is_first(source.path, names, root)]


@dataclass(frozen=True)
class Video:
    """A video, a camera or a stream."""

    given: str  # the path, the number of a camera or the address of a stream
    name: str  # of the drawn video, and of the folder of its frames
    count: int | None  # number of frames, as the file says; None without an end
    rate: float  # frames a second

    def frames(self) -> Iterator[np.ndarray]:
        """The frames, BGR uint8 [H, W, 3]."""
        capture = open_capture(self.given)
        try:
            while True:
                is_read, frame = capture.read()
                if not is_read:
                    return
                yield frame
        finally:
            capture.release()


def find_video(given: str) -> Video | None:
    """The video, camera (0, 1, ...) or stream (an address) of this name; None of images.

    ValueError if there is no such file, or OpenCV cannot read it.
    """
    is_stream = given.isdecimal() or '://' in given
    if not is_stream:
        if not given.lower().endswith(VIDEO_SUFFIXES):
            return None
        check_there(Path(given))
    capture = open_capture(given)
    opened = capture.isOpened()
    rate = capture.get(cv2.CAP_PROP_FPS) or 25.0
    count = int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    capture.release()
    if is_stream:
        if not opened:
            raise ValueError(f'{given}: OpenCV cannot open this camera or stream')
        name = f'camera{given}'
        if not given.isdecimal():
            last = given.split('?')[0].rstrip('/').rpartition('/')[2]
            name = re.sub(r'[^\w-]', '_', last)
        return Video(given, name, None, rate)
    if count < 1:
        raise ValueError(f'{given}: OpenCV reads no frame of this video')
    return Video(given, Path(given).stem, count, rate)


def open_capture(given: str) -> cv2.VideoCapture:
    """OpenCV's reader of a video, a camera or a stream."""
    return cv2.VideoCapture(int(given) if given.isdecimal() else given)
