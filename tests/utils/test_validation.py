"""Each check: what it accepts and in which form, and what it refuses with which message."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from rope_dense.utils.validation import (
    check_choice,
    checked_indexes,
    checked_integer,
    checked_number,
    checked_settings,
    checked_size,
    is_integer,
    refuse,
)


def refusal(
    check: Callable[..., object], *arguments: object, **keywords: object
) -> str:
    with pytest.raises(ValueError) as caught:
        check('argument', *arguments, **keywords)
    return str(caught.value)


def test_a_refusal_names_the_argument_what_is_allowed_and_what_was_given():
    message = refusal(refuse, 'sixteen', 'a number of tokens')
    assert message == "argument must be a number of tokens, got 'sixteen'"


@pytest.mark.parametrize('value', [0, 5, -3, np.int64(2)])
def test_integers(value: object):
    assert is_integer(value)


@pytest.mark.parametrize('value', [1.0, '1', True, None, np.float64(1), np.bool_(True)])
def test_no_integers(value: object):
    assert not is_integer(value)


def test_checked_integer_accepts_a_range():
    assert [checked_integer('argument', value, 1, 3) for value in (1, 2, 3)] == [
        1,
        2,
        3,
    ]
    assert checked_integer('argument', 10**9, 0) == 10**9
    assert type(checked_integer('argument', np.int64(2), 0)) is int


@pytest.mark.parametrize('value', [0, 4, 2.0, '2', True, None, [2], math.nan, math.inf])
def test_checked_integer_refuses(value: object):
    expected = f'argument must be an integer from 1 to 3, got {value!r}'
    assert refusal(checked_integer, value, 1, 3) == expected


def test_checked_integer_without_an_upper_bound():
    assert (
        refusal(checked_integer, -1, 0)
        == 'argument must be an integer from 0 up, got -1'
    )


@pytest.mark.parametrize('value', [0, 0.25, 1.5, np.float32(0.5), np.int64(1)])
def test_checked_number_accepts(value: object):
    assert checked_number('argument', value, 0, below=2) is value


@pytest.mark.parametrize(
    'value', [-0.1, 2, math.nan, math.inf, -math.inf, True, '1', None, 1j, [1.0]]
)
def test_checked_number_refuses(value: object):
    expected = (
        f'argument must be a finite number, 0 or more, less than 2, got {value!r}'
    )
    assert refusal(checked_number, value, 0, below=2) == expected


def test_checked_number_with_other_bounds():
    assert checked_number('argument', -1e30) == -1e30
    assert (
        refusal(checked_number, math.nan) == 'argument must be a finite number, got nan'
    )
    expected = 'argument must be a finite number, more than 1, got 1'
    assert refusal(checked_number, 1, above=1) == expected


def test_check_choice_accepts():
    check_choice('argument', 'qv', (True, False, 'qv'))
    check_choice('argument', True, (True, False, 'qv'))


@pytest.mark.parametrize('value', ['q', 1, 0, None, 1.0, ['qv'], np.ones(3)])
def test_check_choice_refuses(value: object):
    message = refusal(check_choice, value, (True, False, 'qv'))
    assert message == f"argument must be one of (True, False, 'qv'), got {value!r}"


@pytest.mark.parametrize('value', [(4, 6), [4, 6], (np.int64(4), 6)])
def test_checked_size_accepts_pairs(value: object):
    size = checked_size('argument', value)
    assert size == (4, 6) and all(type(side) is int for side in size)


def test_checked_size_makes_a_number_square():
    assert checked_size('argument', 7) == (7, 7)
    assert checked_size('argument', 16, least=16) == (16, 16)


@pytest.mark.parametrize(
    'value',
    [0, -1, 2.0, True, '7', None, (4,), (4, 6, 8), (4, 0), (4, 2.5), (4, True), {4, 6}],
)
def test_checked_size_refuses(value: object):
    allowed = 'an integer from 1 up, or two of them (height, width)'
    expected = f'argument must be {allowed}, got {value!r}'
    assert refusal(checked_size, value) == expected


@pytest.mark.parametrize(
    'value, indexes',
    [
        ((), []),
        ([0, 2], [0, 2]),
        ((-1, 0), [0, 3]),
        ({3, 1}, [1, 3]),
        (range(4), [0, 1, 2, 3]),
        ((3, -1, 3), [3]),
        ((np.int64(1),), [1]),
    ],
)
def test_checked_indexes_accepts(value: object, indexes: list[int]):
    found = checked_indexes('argument', value, 4)
    assert found == indexes and all(type(index) is int for index in found)


@pytest.mark.parametrize(
    'value', [3, None, '01', (4,), (-5,), (1.0,), (True,), dict(a=1)]
)
def test_checked_indexes_refuses(value: object):
    expected = f'argument must be a sequence of integers from -4 to 3, got {value!r}'
    assert refusal(checked_indexes, value, 4) == expected


def test_checked_settings():
    settings = dict(a=1, b=2)
    assert checked_settings('argument', settings, ['a', 'b', 'c']) is settings
    assert (
        refusal(checked_settings, ['a'], ['a'])
        == "argument must be a dict or None, got ['a']"
    )
    message = refusal(checked_settings, dict(a=1, z=2, y=3), ['a', 'b'])
    assert message == "argument has ['y', 'z'], allowed are ['a', 'b']"
