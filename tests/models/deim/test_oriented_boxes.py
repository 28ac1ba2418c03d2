"""Oriented boxes as matrices: against float64 loops, matrix functions and mmrotate."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rope_dense.models.deim.oriented_boxes import (
    apply,
    change_between,
    divergence,
    entries,
    from_rotated,
    matrices,
    move_boxes,
    saturate,
    to_rotated,
)

QUARTER = math.pi / 2


def rotated(number: int = 60) -> Tensor:
    """(cx, cy, w, h, a), float64, any convention; thin boxes, squares, and angles at the border."""
    sides = 0.02 + 0.4 * torch.rand(number, 2)
    angle = (torch.rand(number, 1) - 0.5) * 2 * math.pi
    boxes = torch.cat([torch.rand(number, 2), sides, angle], 1).double()
    boxes[:5, 3] = boxes[:5, 2]
    boxes[5:10, 2:4] = torch.tensor([0.8, 0.002]).double()
    boxes[10:15, 4] = torch.tensor(
        [-QUARTER, QUARTER, 0.0, math.pi, QUARTER - 1e-9]
    ).double()
    return boxes


def corners(boxes: Tensor) -> Tensor:
    """[M, 4, 2] around each box, from its five numbers."""
    cx, cy, w, h, a = boxes.unbind(-1)
    along = torch.stack([a.cos(), a.sin()], -1) * w[:, None] / 2
    across = torch.stack([-a.sin(), a.cos()], -1) * h[:, None] / 2
    centre = torch.stack([cx, cy], -1)
    points = (along + across, along - across, -along - across, -along + across)
    return torch.stack([centre + point for point in points], 1)


def quarter_turn(boxes: Tensor) -> Tensor:
    """The boxes of a square image that is turned by 90 degrees."""
    x, y, *sides, angle = boxes.unbind(-1)
    return torch.stack([1 - y, x, *sides, angle + QUARTER], -1)


def test_matrices_are_exponentials() -> None:
    ours = from_rotated(rotated())
    m, first, second = ours[:, 2:5].unbind(-1)
    logarithm = torch.stack([m + first, second, second, m - first], -1).unflatten(
        -1, (2, 2)
    )
    expected = torch.linalg.matrix_exp(logarithm)
    found = matrices(ours[:, 2:5])[:, [0, 2, 2, 1]].unflatten(-1, (2, 2))
    torch.testing.assert_close(found, expected)


def test_sides_and_angle_come_from_the_matrix() -> None:
    """A = R diag(w, h) R^T, box by box."""
    given = rotated()
    for box, found in zip(given, matrices(from_rotated(given)[:, 2:5]), strict=True):
        w, h, a = box[2:].tolist()
        cos, sin = math.cos(a), math.sin(a)
        expected = [
            w * cos**2 + h * sin**2,
            w * sin**2 + h * cos**2,
            (w - h) * cos * sin,
        ]
        assert found.tolist() == pytest.approx(expected, abs=1e-12)


def test_a_box_comes_back_in_le90() -> None:
    given = rotated()
    back = to_rotated(from_rotated(given))
    assert (back[:, 2] >= back[:, 3]).all()
    assert ((back[:, 4] >= -QUARTER) & (back[:, 4] < QUARTER)).all()
    for one, other in zip(corners(given), corners(back), strict=True):
        distances = torch.cdist(one, other)
        assert distances.amin(0).max() < 1e-5
        assert distances.amin(1).max() < 1e-5


def test_all_conventions_of_a_box_are_one() -> None:
    given = rotated()
    expected = from_rotated(given)
    swapped, turned = given[:, [0, 1, 3, 2, 4]].clone(), given.clone()
    swapped[:, 4] += QUARTER
    turned[:, 4] += math.pi
    for same in (swapped, turned):
        torch.testing.assert_close(from_rotated(same), expected, atol=1e-12, rtol=1e-9)


def test_boxes_along_the_axes_have_the_entries_of_horizontal_ones() -> None:
    given = rotated()
    given[:, 4] = 0
    expected = torch.cat([given[:, :4], given.new_zeros(len(given), 3)], 1)
    torch.testing.assert_close(
        entries(from_rotated(given)), expected, atol=1e-9, rtol=1e-6
    )


def test_a_change_is_found_again() -> None:
    reference, box = from_rotated(rotated()), from_rotated(rotated())
    change = change_between(reference, box)
    torch.testing.assert_close(move_boxes(reference, change), box, atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(move_boxes(reference, 0 * change), reference)
    unit = torch.tensor([1.0, 0, 0, 0, 0, 0, 0]).double()
    shifted = move_boxes(from_rotated(given := rotated()), unit.expand(len(given), 7))
    step = apply(matrices(from_rotated(given)[:, 2:5]), unit[:2].expand(len(given), 2))
    torch.testing.assert_close(shifted[:, :2] - given[:, :2], step)


def test_all_of_it_follows_a_quarter_turn_of_the_image() -> None:
    """Boxes, changes, costs and losses."""
    boxes, targets = rotated(), rotated()
    ours, others = from_rotated(boxes), from_rotated(targets)
    turned, turned_others = (
        from_rotated(quarter_turn(boxes)),
        from_rotated(quarter_turn(targets)),
    )
    change, expected = (
        change_between(turned, turned_others),
        change_between(ours, others),
    )
    x, y, size, u1, u2, *turn = expected.unbind(-1)
    expected = torch.stack([-y, x, size, -u1, -u2, *turn], -1)
    torch.testing.assert_close(change, expected, atol=1e-9, rtol=1e-9)
    back = to_rotated(move_boxes(turned, change))
    torch.testing.assert_close(back, to_rotated(turned_others), atol=1e-6, rtol=1e-9)
    for measure in (
        lambda a, b: torch.cdist(entries(a), entries(b), p=1),
        lambda a, b: divergence(a[:, None], b),
    ):
        torch.testing.assert_close(
            measure(turned, turned_others), measure(ours, others), atol=1e-9, rtol=1e-6
        )


def test_divergence_is_mmrotate_s() -> None:
    pytest.importorskip('mmrotate', reason='no mmrotate; see the extra [oriented]')
    import rope_dense.models.mmrotate  # noqa: F401, I001
    from mmrotate.models.losses import GDLoss

    boxes, targets = (rotated()[10:] for _ in range(2))
    theirs = GDLoss('kld', fun='log1p', tau=1.0, sqrt=False, reduction='none')
    distance = divergence(from_rotated(boxes), from_rotated(targets))
    torch.testing.assert_close(
        saturate(distance), theirs(boxes, targets), atol=1e-5, rtol=1e-5
    )
    every = divergence(from_rotated(boxes)[:, None], from_rotated(targets))
    torch.testing.assert_close(every.diagonal(), distance)
    assert divergence(from_rotated(boxes), from_rotated(boxes)).abs().max() < 1e-9


def test_thin_boxes_in_float32() -> None:
    """A divergence of 250 : 1, where determinants cancel."""
    given = rotated()[5:10]
    other = given + 1e-3 * torch.randn(5, 5).double()
    pair = from_rotated(given), from_rotated(other)
    expected, found = divergence(*pair), divergence(*(x.float() for x in pair))
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    'box',
    [
        (0.5, 0.5, 0.2, 0.2, 0.3),  # a square
        (0.5, 0.5, 0.0, 0.0, 0.0),
        (0.5, 0.5, 0.3, 0.0, QUARTER),
        (0.5, 0.5, 0.3, 0.1, -QUARTER),
        (0.5, 0.5, 0.3, 0.1, QUARTER),
        (1e30, 0.5, 1e30, 0.1, 1e3),
    ],
)
def test_derivatives_are_finite(box: tuple[float, ...]) -> None:
    """Of odd annotations, and of predictions equal to them or with no stretch at all."""
    target = from_rotated(torch.tensor([box]))
    for start in (target, torch.tensor([[0.5, 0.5, -2.0, 0, 0, 0, 0]])):
        prediction = start.clone().requires_grad_()
        loss = saturate(divergence(prediction, target)).sum()
        loss = loss + (entries(prediction) - entries(target)).abs().sum()
        assert loss.isfinite()
        (gradient,) = torch.autograd.grad(loss, prediction)
        assert gradient.isfinite().all()


def test_gradients_against_differences() -> None:
    start = from_rotated(rotated()[:6]).requires_grad_()
    target = from_rotated(rotated()[:6])
    assert torch.autograd.gradcheck(lambda x: saturate(divergence(x, target)), start)
    assert torch.autograd.gradcheck(entries, start)
    assert torch.autograd.gradcheck(lambda x: move_boxes(x, 0.1 * x), start)


def test_what_is_not_finite_stays_so() -> None:
    for value in (math.nan, math.inf):
        for place in range(5):
            box = torch.tensor([0.5, 0.5, 0.2, 0.1, 0.0])
            box[place] = value
            assert not from_rotated(box[None]).isfinite().all()
