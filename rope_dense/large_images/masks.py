"""Masks of single objects of a large image, as run lengths."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

if find_spec('pycocotools'):  # mmdet needs it
    from pycocotools import mask as coco_mask


def encode_mask(
    mask: np.ndarray, left: int, top: int, shrink: int, size: tuple[int, int]
) -> dict[str, str | int]:
    """The mask of a tile as COCO's run lengths in the image, without a mask of the whole image.

    Args:
        mask: bool [H, W], of a tile of an image that is shrunken ``shrink`` times.
        left, top: of the tile, in shrunken pixels.
        size: (height, width) of the image; their product is below 2^32, as in pycocotools.

    Returns:
        ``counts``, the compressed run lengths, and ``area`` in pixels.
    """
    starts, ends = runs(mask, left, top, shrink, size)
    height, width = size
    bounds = np.concatenate([[0], np.stack([starts, ends], 1).ravel(), [height * width]])
    lengths = np.diff(bounds).tolist()
    if lengths[-1] == 0 and len(lengths) > 1:  # the mask goes to the end
        lengths.pop()
    uncompressed = dict(size=[height, width], counts=lengths)
    counts = coco_mask.frPyObjects(uncompressed, height, width)['counts']
    return dict(counts=counts.decode(), area=int((ends - starts).sum()))


def runs(
    mask: np.ndarray, left: int, top: int, shrink: int, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends, [runs] each, of runs of the mask in the image, counted column by column."""
    height, width = size
    edges = np.diff(np.pad(mask, ((1, 1), (0, 0))).astype(np.int8), axis=0).T  # [W, H + 1]
    columns, starts = np.nonzero(edges == 1)
    ends = np.nonzero(edges == -1)[1]
    starts, ends = (np.minimum((top + rows) * shrink, height) for rows in (starts, ends))
    columns = (left + columns)[:, None] * shrink + np.arange(shrink)  # [runs, shrink]
    inside = (columns < width) & (starts < ends)[:, None]
    starts, ends = ((columns * height + rows[:, None])[inside] for rows in (starts, ends))
    order = starts.argsort()
    starts, ends = starts[order], ends[order]
    apart = starts[1:] != ends[:-1]  # a run over the whole height touches the next column's
    return starts[np.append(True, apart)[: len(starts)]], ends[np.append(apart, True)[: len(ends)]]
