"""Masks in colours as masks of class numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from .classes import CLASSES_FILE, IGNORED, Colour, distinct_colour
from .images.headers import read_header
from .labels.inventory import Inventory, list_files, suffixes_in
from .labels.maps import MASKS
from .labels.objects import Report
from .labels.pairs import pairs_in

COLOURS = replace(MASKS, words=(*MASKS.others, *MASKS.words), others=())


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
    files = list_files(folder, MASKS.suffixes)
    if not files:
        raise ValueError(
            f'{folder}: no mask in it; looked for {", ".join(MASKS.suffixes)}, there are '
            f'{suffixes_in(folder)}'
        )
    return files


def codes_of(path: Path) -> np.ndarray:
    """A number for the colour of each pixel, [H, W]; ValueError for a file without colours."""
    try:
        with Image.open(path) as image:
            if image.mode.startswith(('I', 'F')):
                raise ValueError(f'{path} has numbers of more than 8 bits, no colours')
            pixels = np.asarray(image.convert('RGB')).astype(np.int32)
    except (OSError, SyntaxError) as error:
        raise ValueError(f'{path} cannot be read as an image ({error})') from error
    return pixels[..., 0] << 16 | pixels[..., 1] << 8 | pixels[..., 2]


def convert_masks(
    masks: Path, out: Path, colours: Sequence[Colour], images: Path | None
) -> tuple[int, Report]:
    """Write masks of class numbers, png with the colours as palette; other colours become 255.

    Args:
        colours: of the classes, in the order of their numbers.
        images: their folder, to compare sizes and names; or None.

    Returns:
        The number of masks written, and what is unusual.

    Raises:
        FileExistsError: a file is there already; none is written then.
        ValueError: no mask contains the colour of any class; none is written then.
    """
    files, report = mask_files(masks), Report()
    targets = [out / path.relative_to(masks).with_suffix('.png') for path in files]
    check_targets(files, targets)
    codes = [red << 16 | green << 8 | blue for red, green, blue in colours]
    if len(codes) > IGNORED:
        raise ValueError(f'{len(codes)} classes: masks can have {IGNORED}')
    if twice := [code for number, code in enumerate(codes) if codes.index(code) < number]:
        raise ValueError(f'two classes have the colour #{twice[0]:06x}')
    if not any(np.isin(codes_of(path), codes).any() for path in files):
        some = ', '.join(f'#{code:06x}' for code in np.unique(codes_of(files[0]))[:3].tolist())
        raise ValueError(
            f'{masks}: no mask contains the colour of any class; {files[0].name} has {some} ... '
            f'(a line of {CLASSES_FILE} is a name and its colour: road #804080)'
        )
    picture_of: dict[Path, Path] = {}
    if images:
        folders = [Path(os.path.realpath(folder)) for folder in (images, masks)]
        found = pairs_in(COLOURS, folders[0], folders[1], Inventory(folders[0]))
        picture_of = {
            masks / Path(mask).relative_to(folders[1]): Path(image)
            for mask, image in found.image_of.items()
        }
        for mask in found.orphans:
            report.note('mask without an image of its name', os.path.basename(mask))
        for image in found.images.keys() - {*found.image_of.values()}:
            report.note('image without a mask', os.path.basename(image))
    for path, target in zip(files, targets, strict=True):
        given = codes_of(path)
        labels = np.full(given.shape, IGNORED, np.uint8)
        for number, code in enumerate(codes):
            labels[given == code] = number
        if (labels == IGNORED).any():
            report.note(f'mask with colours of no class (now {IGNORED})', path.name)
        if path in picture_of:
            shown = read_header(picture_of[path])
            if (shown.height, shown.width) != labels.shape:
                report.note('mask of another size than its image', path.name)
        write_labels(labels, target, colours)
    return len(files), report


def check_targets(files: Sequence[Path], targets: Sequence[Path]) -> None:
    """Raise FileExistsError or ValueError if a file would be written over, or twice."""
    if existing := [path for path in targets if path.exists()]:
        raise FileExistsError(f'{existing[0]} exists: give another folder to write to')
    first: dict[Path, Path] = {}
    for file, target in zip(files, targets, strict=True):
        if (other := first.setdefault(target, file)) != file:
            raise ValueError(f'{other} and {file} would both become {target.name}: remove one')


def label_type(num_classes: int) -> np.dtype:
    """The smallest type for class numbers and 255, the label of ignored pixels."""
    return np.dtype(np.uint8 if num_classes <= IGNORED else np.uint16)


def ignored_label(num_classes: int) -> int:
    """The label of predicted pixels without data: 255; with more classes the largest of 16 bits."""
    return int(np.iinfo(label_type(num_classes)).max)


def write_labels(labels: np.ndarray, path: Path, colours: Sequence[Colour]) -> None:
    """Write class numbers [H, W] as a png: of 8 bits with the colours of the classes as palette.

    More than 255 classes have 16 bits and no palette.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    dtype = label_type(len(colours))
    image = Image.fromarray(labels.astype(dtype))
    if dtype == np.uint8:
        image = image.convert('P')
        palette = [distinct_colour(index) for index in range(256)]
        palette[: len(colours)] = [(red, green, blue) for red, green, blue in colours]
        palette[IGNORED] = 0, 0, 0
        image.putpalette([part for colour in palette for part in colour])
    image.save(path)
