"""Masks in colours as masks of class numbers."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image

from ..utils.results import Results
from .classes import CLASSES_FILE, IGNORED, Colour, distinct_colour
from .images.headers import read_header
from .labels.inventory import Inventory, list_files, suffixes_in
from .labels.maps import MASKS
from .labels.objects import MOST_LEFT_OUT, Report
from .labels.pairs import pairs_in

TRANSPARENT = -1  # in place of the number of a colour, which nobody sees
COLOURS = replace(MASKS, words=(*MASKS.others, *MASKS.words), others=())


def read_colours(masks: Path) -> list[Colour]:
    """All colours of the masks in a folder, the most frequent first; ValueError above 255."""
    counts = Counter[int]()
    for path in mask_files(masks):
        counts += counted(read_colour_codes(path))
        if len(counts) > IGNORED:
            raise ValueError(
                f'{path}: more than {IGNORED} colours; masks must have one flat colour for each '
                'class (no jpeg, no smoothing). Name the colours of the classes with --classes, '
                'and others are ignored'
            )
    del counts[TRANSPARENT]
    codes = [code for code, _ in counts.most_common()]
    return [(code >> 16, code >> 8 & 255, code & 255) for code in codes]


def mask_files(folder: Path) -> list[Path]:
    """The masks of a folder; ValueError if there is none."""
    files = list_files(folder, MASKS.suffixes)
    if not files:
        raise ValueError(
            f'{folder}: no mask in it; looked for {", ".join(MASKS.suffixes)}, '
            f'there are {suffixes_in(folder)}'
        )
    return files


def read_colour_codes(path: Path) -> np.ndarray:
    """A number for the colour of each pixel, [H, W]; ValueError for a file without colours."""
    read_header(path)  # refuses a cut-off file, and one of too many pixels
    try:
        with Image.open(path) as image:
            if image.mode.startswith(('I', 'F')):
                raise ValueError(f'{path} has numbers of more than 8 bits, no colours')
            pixels = np.asarray(image.convert('RGBA')).astype(np.int32)
    except (OSError, SyntaxError) as error:
        raise ValueError(f'{path} cannot be read as an image ({error})') from error
    codes = pixels[..., 0] << 16 | pixels[..., 1] << 8 | pixels[..., 2]
    codes[pixels[..., 3] == 0] = TRANSPARENT
    return codes


def convert_masks(
    masks: Path,
    out: Path,
    colours: Sequence[Colour],
    images: Path | None,
) -> tuple[int, Report]:
    """Write masks of class numbers, png with the colours as palette; other colours become 255.

    Sizes and names are compared with images in a folder, if it is given. Returns the number of
    masks, and what is unusual. FileExistsError for a file that is there already, ValueError for
    masks of which more than ``MOST_LEFT_OUT`` of the pixels have the colour of no class. Nothing is
    written then.
    """
    report = Report()
    targets: dict[Path, Path] = {}
    for path in mask_files(masks):
        target = out / path.relative_to(masks).with_suffix('.png')
        if target.exists():
            raise FileExistsError(f'{target} exists: give another folder to write to')
        other = targets.setdefault(target, path)
        if other != path:
            raise ValueError(
                f'{other} and {path} would both become {target.name}: remove one'
            )
    codes = [red << 16 | green << 8 | blue for red, green, blue in colours]
    check_codes(codes)
    picture_of = matched_images(masks, images, report) if images else {}
    lost = Counter[int]()
    total = 0
    with (
        Results(out, 'convert-data', is_flushed=False) as results,
        results.fresh() as fresh,
    ):
        for target, path in targets.items():
            given = read_colour_codes(path)
            labels = np.full(given.shape, IGNORED, np.uint8)
            for number, code in enumerate(codes):
                labels[given == code] = number
            others = given[labels == IGNORED]
            lost += counted(others)
            total += given.size
            if len(others):
                report.note(f'mask with colours of no class (now {IGNORED})', path.name)
            if path in picture_of:
                shown = read_header(picture_of[path])
                if (shown.height, shown.width) != labels.shape:
                    report.note('mask of another size than its image', path.name)
            file = fresh / target.relative_to(out)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_labels(labels, file, colours)
        share = lost.total() / total
        text = f'{share:.2%} of the pixels have a colour of no class, most'
        if share > MOST_LEFT_OUT:
            raise ValueError(
                f'{masks}: {text} {most_text(lost, codes)}: name it in {CLASSES_FILE} (road '
                '#804080; own.void leaves a class out), or mend the masks'
            )
    if lost:
        report.note(text, most_text(lost, codes))
    return len(targets), report


def counted(codes: np.ndarray) -> Counter[int]:
    """How often each number of a colour is there."""
    found, numbers = np.unique(codes, return_counts=True)
    return Counter(dict(zip(found.tolist(), numbers.tolist(), strict=True)))


def most_text(counts: Counter[int], codes: Sequence[int]) -> str:
    """The colour of most pixels, and whether that is one of ``codes`` in another order."""
    ((code, _),) = counts.most_common(1)
    if code == TRANSPARENT:
        return 'transparent'
    swapped = int.from_bytes(code.to_bytes(3, 'big'), 'little')
    hint = ''
    if swapped in codes:
        hint = f' (a class is #{swapped:06x}: were the masks saved as BGR?)'
    return f'#{code:06x}{hint}'


def check_codes(codes: Sequence[int]) -> None:
    """Raise ValueError for too many or equal colours of classes."""
    if len(codes) > IGNORED:
        raise ValueError(f'{len(codes)} classes: masks can have {IGNORED}')
    for number, code in enumerate(codes):
        if codes.index(code) < number:
            raise ValueError(f'two classes have the colour #{code:06x}')


def matched_images(masks: Path, images: Path, report: Report) -> dict[Path, Path]:
    """The image of each mask, by their names; masks and images without the other are noted."""
    folder = Path(os.path.realpath(masks))
    pictures = Path(os.path.realpath(images))
    found = pairs_in(COLOURS, pictures, folder, Inventory(pictures))
    for mask in found.orphans:
        report.note('mask without an image of its name', os.path.basename(mask))
    for image in found.images.keys() - {*found.image_of.values()}:
        report.note('image without a mask', os.path.basename(image))
    image_of = {}
    for mask, image in found.image_of.items():
        image_of[masks / Path(mask).relative_to(folder)] = Path(image)
    return image_of


def label_type(num_classes: int) -> np.dtype:
    """The smallest type for class numbers and 255, the label of ignored pixels."""
    return np.dtype(np.uint8 if num_classes <= IGNORED else np.uint16)


def ignored_label(num_classes: int) -> int:
    """The label of predicted pixels without data: 255; with more classes the largest of 16 bits."""
    return int(np.iinfo(label_type(num_classes)).max)


def write_labels(
    labels: np.ndarray,
    file: Path | BinaryIO,
    colours: Sequence[Colour],
    numbers: np.ndarray | None = None,
) -> None:
    """Write labels [H, W] as a png: with a palette, or of 16 bits above 255.

    Args:
        colours: of each class.
        numbers: that stand for the labels in the file, see ``stored_numbers``; by default they are
            the labels.
    """
    if numbers is None:
        count = ignored_label(len(colours)) + 1
        numbers = np.arange(count, dtype=label_type(len(colours)))
    image = Image.fromarray(numbers[labels])
    if numbers.dtype == np.uint8:
        image = image.convert('P')
        palette = [*map(distinct_colour, range(IGNORED + 1))]
        palette[numbers[IGNORED]] = (0, 0, 0)
        for number, colour in zip(numbers, colours, strict=False):
            palette[number] = colour
        image.putpalette(np.array(palette, np.uint8).tobytes())
    image.save(file, 'png')
