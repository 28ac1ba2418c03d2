"""Write labels of any format as COCO json, and masks in colours as masks of class numbers."""

import os
from dataclasses import replace
from pathlib import Path

from ..utils.results import Results
from .classes import CLASSES_FILE, COLOUR_LIST, read_classes
from .labels.annotations import Rules
from .labels.canonical import write_splits
from .labels.files import read_numbered_lines
from .labels.folders import FORMATS
from .labels.inventory import Inventory
from .labels.label_folder import Format, LabelFolder, Split
from .labels.pairs import home_of, pairs_in
from .labels.places import SPLITS, FilePairs, Places
from .labels.splits import (
    Chosen,
    listed_image,
    make_split,
    split_by_hash,
    split_pairs_by_hash,
)
from .mask_colours import convert_masks, read_colours

BY = 'the command'  # says which images are in which split


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
        out: NAME.json, or a folder of masks.
        images, classes: folder, by default as the format has it; file, see ``read_classes``.
        val_share: of the images, by a hash of their names, which goes to val.json beside NAME.json;
            by 0.2 it is what training takes for validation.
        split_file: lists the images to take, one a line.
    """
    source, out = Path(source), Path(out)
    if format == 'colours':
        convert_colours(source, out, images, classes)
        return
    files = [out]
    if val_share:
        files.append(out.with_name('val.json'))
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
        summary = write_splits(folder, fresh, given, Rules())
        for file, name in zip(files, summary['splits'], strict=True):
            os.rename(fresh / f'{name}.json', fresh / file.name)
    for file, split in zip(files, summary['splits'].values(), strict=True):
        print(f'{file}: {split["num_images"]} images, {split["num_objects"]} objects')
    print(f'classes: {", ".join(split["classes"])}')
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
    inventory = Inventory(folder)
    if not inventory.images(inventory.root).by_path:
        there = inventory.suffixes_in(inventory.root)
        raise ValueError(
            f'{folder} has no image ({there}): give the folder of the images with --images'
        )
    form = FORMATS[format]
    source = Path(os.path.realpath(source))
    if val_share:
        inventory.val_share = val_share
    listed = None
    if split_file:
        known = inventory.images(inventory.root)
        named: dict[str, None] = {}
        absent = []
        for _, line in read_numbered_lines(split_file):
            image = listed_image(line, known)
            if image:
                named[str(image)] = None
            else:
                absent.append(line)
        listed = Chosen([], [*named], absent)
    if form.kind is None:
        both = Split(source, inventory.root, inventory=inventory)
        return folder_of_file(form, both, listed, val_share)
    if source.is_file():
        raise ValueError(f'{source}: give the folder of the label files')
    pairs = pairs_in(form.kind, inventory.root, source, inventory)
    chosen = choose_files(pairs, inventory, listed, val_share)
    splits = {}
    for name, choice in chosen.items():
        split = make_split(pairs, inventory, choice)
        splits[name] = replace(split, images=inventory.root, source=source)
    return LabelFolder(form, splits, BY)


def folder_of_file(
    form: Format, both: Split, listed: Chosen | None, val_share: float | None
) -> LabelFolder:
    """The labels of a format without a file for each image, as one split or as both."""
    known = both.inventory.images(both.images)
    if listed:
        names = map(known.stem_of, map(Path, listed.images))
        both = replace(both, names=frozenset(names))
    if not val_share:
        return LabelFolder(form, dict(train=both), BY)
    stems = both.names or frozenset(known.by_stem)
    if not form.shared:
        return LabelFolder(form, *split_by_hash(both, stems))
    places = Places(form.shared, both.images)
    keys = {stem: places.of(f'{both.images}/{stem}.').key for stem in stems}
    return LabelFolder(form, *split_by_hash(both, stems, keys.__getitem__))


def choose_files(
    pairs: FilePairs,
    inventory: Inventory,
    listed: Chosen | None,
    val_share: float | None,
) -> dict[str, Chosen]:
    """The files of a format with a file for each image, for one split or for both."""
    chosen = Chosen([*pairs.files], [*pairs.images])
    if listed:
        images = {*listed.images}
        files = [file for file, image in pairs.image_of.items() if image in images]
        chosen = listed._replace(files=files)
    if not val_share:
        return dict(train=chosen)
    # By the keys that a training on the folder has.
    home = home_of(pairs.images, pairs.images, inventory.root, pairs.kind)
    places = Places(pairs.kind, home)
    for path in pairs.images:
        pairs.images[path] = places.of(path)._replace(split='')
    return split_pairs_by_hash(pairs, inventory, chosen.files)


def default_images(name: str, source: Path) -> Path:
    """The folder in which a format has its images by default."""
    if name == 'yolo' and 'labels' in source.parts:
        before, _, after = f'/{source.as_posix()}/'.rpartition('/labels/')
        return Path(f'{before}/images/{after}'[1:])
    pictures = source.parent / ('JPEGImages' if name == 'voc' else 'images')
    if name == 'dota' or (name == 'voc' and pictures.is_dir()):
        return pictures
    if source.is_dir():
        return source
    pictures = source.parent / 'images'
    return pictures if pictures.is_dir() else source.parent


def convert_colours(
    source: Path, out: Path, images: Path | None, classes: Path | None
) -> None:
    """Write masks of class numbers, and classes.txt where none names the colours."""
    listing = out / CLASSES_FILE
    beside = source.parent / COLOUR_LIST
    if classes is None and beside.is_file():
        classes = beside
        print(f'{beside}: the classes and their colours')
    if classes is None and listing.exists():
        raise ValueError(f'{listing} exists: give it with --classes')
    colours = read_classes(classes)[1] if classes else read_colours(source)
    count, odd = convert_masks(source, out, colours, images)
    print(f'{out}: {count} masks, {len(colours)} classes')
    if classes is None:
        lines = []
        for index, colour in enumerate(colours):
            lines.append(f'class_{index} #{bytes(colour).hex()}')
        Results(out, 'convert-data').write_text(listing, '\n'.join(lines) + '\n')
        print(
            f'{listing}: the colours that were found; write the names of the classes in it and put '
            'it in the folder of the data set'
        )
    print(odd)
