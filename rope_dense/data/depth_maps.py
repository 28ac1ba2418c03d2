"""Files of depth maps: PNG, TIFF or .npy; all maps of a split, looked at once before a training."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from ..utils.progress import progress
from .images.band_files import ARRAY
from .images.headers import read_header
from .labels.objects import MOST_LEFT_OUT
from .labels.splits import WORDS
from .map_files import Pair, check_header, why_unread

# Of the largest depth that is predicted; a smaller median has another unit.
LEAST_SHARE = 0.01
REPEATED = 0.02  # of the depths that are the largest, from which on it is said
SAMPLED = 2**22  # depths of a split, of which the median is taken


def read_depth(path: Path) -> np.ndarray:
    """The numbers of a depth file [H, W], as it has them; an array is not read yet.

    ValueError if it is no map of one channel.
    """
    is_array = path.suffix.lower() == ARRAY
    try:
        if is_array:
            stored = np.load(path, mmap_mode='r', allow_pickle=False)
        else:
            stored = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_UNCHANGED)
        if not isinstance(stored, np.ndarray) or stored.dtype.kind not in 'fiu':
            raise ValueError('no numbers')
    except Exception as error:  # a damaged file can fail in any way
        raise ValueError(
            f'{path} cannot be read as a depth map ({why_unread(path, error)}): '
            'save one channel of 16 bits or float32'
        ) from error
    depth = stored.squeeze()
    if depth.ndim != 2:
        raise ValueError(
            f'{path}: got shape {stored.shape}; a depth map has one channel'
        )
    return depth


def known_depths(stored: np.ndarray) -> np.ndarray:
    """Numbers as float32, with 0 for unknown depths: 0 or less, or not finite."""
    depth = stored.astype(np.float32)
    return np.where(np.isfinite(depth) & (depth > 0), depth, np.float32(0))


def survey_depths(
    pairs: Sequence[Pair],
    split: str,
    unit: float,
    max_depth: float | None,
) -> dict[str, Any]:
    """Look at all depth maps of a split, 'train' or 'val'.

    Args:
        unit: metres of a 1 in the files.
        max_depth: the largest depth that the model predicts in metres; None if it is not known.

    Returns:
        Plain values: `split`; `maps`, their number; `least`, `median` and `largest` known depth in
        metres; `unknown`, the share of pixels; of the known depths `above`, the share above
        `max_depth`, and `repeated`, the share that is the largest, if the median is not; `empty`
        and `odd`, lists of the maps that have no known depth, or a median that the model hardly
        predicts.

    Raises:
        ValueError: a map that cannot be read, is of another size than its image, or has several
            pages, bands or 8 bits; maps without a known depth; or depths in another unit.
    """
    known = []
    shares = []
    medians = {}
    empty = []
    least = np.inf
    largest = 0.0
    for image, path in progress(pairs, f'{WORDS[split]} depth maps'):
        depth = known_depths(read_checked_depth(image, path)) * unit
        depths = depth[depth > 0]
        shares.append(1 - depths.size / depth.size)
        if not depths.size:
            empty.append(str(path))
            continue
        least = min(least, float(depths.min()))
        largest = max(largest, float(depths.max()))
        median = float(np.median(depths))
        if max_depth and not LEAST_SHARE * max_depth <= median <= max_depth:
            medians[str(path)] = median
        step = max(1, depths.size * len(pairs) // SAMPLED)
        known.append(depths[::step])
    if len(empty) > MOST_LEFT_OUT * len(pairs):
        raise ValueError(
            f'{empty[0]} has no known depth: all its numbers are 0 or less, or not finite '
            f'({len(empty)} of {len(pairs)} maps)'
        )
    if len(medians) > MOST_LEFT_OUT * len(pairs):
        first, median = next(iter(medians.items()))
        raise ValueError(
            f'{first} has a median depth of {median:.4g} m, and max_depth is {max_depth:g} m '
            f'({len(medians)} of {len(pairs)} maps are so): check the unit (own.unit, '
            'LoadDepth.unit: metres of a 1 in the file; 0.001 for millimetres) and own.max_depth'
        )
    depths = np.concatenate(known)
    median = float(np.median(depths))
    repeated = (depths == largest).mean() if median < largest else 0
    return dict(
        split=split,
        maps=len(pairs),
        least=least,
        median=median,
        largest=largest,
        unknown=float(np.mean(shares)),
        above=float((depths > (max_depth or np.inf)).mean()),
        repeated=float(repeated),
        empty=empty,
        odd=list(medians),
    )


def read_checked_depth(image: Path, path: Path) -> np.ndarray:
    """The numbers [H, W] of a depth file, decoded only if its header has the size of the image."""
    is_array = path.suffix.lower() == ARRAY
    check_header(image, path, 'depth map', read_depth(path).shape if is_array else None)
    bands = 1 if is_array else read_header(path).bands
    if bands > 1:  # OpenCV may take the first
        raise ValueError(f'{path} has {bands} bands; a depth map has one channel')
    stored = read_depth(path)
    if stored.dtype == np.uint8:
        raise ValueError(
            f'{path} has 8 bits, which are too few for metres: save depths as a PNG of 16 bits '
            '(millimetres), a TIFF or .npy'
        )
    return stored


def depth_lines(survey: Mapping[str, Any]) -> list[str]:
    """The lines of a report about depth maps: the range of depths, and maps that are odd."""
    lines = [
        f'depths of {survey["least"]:.3g} to {survey["largest"]:.3g} m, '
        f'median {survey["median"]:.3g} m ({survey["maps"]} files)'
    ]
    if survey['above']:
        share = f'{survey["above"]:.2%} of the depths'
        lines.append(f'{share} are above own.max_depth: neither trained nor evaluated')
    if survey['repeated'] >= REPEATED:
        lines.append(
            f'{survey["repeated"]:.0%} of the depths are the largest, {survey["largest"]:.3g} m: '
            'where nothing was measured, store 0'
        )
    said = dict(
        empty='depth map without a known depth',
        odd='depth map of a median out of range',
    )
    for name, words in said.items():
        paths = survey[name]
        if paths:
            files = ', '.join(Path(path).name for path in paths[:3])
            more = ' ...' if len(paths) > 3 else ''
            lines.append(f'{len(paths)} x {words}: {files}{more}')
    return lines
