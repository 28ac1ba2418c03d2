"""Files of own images of any number of channels: headers of all, pixels of some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoints.channels import RGB
from ..datasets.images.band_files import BandHeader, band_header
from ..datasets.images.bands import LoadBands
from ..utils.validation import is_integer
from .settings import Own

READ = 50  # images at most, for mean and deviation
HEADERS = 10_000  # images at most: 1,000 take 0.6 s


def survey_channels(own: Own, train: Sequence[Path], val: Sequence[Path]) -> dict[str, Any]:
    """What the pipelines need to know of images of ``own.channels``, as JSON.

    Returns:
        ``load``: arguments of ``LoadBands``; ``mean`` and ``std`` of each channel; ``text`` for the
        recipe.

    Raises:
        ValueError: a file, which is named, cannot be read, has other bands, names of bands or
            another type than most, or a channel is constant in all images.
    """
    load = loading(own)
    if train:
        load |= checked_headers(own, sampled([*train, *val], HEADERS), load)
    mean, std, text = statistics(own, sampled(train, READ), load)
    return dict(load=dict(load, fill=mean), mean=mean, std=std, text=text)


def loading(own: Own) -> dict[str, Any]:
    """The arguments of ``LoadBands`` that follow from settings alone."""
    names, chosen = own.channel_names, own.channels
    is_choice = isinstance(chosen, Sequence) and all(map(is_integer, chosen))
    show = [0, 1, 2] if len(names) > 2 else [0, 0, 0]
    if own.show is not None:
        show = [x - 1 if is_integer(x) else names.index(str(x)) for x in own.show]
        show = show * 3 if len(show) == 1 else show
    elif {*RGB} <= {*names}:
        show = [names.index(name) for name in RGB]
    return dict(
        channels=len(names),
        bands=[*chosen] if is_choice else None,  # type: ignore[misc]
        names=[*names] if own.separate_files else None,
        show=show,
    )


def sampled(files: Sequence[Path], number: int) -> Sequence[Path]:
    """Up to so many of the files, evenly."""
    return files[:: -(-len(files) // number)] if files else []


def checked_headers(own: Own, images: Sequence[Path], load: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``LoadBands`` that headers of images say: ``bands`` and ``dtype``.

    Names of channels are names of bands if the files have some of them; else they are the names of
    all bands in their order.

    Raises:
        ValueError: a file, which is named, cannot be read, has other bands, names of bands or
            another type than most.
    """
    loader = LoadBands(**load)
    headers = {image: {file: band_header(file) for file in loader.files(image)} for image in images}
    firsts = [next(iter(files.items())) for files in headers.values()]
    bands = load['bands']
    if own.channel_names == own.channels and not own.separate_files:
        bands = names_in(own.channel_names, *firsts[0])
    dtype = Counter(header.dtype for _, header in firsts).most_common(1)[0][0]
    loader = LoadBands(**{**load, 'bands': bands, 'dtype': dtype})
    for image, files in headers.items():
        loader.check_headers(image, files)
    return dict(bands=bands, dtype=dtype)


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
        low = np.where(known, values, np.inf).min(0)
        high = np.where(known, values, -np.inf).max(0)
        for channel in np.flatnonzero(low >= high):  # or without a known value
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
