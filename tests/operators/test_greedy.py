"""Greedy suppression against a loop over boxes."""

import pytest
import torch
from torch import Tensor

from rope_dense.operators import greedy


def loop(conflicts: Tensor, order: Tensor) -> list[int]:
    kept: list[int] = []
    for index in order.tolist():
        if not any(conflicts[other, index] for other in kept):
            kept.append(index)
    return kept


@pytest.mark.parametrize('density', [0.0, 0.02, 0.3, 1.0])
@pytest.mark.parametrize('number', [0, 1, 5, 70])
def test_greedy_keep_is_the_loop_over_boxes(
    number: int, density: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greedy, 'BLOCK', 16)
    monkeypatch.setattr(greedy, 'COLUMNS', 20)
    generator = torch.Generator().manual_seed(number)
    conflicts = (
        torch.rand(number, number, generator=generator) < density
    )  # not symmetric
    order = torch.randperm(number, generator=generator)
    kept = greedy.greedy_keep(lambda rows, columns: conflicts[rows][:, columns], order)
    assert kept.tolist() == loop(conflicts, order)


def test_a_chain_of_conflicts_keeps_every_other_item() -> None:
    chain = torch.ones(99, dtype=torch.bool).diag(1)
    assert greedy.undominated(chain).tolist() == [
        index % 2 == 0 for index in range(100)
    ]
