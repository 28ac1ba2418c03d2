"""Write labels of any format as COCO json, and masks in colours as masks of class numbers."""

import os
from dataclasses import replace
from pathlib import Path

from ..utils.results import Results
from .classes import CLASSES_FILE, read_classes
from .labels.canonical import write_splits
from .labels.files import read_numbered_lines
from .labels.folders import FORMATS
from .labels.inventory import Inventory
from .labels.objects import LabelFolder, Split
from .labels.pairs import SPLITS, Places, home_of, pairs_in
from .labels.splits import (
    VAL_PART,
    Chosen,
    listed_image,
    part_of,
    split_by_hash,
    split_pairs_by_hash,
)
from .mask_colours import convert_masks, read_colours


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

    Labels are written as training reads them: the canonical file, in another place. ValueError for
    labels or masks that cannot be used, and for a file that exists.

    Args:
        format: of ``labels.folders.FORMATS``, or 'colours': masks in a folder.
        source: folder of label files, or the file of all.
        out: NAME.json, or a folder of masks. In a file with the name of a validation split, such
            as val.json, difficult objects are `iscrowd`, which is not evaluated.
        images, classes: folder, by default as the format has it; file, see ``read_classes``.
        val_share: of the images, by a hash of their names, which goes to val.json beside NAME.json;
            by 0.2 it is what training takes for validation.
        split_file: lists the images to take, one a line.
    """
    source, out = Path(source), Path(out)
    if format == 'colours':
        convert_colours(source, out, images, classes)
        return
    files = [out, *([out.with_name('val.json')] if val_share else [])]
    for file in files:
        if file.exists():
            raise ValueError(
                f'{file} exists: nothing is written over; give another name'
            )
    given = read_classes(classes)[0] if classes else None
    folder = given_folder(format, source, images, val_share, split_file)
    if format == 'yolo':  # names of numbers; else a choice
        folder, given = replace(folder, classes=given), None
    if not val_share and out.stem.lower() in SPLITS['val']:
        folder = replace(folder, splits={'val': folder.splits['train']})
    with Results(out.parent, out.name) as results, results.fresh() as fresh:
        summary = write_splits(folder, fresh, given, oriented=False, outlines=False)
        for file, name in zip(files, summary['splits'], strict=True):
            os.rename(fresh / f'{name}.json', fresh / file.name)
    for file, part in zip(files, summary['splits'].values(), strict=True):
        print(f'{file}: {part["num_images"]} images, {part["num_objects"]} objects')
    print(f'classes: {", ".join(part["classes"])}')
    print(summary['text'])


def given_folder(
    format: str,
    source: Path,
    images: Path | None,
    val_share: float | None,
    split_file: Path | None,
) -> LabelFolder:
    """The labels in a given folder or file, as one split or as both."""
    folder = images or default_images(format, source)
    if not folder.is_dir():
        raise ValueError(f'{folder}: no such folder of images; give it with --images')
    inventory, form = Inventory(folder), FORMATS[format]
    source, folder = Path(os.path.realpath(source)), inventory.root
    inventory.val_part = round(1 / val_share) if val_share else VAL_PART
    by, known = 'the command', inventory.images(folder)
    listed, absent = dict[str, None](), list[str]()
    for _, line in read_numbered_lines(split_file) if split_file else ():
        if image := listed_image(line, known):
            listed[str(image)] = None
        else:
            absent.append(line)
    if form.kind is None:
        names = (
            frozenset(known.stem_of(Path(x)) for x in listed) if split_file else None
        )
        part = Split(source, folder, names=names, inventory=inventory)
        if val_share:
            places = Places(form.shared, folder) if form.shared else None

            def key_of(stem: str) -> str:
                return places.of(f'{folder}/{stem}.').key if places else stem

            return LabelFolder(
                form, *split_by_hash(part, names or frozenset(known.by_stem), key_of)
            )
        return LabelFolder(form, dict(train=part), by)
    if source.is_file():
        raise ValueError(f'{source}: give the folder of the label files')
    pairs = pairs_in(form.kind, folder, source, inventory)
    files, pictures = [*pairs.files], [*pairs.images]
    if split_file:
        files = [file for file, image in pairs.image_of.items() if image in listed]
        pictures = [*listed]
    chosen: dict[str, Chosen] = dict(train=(files, pictures, absent))
    if val_share:  # by the keys that a training on the folder has
        places = Places(
            form.kind, home_of(pairs.images, pairs.images, folder, form.kind)
        )
        pairs.images = {
            path: places.of(path)._replace(split='') for path in pairs.images
        }
        chosen = split_pairs_by_hash(pairs, inventory, files)
    parts = {
        split: replace(part_of(pairs, inventory, *some), images=folder, source=source)
        for split, some in chosen.items()
    }
    return LabelFolder(form, parts, by)


def default_images(name: str, source: Path) -> Path:
    """The folder in which a format has its images by default."""
    if name == 'yolo' and 'labels' in source.parts:
        before, _, after = f'/{source.as_posix()}/'.rpartition('/labels/')
        return Path(f'{before}/images/{after}'[1:])
    beside = source.parent / ('JPEGImages' if name == 'voc' else 'images')
    if name == 'dota' or (name == 'voc' and beside.is_dir()):
        return beside
    if source.is_dir():
        return source
    return (
        source.parent / 'images'
        if (source.parent / 'images').is_dir()
        else source.parent
    )


def convert_colours(
    source: Path, out: Path, images: Path | None, classes: Path | None
) -> None:
    """Write masks of class numbers, and classes.txt where none names the colours."""
    listing = out / CLASSES_FILE
    if classes is None and listing.exists():
        raise ValueError(f'{listing} exists: give it with --classes')
    colours = read_classes(classes)[1] if classes else read_colours(source)
    count, odd = convert_masks(source, out, colours, images)
    print(f'{out}: {count} masks, {len(colours)} classes')
    if classes is None:
        lines = [
            f'class_{i} #{bytes(colour).hex()}' for i, colour in enumerate(colours)
        ]
        Results(out, 'convert-data').write_text(listing, '\n'.join(lines) + '\n')
        print(
            f'{listing}: the colours that were found; write the names of the classes in it and put '
            'it in the folder of the data set'
        )
    print(odd)
