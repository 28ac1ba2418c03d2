"""Rows of classes in the weights of heads, kept by the names of their classes.

A training that starts from a detector or segmentor of other classes takes, of each weight that has
rows of classes, the rows of classes that both have; the others keep their initial values. K
classes of the file, N of the model.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .keys import StateDict

ROWS = 'class_rows'  # beside the state dict of a file that has been read
# Of DEIM, DINO, Mask R-CNN and mmseg's heads; a last row beside the classes is of none.
CLASS_WEIGHTS = re.compile(
    r'.*\b(selection\.cls|cls_branches\.\d+|denoising\.labels|label_embedding|fc_cls|fc_reg'
    r'|conv_logits|conv_seg)\.(weight|bias)'
)


@dataclass(frozen=True)
class KeptRows:
    """The places of some rows of a weight, and their values."""

    places: Tensor
    values: Tensor


def has_rows(key: str) -> bool:
    """True for a weight that has rows of classes."""
    return CLASS_WEIGHTS.fullmatch(key) is not None


def take_rows(
    weights: StateDict,
    expected: StateDict,
    sources: Sequence[int | None],
    number: int,
) -> dict[str, KeptRows]:
    """Take the weights that have rows of classes out, in place; returns the rows that stay.

    Args:
        expected: weights of the model.
        sources: place of each class of the model in the file, or None, N.
        number: K.
    """
    kept = {}
    for key in [*filter(has_rows, weights)]:
        weight = weights[key]
        own = expected.get(key, weight[:0])
        each = 4 if '.fc_reg.' in key else 1  # sides of a box
        rest = len(weight) - each * number
        fits = own.shape[1:] == weight.shape[1:]
        if not fits or rest not in (0, 1) or len(own) != each * len(sources) + rest:
            continue
        pairs = [(new, old) for new, old in enumerate(sources) if old is not None]
        rows = [
            (each * new + i, each * old + i) for new, old in pairs for i in range(each)
        ]
        if rest:
            rows.append((len(own) - 1, len(weight) - 1))
        places, from_places = torch.tensor(rows, dtype=torch.long).view(-1, 2).T
        kept[key] = KeptRows(places, weight[from_places])
        del weights[key]
    return kept


def fill_rows(checkpoint: dict, own: Mapping[str, Tensor]) -> None:
    """Complete the state dict of a file that has been read, by rows of the model."""
    for key, rows in checkpoint.get(ROWS, {}).items():
        weight = own[key].detach().cpu().clone()
        weight[rows.places] = rows.values.to(weight.dtype)
        checkpoint['state_dict'][key] = weight
