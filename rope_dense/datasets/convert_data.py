"""Write labels of any format as COCO json, and masks in colours as masks of class numbers."""

from __future__ import annotations

from pathlib import Path

from ..utils.atomic_write import atomic_write, atomic_write_text
from .classes import CLASSES_FILE, read_classes
from .labels.canonical import write_coco
from .labels.conversion import convert, listed_names, split_entries
from .mask_colours import colours_in, convert_masks


def convert_data(
    format: str,
    source: str | Path,
    out: str | Path,
    *,
    images: Path | None = None,
    classes: Path | None = None,
    val_share: float | None = None,
    split_file: Path | None = None,
) -> None:
    """Convert labels or masks, and print what was left out; nothing is written over.

    Args:
        format: of ``labels.folders.FORMATS``, or 'colours'.
        source: see ``convert``; for colours the folder of masks.
        out: NAME.json; for colours a folder of masks.
        images: their folder, by default as the format has it.
        classes: file of class names, see ``read_classes``.
        val_share: of the images, which go to val.json beside NAME.json; not for colours.
        split_file: lists the images to take, see ``listed_names``; not for colours.

    Raises:
        ValueError: labels or masks that cannot be used, or a file that exists.
    """
    if format == 'colours':
        convert_colours(Path(source), Path(out), images, classes)
        return
    files = box_files(Path(out), val_share)
    names = listed_names(split_file) if split_file else None
    listed = read_classes(classes)[0] if classes else None
    found = convert(format, Path(source), images, listed, names)
    parts = split_entries(found.entries, val_share) if val_share else [found.entries]
    for file, part in zip(files, parts, strict=True):
        with atomic_write(file) as partial:
            write_coco(partial, part, found.classes)
        print(f'{file}: {len(part)} images, {sum(len(objects) for _, objects in part)} objects')
    print(f'classes: {", ".join(found.classes)}')
    print(found.report)


def box_files(out: Path, val_share: float | None) -> list[Path]:
    """The files to write; ValueError if one exists."""
    files = [out, *([out.with_name('val.json')] if val_share else [])]
    for file in files:
        if file.exists():
            raise ValueError(f'{file} exists: nothing is written over; give another name')
    return files


def convert_colours(source: Path, out: Path, images: Path | None, classes: Path | None) -> None:
    """Write masks of class numbers, and classes.txt where none names the colours."""
    listing = out / CLASSES_FILE
    if classes is None and listing.exists():
        raise ValueError(f'{listing} exists: give it with --classes')
    colours = read_classes(classes)[1] if classes else colours_in(source)
    count, odd = convert_masks(source, out, colours, images)
    print(f'{out}: {count} masks, {len(colours)} classes')
    if classes is None:
        lines = [f'class_{i} #{bytes(colour).hex()}' for i, colour in enumerate(colours)]
        atomic_write_text(listing, '\n'.join(lines) + '\n')
        print(
            f'{listing}: the colours that were found; write the names of the classes in it and put '
            'it in the folder of the data set'
        )
    print(odd)
