"""Rows of classes in the weights of heads, kept by the names of their classes.

A training that starts from a detector or segmentor of other classes takes, of each weight that has
rows of classes, the rows of classes that both have; the others keep their initial values. K
classes of the file, N of the model.
"""

import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .keys import StateDict

# Of DEIM, DINO, Mask R-CNN and mmseg's heads; a last row beside the classes is of none.
CLASS_WEIGHTS = re.compile(
    r'.*\b(selection\.cls|cls_branches\.\d+|denoising\.labels|label_embedding|fc_cls|fc_reg'
    r'|conv_logits|conv_seg)\.(weight|bias)'
)


def has_rows(key: str) -> bool:
    """True for a weight that has rows of classes."""
    return CLASS_WEIGHTS.fullmatch(key) is not None


def keep_rows(
    weights: StateDict,
    expected: StateDict,
    sources: Sequence[int | None],
    number: int,
) -> bool:
    """Give weights that have rows of classes the rows of the model, in place; False if none fits.

    Rows of classes that the file does not have are NaN, see ``fill_rows``.

    Args:
        expected: weights of the model.
        sources: place of each class of the model in the file, or None, N.
        number: K.
    """
    has_kept = False
    for key in filter(has_rows, weights):
        weight = weights[key]
        own = expected.get(key, weight[:0])
        each = 4 if '.fc_reg.' in key else 1  # sides of a box
        rest = len(weight) - each * number
        fits = own.shape[1:] == weight.shape[1:]
        if not fits or rest not in (0, 1) or len(own) != each * len(sources) + rest:
            continue
        rows = weight.new_full(own.shape, torch.nan).split(each)
        theirs = weight.split(each)
        for row, source in zip(rows, [*sources, number][: len(rows)], strict=True):
            if source is not None:
                row.copy_(theirs[source])
        weights[key] = torch.cat(rows)
        has_kept = True
    return has_kept


def fill_rows(checkpoint: dict, own: Mapping[str, Tensor]) -> None:
    """Complete the state dict of a file that has been read, by rows of the model, where it is NaN.

    Other NaN are refused before.
    """
    weights = checkpoint.get('state_dict', {})
    for key in filter(has_rows, weights.keys() & own.keys()):
        lost = weights[key].isnan()
        if lost.any():
            weights[key] = weights[key].where(~lost, own[key].detach().to(weights[key]))
