"""Files of own images of any number of channels: headers of all, pixels of some."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..datasets.images.band_files import BandHeader, band_header
from ..datasets.images.bands import LoadBands
from .settings import Own
from .value_range import image_files

READ = 50  # images at most, for mean and deviation
HEADERS = 10_000  # images at most: 1,000 take 0.6 s


def images_of(dataset: Mapping[str, Any]) -> list[Path]:
    """The images of a data set: those its COCO file lists, or those with a mask or depth map."""
    root = Path(dataset.get('data_root') or '')
    labels = root / (dataset.get('ann_file') or '')
    if labels.suffix == '.json' and labels.is_file():
        folder = root / (dataset['data_prefix'].get('img') or '')
        return sorted(folder / x['file_name'] for x in json.loads(labels.read_text())['images'])
    return sorted(image_files(dataset))


def sampled(files: Sequence[Path], number: int) -> Sequence[Path]:
    """Up to so many of the files, evenly."""
    return files[:: -(-len(files) // number)] if files else []


def check_headers(own: Own, images: Sequence[Path], load: dict[str, Any]) -> None:
    """Complete the arguments of ``LoadBands`` by the headers of images, in place: bands and type.

    Names of channels are names of bands if the files have some of them; else they are the names of
    all bands in their order.

    Raises:
        ValueError: a file, which is named, cannot be read, has other bands, names of bands or
            another type than most.
    """
    loader = LoadBands(**load)
    headers = {
        image: {file: band_header(file) for file in loader.files(image)}
        for image in sampled(images, HEADERS)
    }
    firsts = [next(iter(files.items())) for files in headers.values()]
    if own.channel_names == own.channels and not own.separate_files:
        load['bands'] = names_in(own.channel_names, *firsts[0])
    load['dtype'] = Counter(header.dtype for _, header in firsts).most_common(1)[0][0]
    loader = LoadBands(**load)
    for image, files in headers.items():
        loader.check_headers(image, files)


def names_in(names: Sequence[str], file: Path, header: BandHeader) -> list[str] | None:
    """The names if they are names of bands of a file; None if the file has other names, or none.

    Raises:
        ValueError: some of them are, or there are more bands.
    """
    absent = [name for name in names if not header.find(name)]
    if len(absent) == len(names) and (header.bands == len(names) or not any(header.names)):
        return None
    if absent:
        raise ValueError(
            f'{file}: its bands are {", ".join(x or "without a name" for x in header.names)}, and '
            f'own.channels has {", ".join(absent)}: give names of the file, or numbers of bands'
        )
    return [*names]


def statistics(
    own: Own, files: Sequence[Path], load: Mapping[str, Any]
) -> tuple[list[float], list[float], str]:
    """Mean and deviation of each channel, and what to say of them.

    They are in the settings, or else found in the files; 0 and 1 without files. Missing pixels do
    not count.

    Raises:
        ValueError: a file cannot be read, has other bands, or a channel is constant in all.
    """
    number = load['channels']
    if (own.mean and own.std) or not files:
        mean, std = own.mean or [0.0] * number, own.std or [1.0] * number
        return [*mean], [*std], ''
    sums = np.zeros((3, number))  # of known pixels, values and squares
    constant: list[list[Path]] = [[] for _ in range(number)]  # files of each channel
    loader = LoadBands(**load)
    for file in files:
        values: np.ndarray = loader.load(file).reshape(-1, number).astype(np.float64)
        known = ~np.isnan(values)
        for channel in np.flatnonzero(is_constant(values, known)):
            constant[channel].append(file)
        values = np.where(known, values, 0)
        sums += known.sum(0), values.sum(0), (values**2).sum(0)
    mean, square = sums[1:] / np.maximum(sums[0], 1)
    std = np.sqrt(np.maximum(square - mean**2, 0))
    flat = std <= 1e-6 * np.maximum(np.abs(mean), 1e-6)
    if flat.any():
        index = int(flat.argmax())
        raise ValueError(
            f'{files[0]}: channel {own.channel_names[index]} is constant, {mean[index]:g}, in all '
            f'{len(files)} images that were read: leave it out of own.channels'
        )
    found = [[float(f'{x:.5g}') for x in numbers] for numbers in (mean, std)]
    mean_list, std_list = [*(own.mean or found[0])], [*(own.std or found[1])]
    said = [
        f'{number} channels of {load["dtype"]}, mean {mean_list} and deviation {std_list} of '
        f'{len(files)} images'
    ]
    said += [
        f'{own.channel_names[channel]} is constant or missing in {len(those)} of them, such as '
        f'{those[0]}'
        for channel, those in enumerate(constant)
        if those
    ]
    return mean_list, std_list, '; '.join(said)


def is_constant(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return whether known values [pixels, n] of each channel are equal, or there are none: [n]."""
    low = np.where(known, values, np.inf).min(0)
    return low >= np.where(known, values, -np.inf).max(0)
