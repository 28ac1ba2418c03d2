"""Greedy non-maximum suppression for boxes of any shape, without a loop over boxes."""

from collections.abc import Callable

import torch
from torch import Tensor

BLOCK = 512  # boxes that are decided at once
COLUMNS = 4096  # boxes compared with a block at once: bounds the memory


def greedy_keep(
    overlapping: Callable[[Tensor, Tensor], Tensor],
    order: Tensor,
    columns: int = COLUMNS,
) -> Tensor:
    """Indices that greedy suppression keeps, best first.

    A box is kept if no kept box before it overlaps it. Blocks of ``BLOCK`` boxes are decided one
    after the other; each then suppresses boxes of all later blocks, so only kept boxes are ever
    compared with later ones. The host waits a few times a block, never for a box. Checked against
    a loop over boxes in tests/operators/test_greedy.py.

    Args:
        overlapping: From indices of boxes [R] and of later boxes [C] to a boolean [R, C], True
            where the first suppresses the second. At most ``BLOCK`` x ``columns`` pairs a call.
        order: Indices of all boxes [N], best first.
        columns: Later boxes at once, which bound the memory.

    Returns:
        The kept part of ``order``.
    """
    kept = [order[:0]]
    while len(order):
        head = order[:BLOCK]
        conflicts = overlapping(head, head).triu(1)
        head = head.masked_select(undominated(conflicts))
        kept.append(head)
        later = order[BLOCK:].split(columns)
        left = [x.masked_select(~overlapping(head, x).any(0)) for x in later]
        order = torch.cat(left)
    return torch.cat(kept)


def undominated(conflicts: Tensor) -> Tensor:
    """Items [N] that no kept item dominates.

    The one fixpoint of "kept if dominated by nothing that is kept": after n rounds the first n
    items are decided, so it is reached after as many rounds as the longest chain of conflicts.

    Args:
        conflicts: [N, N], True where an item dominates a later one; upper triangle.
    """
    kept = torch.ones(len(conflicts), dtype=torch.bool, device=conflicts.device)
    while True:
        before = kept
        kept = ~(conflicts & kept[:, None]).any(0)
        if torch.equal(before, kept):
            return kept
