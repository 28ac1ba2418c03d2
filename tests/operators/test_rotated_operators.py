"""IoU and NMS of rotated boxes and quadrilaterals: mmcv's compiled operators, shapely, hostile."""

from __future__ import annotations

import math
from functools import cache

import pytest
import torch
from torch import Tensor

from helpers.operators import compiled_operators, untied
from rope_dense.operators import convex, rotated

shapely = pytest.importorskip('shapely')
CLASSES = ('rotated', 'quadri')
both = pytest.mark.parametrize('shape', CLASSES)


def boxes(
    number: int, seed: int, size: float = 200.0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Rotated boxes [N, 5] with sides of 4 to 64 and centres in a square."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(number, 5, generator=generator, dtype=torch.float64)
    scale = torch.tensor([size, size, 60, 60, 2 * math.pi], dtype=torch.float64)
    return (values * scale + torch.tensor([0, 0, 4, 4, -math.pi])).to(dtype)


def corners(values: Tensor) -> Tensor:
    """Rotated boxes as quadrilaterals [N, 8], in float64."""
    x, y, width, height, angle = values.double().unbind(1)
    cosine, sine = angle.cos(), angle.sin()
    points = []
    for along, across in ((-0.5, 0.5), (-0.5, -0.5), (0.5, -0.5), (0.5, 0.5)):
        points += [x + along * width * cosine - across * height * sine]
        points += [y + along * width * sine + across * height * cosine]
    return torch.stack(points, 1)


def quadrilaterals(number: int, seed: int, size: float = 200.0) -> Tensor:
    """Rotated boxes whose corners were moved: few stay parallelograms, some are not convex."""
    rectangles = corners(boxes(number, seed, size))
    generator = torch.Generator().manual_seed(seed)
    return (rectangles + 4 * torch.randn(rectangles.shape, generator=generator)).float()


def of_shape(shape: str, number: int, seed: int, size: float = 200.0) -> Tensor:
    return (boxes if shape == 'rotated' else quadrilaterals)(number, seed, size)


def ious(
    module: object,
    shape: str,
    a: Tensor,
    b: Tensor,
    mode: int = 0,
    aligned: bool = False,
) -> Tensor:
    out = a.new_zeros(len(a) if aligned else len(a) * len(b))
    getattr(module, f'box_iou_{shape}')(a, b, out, mode_flag=mode, aligned=aligned)
    return out


def exact(a: Tensor, b: Tensor, mode: int = 0) -> Tensor:
    """IoU of each box of a with that of b, by shapely in float64."""
    p, q = (shapely.polygons(corners(part).view(-1, 4, 2).numpy()) for part in (a, b))
    inter = torch.from_numpy(shapely.area(shapely.intersection(p, q)))
    area_p, area_q = (
        torch.from_numpy(shapely.area(p)),
        torch.from_numpy(shapely.area(q)),
    )
    return inter / (area_p if mode else area_p + area_q - inter)


@both
@pytest.mark.parametrize('mode', [0, 1])
@pytest.mark.parametrize('aligned', [False, True])
def test_the_compiled_operators_give_the_same_iou(
    shape: str, mode: int, aligned: bool
) -> None:
    a, b = of_shape(shape, 120, 1), of_shape(shape, 120, 2)
    expected, actual = (
        ious(module, shape, a, b, mode, aligned)
        for module in (compiled_operators(), rotated)
    )
    assert (expected > 0).sum() > 3
    assert (actual - expected).abs().max() <= 1e-6


@pytest.mark.parametrize('mode', [0, 1])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_shapely_gives_the_same_iou(dtype: torch.dtype, mode: int) -> None:
    a, b = boxes(400, 3, size=60, dtype=dtype), boxes(400, 4, size=60, dtype=dtype)
    actual = ious(rotated, 'rotated', a, b, mode, aligned=True)
    assert (actual - exact(a, b, mode)).abs().max() < (
        1e-12 if dtype == torch.float64 else 2e-6
    )


def test_rectangles_as_quadrilaterals_are_exact() -> None:
    a, b = boxes(300, 5, size=60), boxes(300, 6, size=60)
    actual = ious(rotated, 'quadri', corners(a), corners(b), aligned=True)
    assert (actual - exact(a, b)).abs().max() < 1e-12


def right_angles(number: int, seed: int, turn: float = 0.0) -> Tensor:
    """Boxes on a small turned grid, at right angles: many shared edges and corners."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, 6, (number, 5), generator=generator).double()
    values[:, 2:4] += 1
    cosine, sine = math.cos(turn), math.sin(turn)
    x, y = (
        values[:, 0] * cosine - values[:, 1] * sine,
        values[:, 0] * sine + values[:, 1] * cosine,
    )
    angle = values[:, 4] * math.pi / 2 + turn
    return torch.stack([x, y, values[:, 2], values[:, 3], angle], 1).float()


@pytest.mark.parametrize('turn', [0.0, 0.3, 1.1])
@pytest.mark.parametrize('scale', [1.0, 1e-3, 1e4])
def test_shared_edges_and_corners_are_exact(scale: float, turn: float) -> None:
    """Compiled operators are wrong by up to 0.7 for one pair of a hundred; some exceed 1."""
    factor = torch.tensor([scale, scale, scale, scale, 1])
    a, b = (right_angles(2000, seed, turn) * factor for seed in (7, 8))
    actual = ious(rotated, 'rotated', a, b, aligned=True)
    assert (actual - exact(a, b)).abs().max() < 5e-6


def test_almost_identical_boxes_are_exact() -> None:
    """Compiled operators give an IoU of 0 for some of these pairs."""
    a = boxes(2000, 9)
    b = a + 1e-6 * torch.randn(a.shape, generator=torch.Generator().manual_seed(0))
    actual = ious(rotated, 'rotated', a, b, aligned=True)
    assert (actual - exact(a, b)).abs().max() < 2e-5


@pytest.mark.parametrize(
    'width, length', [(0.5, 400), (1.5, 800), (2, 900), (1, 500), (6, 400)]
)
def test_long_thin_boxes_are_exact(width: float, length: float) -> None:
    """Two boxes of one road: compiled operators are off by up to 1."""
    generator = torch.Generator().manual_seed(0)
    a = torch.rand(2000, 5, generator=generator) * torch.tensor([1000, 1000, 0, 0, 6.0])
    a = a + torch.tensor([0, 0, width, length, 0])
    noise = torch.randn(a.shape, generator=generator) * torch.tensor(
        [0.5, 0.5, 0.05, 5, 0.01]
    )
    share = torch.rand(len(a), 1, generator=generator) ** 2  # many are almost the same
    b = a + noise * share * (torch.rand(a.shape, generator=generator) < 0.7)
    expected, actual = exact(a, b), ious(rotated, 'rotated', a, b, aligned=True)
    expected[(expected == 0) & (actual > 0.99)] = (
        1  # shapely finds nothing in one pair of 30,000
    )
    assert (expected > 0.5).sum() > 200
    assert (actual - expected).abs().max() < 1e-6


def hostile() -> dict[str, Tensor]:
    near = boxes(60, 9)
    sides = near.clone()
    sides[::3, 2] = 0
    sides[1::3, 3] = -5
    sides[2::3, 2:4] *= -1
    return {
        'identical': near,
        'no area': sides,
        'far': near + torch.tensor([1e4, -1e4, 0, 0, 0]),
        'aligned': torch.cat([near[:, :4], torch.zeros(60, 1)], 1),
        'huge': near * torch.tensor([1, 1, 1e4, 1e4, 1]),
        'many turns': near * torch.tensor([1, 1, 1, 1, 50]),
        'whole': right_angles(60, 1) * torch.tensor([1, 1, 1, 1, 0]),
    }


@both
@pytest.mark.parametrize('name', hostile())
def test_hostile_boxes_are_as_compiled(name: str, shape: str) -> None:
    a = hostile()[name]
    a = a if shape == 'rotated' else corners(a).float()
    expected, actual = (
        ious(module, shape, a, a) for module in (compiled_operators(), rotated)
    )
    assert (actual - expected).abs().max() <= 1e-5


@both
@pytest.mark.parametrize('mode', [0, 1])
@pytest.mark.parametrize('value', [math.nan, math.inf])
def test_nan_and_infinity_are_as_compiled(shape: str, mode: int, value: float) -> None:
    a = of_shape(shape, 40, 10, size=60)
    for column in range(a.shape[1]):
        a[column :: a.shape[1] + 1, column] = value  # every few boxes
    b = of_shape(shape, 40, 11, size=60)
    expected, actual = (
        ious(module, shape, a, b, mode) for module in (compiled_operators(), rotated)
    )
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6, equal_nan=True)


@both
def test_no_boxes(shape: str) -> None:
    one, none = of_shape(shape, 1, 0), of_shape(shape, 0, 0)
    for a, b in ((none, none), (one, none), (none, one)):
        assert ious(rotated, shape, a, b).shape == (0,)
    assert ious(rotated, shape, none, none, aligned=True).shape == (0,)


@pytest.mark.parametrize('aligned', [True, False])
def test_boxes_that_are_far_away_overlap_nothing(aligned: bool) -> None:
    """However far: the compiled operator has an IoU of -1 there."""
    box = torch.tensor([[10.0, 10, 5, 5, 0.2]])
    for place in (0, 1):
        far = box.index_fill(1, torch.tensor([place]), 1e30)
        ious = torch.ones(1)
        rotated.box_iou_rotated(far, box, ious, 0, aligned)
        assert ious == 0


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    a, b = boxes(50, 11, size=60).to(dtype), boxes(50, 12, size=60).to(dtype)
    actual = ious(rotated, 'rotated', a, b)
    assert actual.dtype == dtype
    expected = ious(rotated, 'rotated', a.float(), b.float())
    assert torch.equal(actual, expected.to(dtype))


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = boxes(50, 13), boxes(70, 14)
    whole = ious(rotated, 'rotated', a, b)
    monkeypatch.setattr(convex, 'ROWS', 300)
    monkeypatch.setattr(convex, 'PAIRS', 16)
    assert torch.equal(ious(rotated, 'rotated', a, b), whole)


def nms(
    module: object, shape: str, a: Tensor, scores: Tensor, threshold: float
) -> Tensor:
    order = scores.sort(stable=True, descending=True).indices
    labels = [torch.empty(0, dtype=torch.int)] if shape == 'rotated' else []
    scores = scores if module is rotated else untied(scores)
    arguments = a, scores, order, a[order], *labels, threshold, False
    return getattr(module, f'nms_{shape}')(*arguments)


@cache
def crowd(shape: str, number: int) -> tuple[Tensor, Tensor]:
    """Boxes with many overlaps, and scores with ties."""
    generator = torch.Generator().manual_seed(number)
    scores = torch.randint(0, max(number, 1), (number,), generator=generator) / max(
        number, 1
    )
    return of_shape(shape, number, number, size=60 + 8 * number**0.5), scores


@both
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('threshold', [0.0, 0.1, 0.5, 0.8, 1.0])
@pytest.mark.parametrize('number', [0, 1, 300])
def test_nms_keeps_the_compiled_indices(
    number: int, threshold: float, dtype: torch.dtype, shape: str
) -> None:
    a, scores = (part.to(dtype) for part in crowd(shape, number))
    expected, actual = (
        nms(module, shape, a, scores, threshold)
        for module in (compiled_operators(), rotated)
    )
    assert actual.dtype == torch.long
    assert torch.equal(actual, expected)


@both
def test_labels_are_not_compared(shape: str) -> None:
    a, scores = crowd(shape, 300)
    labels = torch.arange(300) % 3
    labelled = torch.cat([a, labels[:, None].float()], 1)
    more = [labels] if shape == 'rotated' else []
    order = scores.sort(0, descending=True).indices
    for module in (rotated, compiled_operators()):
        nms_shape = getattr(module, f'nms_{shape}')
        kept = nms_shape(
            labelled, untied(scores), order, labelled[order], *more, 0.3, True
        )
        assert torch.equal(kept, nms(rotated, shape, a, scores, 0.3))


@both
def test_further_columns_are_not_read(shape: str) -> None:
    """mmrotate's metrics pass boxes with their scores."""
    a, b = of_shape(shape, 30, 1, size=60), of_shape(shape, 20, 2, size=60)
    scored = torch.cat([a, torch.rand(30, 1)], 1)
    actual = ious(rotated, shape, scored, b)
    assert actual.any() and torch.equal(actual, ious(rotated, shape, a, b))
    assert torch.equal(ious(rotated, shape, b, scored), ious(rotated, shape, b, a))
    expected = ious(compiled_operators(), shape, scored, b)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


@both
def test_of_equal_scores_the_first_is_the_highest(shape: str) -> None:
    far = torch.tensor([300.0, 300, 0, 0, 0]) * torch.arange(100)[:, None]
    a = (boxes(1, 0) + far).repeat_interleave(2, 0)
    a = a if shape == 'rotated' else corners(a).float()
    kept = nms(rotated, shape, a, torch.full((200,), 0.5), 0.5)
    assert kept.tolist() == list(range(0, 200, 2))


@both
def test_nan_suppresses_nothing(shape: str) -> None:
    a, scores = crowd(shape, 300)
    a = a.clone()
    a[::5, 2] = math.nan
    expected, actual = (
        nms(module, shape, a, scores, 0.3) for module in (compiled_operators(), rotated)
    )
    assert torch.equal(actual, expected)
    assert torch.isin(torch.arange(0, 300, 5), actual).all()


def differentiable_iou(a: Tensor, b: Tensor, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """mmcv's differentiable IoU [n] of pairs, with corners sorted in PyTorch."""
    diff_iou = pytest.importorskip('mmcv.ops.diff_iou_rotated', reason='no mmcv')
    monkeypatch.setattr(diff_iou, 'ext_module', rotated)
    return diff_iou.diff_iou_rotated_2d(a[None], b[None])[0]


def test_the_differentiable_iou_is_that_of_shapely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = (boxes(400, seed, size=60, dtype=torch.float64) for seed in (1, 2))
    expected = exact(a, b)
    assert (expected > 0.1).sum() > 50 and (expected == 0).sum() > 20
    actual = differentiable_iou(a, b, monkeypatch)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)
    same = differentiable_iou(a, a.clone(), monkeypatch)
    torch.testing.assert_close(same, torch.ones_like(same), rtol=0, atol=1e-6)


def test_the_gradient_of_the_differentiable_iou(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = (boxes(12, seed, size=10, dtype=torch.float64) for seed in (1, 2))
    torch.autograd.gradcheck(
        lambda x: differentiable_iou(x, b, monkeypatch),
        a.requires_grad_(),
        eps=1e-7,
        atol=1e-5,
    )
