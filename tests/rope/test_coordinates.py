"""Positions of the tokens of a grid, and their augmentation."""

import math

import pytest
import torch
from torch import Tensor

from rope_dense.rope import AxialRoPE, Coordinates
from rope_dense.rope.grid import build_coordinates

CPU = torch.device('cpu')


@pytest.mark.parametrize(
    'settings, x, y',
    [
        (dict(), [0, 1, 2, 3], [0, 1]),
        (dict(offset=1.0), [1, 2, 3, 4], [1, 2]),
        (dict(reference=8), [0, 2, 4, 6], [0, 4]),
        (dict(offset=1.0, reference=(2, 8)), [2, 4, 6, 8], [1, 2]),
        (dict(type='centres'), [-0.75, -0.25, 0.25, 0.75], [-0.5, 0.5]),
        (
            dict(type='centres', normalize='max'),
            [-0.75, -0.25, 0.25, 0.75],
            [-0.75, -0.25],
        ),
        (dict(type='centres', normalize='min'), [-0.5, 0.5, 1.5, 2.5], [-0.5, 0.5]),
        (dict(type='corners'), [-1, -1 / 3, 1 / 3, 1], [-1, 1]),
        (dict(type='corners', normalize='max'), [-1, -1 / 3, 1 / 3, 1], [-1, -1 / 3]),
    ],
)
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_positions_of_a_small_grid(
    settings: dict, x: list[float], y: list[float], dtype: torch.dtype
):
    actual = Coordinates(**settings).positions(2, 4, device=CPU, dtype=dtype)
    expected = torch.tensor([(column, row) for row in y for column in x], dtype=dtype)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize('type', ['index', 'centres', 'corners'])
def test_x_is_the_column_and_y_the_row(type: str):
    x, y = Coordinates(type).positions(3, 5, device=CPU).unflatten(0, (3, 5)).unbind(-1)
    assert (x.diff(dim=1) > 0).all() and not x.diff(dim=0).any()
    assert (y.diff(dim=0) > 0).all() and not y.diff(dim=1).any()


@pytest.mark.parametrize(
    'settings',
    [
        dict(),
        dict(offset=0.5),
        dict(reference=7),
        *(dict(type=t) for t in ('centres', 'corners')),
    ],
)
def test_a_transposed_grid_swaps_the_axes(settings: dict):
    coordinates = Coordinates(**settings)
    wide = coordinates.positions(3, 5, device=CPU).unflatten(0, (3, 5))
    high = coordinates.positions(5, 3, device=CPU).unflatten(0, (5, 3))
    assert torch.equal(high.transpose(0, 1).flip(-1), wide)


@pytest.mark.parametrize('type', ['centres', 'corners'])
def test_positions_in_the_unit_square_are_symmetric(type: str):
    for grid in ((2, 6), (4, 3)):
        positions = Coordinates(type).positions(*grid, device=CPU)
        torch.testing.assert_close(positions.flip(0), -positions)
        assert positions.abs().max() <= 1


def test_one_row_has_a_position():
    positions = Coordinates('corners').positions(1, 3, device=CPU)
    assert positions.tolist() == [[-1, -1], [0, -1], [1, -1]]


@pytest.mark.parametrize(
    'settings',
    [
        dict(reference=7),
        *(dict(type=t, normalize='max') for t in ('centres', 'corners')),
    ],
)
def test_part_of_a_grid_has_the_positions_of_its_tokens(settings: dict):
    coordinates = Coordinates(**settings)
    whole = coordinates.positions(5, 8, device=CPU).unflatten(0, (5, 8))
    part = coordinates.positions(3, 4, grid=(5, 8), device=CPU).unflatten(0, (3, 4))
    assert torch.equal(part, whole[:3, :4])


def test_what_is_normalized():
    fitting = [dict(reference=16), dict(type='centres'), dict(type='corners')]
    assert all(Coordinates(**settings).is_normalized for settings in fitting)
    assert not Coordinates(offset=1.0).is_normalized


# ---------------------------------------------------------------- augmentation


