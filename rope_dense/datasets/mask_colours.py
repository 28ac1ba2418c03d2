"""Masks in colours as masks of class numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from .label_readers import Odd, image_files
from .own_data import CLASSES_FILE, IGNORED, MASK_SUFFIXES, distinct_colour

Colour = tuple[int, int, int]  # red, green, blue


def colours_in(masks: Path) -> list[Colour]:
    """All colours of the masks in a folder, the most frequent first.

    Raises:
        ValueError: no mask in it, or more than 255 colours (a photograph, or smoothed borders).
    """
    counts: dict[Colour, int] = {}
    for path in mask_files(masks):
        codes, numbers = np.unique(codes_of(path), return_counts=True)
        for code, number in zip(codes.tolist(), numbers.tolist(), strict=True):
            colour = (code >> 16, code >> 8 & 255, code & 255)
            counts[colour] = counts.get(colour, 0) + number
        if len(counts) > IGNORED:
            raise ValueError(
                f'{path}: more than {IGNORED} colours; masks must have one flat colour for each '
                'class (no jpeg, no smoothing). Name the colours of the classes with --classes, '
                'and others are ignored'
            )
    return sorted(counts, key=lambda colour: -counts[colour])


def mask_files(folder: Path) -> list[Path]:
    """The masks of a folder; ValueError if there is none."""
    files = [path for path in sorted(folder.rglob('*')) if path.suffix.lower() in MASK_SUFFIXES]
    if not files:
        raise ValueError(f'{folder}: no mask in it; looked for {", ".join(MASK_SUFFIXES)}')
    return files


def codes_of(path: Path) -> np.ndarray:
    """A number for the colour of each pixel, [H, W]."""
    with Image.open(path) as image:
        pixels = np.asarray(image.convert('RGB')).astype(np.int32)
    return pixels[..., 0] << 16 | pixels[..., 1] << 8 | pixels[..., 2]


def convert_masks(
    masks: Path, out: Path, colours: Sequence[Colour], images: Path | None
) -> tuple[int, Odd]:
    """Write masks of class numbers, png with the colours as palette; other colours become 255.

    Args:
        colours: of the classes, in the order of their numbers.
        images: their folder, to compare sizes and names; or None.

    Returns:
        The number of masks written, and what is odd.

    Raises:
        FileExistsError: a file is there already; none is written then.
        ValueError: no mask contains the colour of any class; none is written then.
    """
    odd, files = Odd(), mask_files(masks)
    targets = [out / path.relative_to(masks).with_suffix('.png') for path in files]
    if existing := [path for path in targets if path.exists()]:
        raise FileExistsError(f'{existing[0]} exists: give another folder to write to')
    pictures = image_files(images) if images else {}
    codes = [red << 16 | green << 8 | blue for red, green, blue in colours]
    if not any(np.isin(codes_of(path), codes).any() for path in files):
        some = ', '.join(f'#{code:06x}' for code in np.unique(codes_of(files[0]))[:3].tolist())
        raise ValueError(
            f'{masks}: no mask contains the colour of any class; {files[0].name} has {some} ... '
            f'(a line of {CLASSES_FILE} is a name and its colour: road #804080)'
        )
    for path, target in zip(files, targets, strict=True):
        given = codes_of(path)
        labels = np.full(given.shape, IGNORED, np.uint8)
        for number, code in enumerate(codes):
            labels[given == code] = number
        if (labels == IGNORED).any():
            odd.add(f'mask with colours of no class (now {IGNORED})', path.name)
        picture = pictures.get(path.relative_to(masks).with_suffix('').as_posix())
        if images and picture is None:
            odd.add('mask without an image of its name', path.name)
        elif picture:
            with Image.open(picture) as image:
                if image.size != labels.shape[::-1]:
                    odd.add('mask of another size than its image', path.name)
        write_labels(labels, target, colours)
    if images:
        names = {path.relative_to(masks).with_suffix('').as_posix() for path in files}
        for stem in sorted(pictures.keys() - names):
            odd.add('image without a mask', pictures[stem].name)
    return len(files), odd


def write_labels(labels: np.ndarray, path: Path, colours: Sequence[Colour]) -> None:
    """Write class numbers [H, W], uint8, as a png whose palette has the colours of the classes."""
    image = Image.fromarray(labels).convert('P')
    palette = [distinct_colour(index) for index in range(256)]
    palette[: len(colours)] = [(red, green, blue) for red, green, blue in colours]
    palette[IGNORED] = (0, 0, 0) if len(colours) <= IGNORED else palette[IGNORED]
    image.putpalette([part for colour in palette for part in colour])
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