def test_augmentation_is_uniform_and_log_uniform_within_its_bounds():
    def draws(**settings: float) -> Tensor:
        """Positions [1000, 4] of two columns and two rows; unaugmented they are 1 and 2."""
        coordinates = Coordinates(offset=1.0, **settings)
        positions = coordinates.positions(2, 2, device=CPU)
        corners = [
            coordinates.augmented(positions)[[0, 3]].T.flatten() for _ in range(1000)
        ]
        return torch.stack(corners)

    def check_uniform(samples: Tensor, bound: float) -> None:
        assert samples.abs().max() <= bound * (1 + 1e-5)
        for quarter in (
            -0.5,
            0.0,
            0.5,
        ):  # the share below; three standard errors are 0.048
            share = (samples < quarter * bound).float().mean()
            assert float(share) == pytest.approx((quarter + 1) / 2, abs=0.05)

    def correlation(a: Tensor, b: Tensor) -> float:
        return float(torch.corrcoef(torch.stack([a, b]))[0, 1])

    shifted = draws(shift=0.5) - torch.tensor([1.0, 2.0, 1.0, 2.0])
    torch.testing.assert_close(shifted[:, 0], shifted[:, 1])
    check_uniform(shifted[:, 0], 0.5), check_uniform(shifted[:, 2], 0.5)
    assert abs(correlation(shifted[:, 0], shifted[:, 2])) < 0.1

    jittered = draws(jitter=3.0).log()[:, ::2]
    (
        check_uniform(jittered[:, 0], math.log(3)),
        check_uniform(jittered[:, 1], math.log(3)),
    )
    assert abs(correlation(*jittered.T)) < 0.1

    rescaled = draws(rescale=2.0).log()[:, ::2]
    check_uniform(rescaled[:, 0], math.log(2))
    torch.testing.assert_close(rescaled[:, 0], rescaled[:, 1])


def test_without_augmentation_nothing_is_drawn():
    coordinates = Coordinates('centres')
    assert not coordinates.random and Coordinates(shift=0.0).random
    state = torch.get_rng_state()
    positions = coordinates.positions(2, 3, device=CPU)
    assert coordinates.augmented(positions) is positions
    assert torch.equal(torch.get_rng_state(), state)


# ---------------------------------------------------------------- settings


def test_settings_have_a_final_form():
    assert build_coordinates(None) == Coordinates()
    assert build_coordinates(dict(reference=16)) == Coordinates(reference=(16, 16))
    assert hash(Coordinates(reference=[4, 6])) == hash(Coordinates(reference=(4, 6)))


@pytest.mark.parametrize(
    'settings, message',
    [
        (dict(type='pixel'), "type must be one of .*'centres'.* got 'pixel'"),
        (
            dict(type='centres', normalize='mean'),
            "normalize must be one of .* got 'mean'",
        ),
        (
            dict(normalize='min'),
            "normalize='min' belongs to types 'centres' and 'corners', got 'index'",
        ),
        (dict(type='corners', offset=1.0), "belong to type 'index', got 'corners'"),
        (dict(type='centres', reference=16), "belong to type 'index', got 'centres'"),
        (dict(offset=float('nan')), 'offset must be a finite number, got nan'),
        (dict(offset='1'), "offset must be a finite number, got '1'"),
        (dict(reference=0), 'reference must be an integer from 1 up, .* got 0'),
        (dict(reference=True), 'reference must be .* got True'),
        (dict(reference=(16, 16, 16)), r'reference must be .* got \(16, 16, 16\)'),
        (dict(shift=-1.0), 'shift must be a finite number, 0 or more, got -1.0'),
        (dict(jitter=0.5), 'jitter must be a finite number, 1 or more, got 0.5'),
        (
            dict(rescale=float('nan')),
            'rescale must be a finite number, 1 or more, got nan',
        ),
        (dict(rescale=float('inf')), 'rescale must be .* got inf'),
        (dict(scale=2.0), r"has \['scale'\], allowed are .*'rescale'"),
        ('centres', "must be a dict or None, got 'centres'"),
    ],
)
def test_bad_settings_are_named(settings: object, message: str):
    with pytest.raises(ValueError, match=f'coordinates.*{message}'):
        AxialRoPE(8, 2, coordinates=settings)
