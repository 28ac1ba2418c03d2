"""Arguments, checked."""

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import NoReturn, TypeGuard


def refuse(name: str, value: object, allowed: str) -> NoReturn:
    """Raise the ValueError."""
    raise ValueError(f'{name} must be {allowed}, got {value!r}')


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite real number; True and False are none."""
    is_real = isinstance(value, Real) and not isinstance(value, bool)
    return is_real and math.isfinite(value)  # type: ignore[arg-type]


def checked_integer(
    name: str, value: object, least: int, most: int | None = None
) -> int:
    """An integer from ``least`` to ``most``."""
    limit = 'up' if most is None else f'to {most}'
    if not is_integer(value) or value < least or (most is not None and value > most):
        refuse(name, value, f'an integer from {least} {limit}')
    return int(value)


def checked_number(
    name: str,
    value: object,
    least: float = -math.inf,
    *,
    above: float = -math.inf,
    below: float = math.inf,
) -> float:
    """A finite number of at least ``least``, more than ``above`` and less than ``below``."""
    if is_number(value) and least <= value and above < value < below:
        return value
    allowed = 'a finite number'
    if math.isfinite(least):
        allowed += f', {least} or more'
    if math.isfinite(above):
        allowed += f', more than {above}'
    if math.isfinite(below):
        allowed += f', less than {below}'
    refuse(name, value, allowed)


def check_choice(name: str, value: object, allowed: Sequence[object]) -> None:
    """One of ``allowed``; True does not count as 1."""
    if not any(type(value) is type(choice) and value == choice for choice in allowed):
        refuse(name, value, f'one of {tuple(allowed)}')


def checked_size(name: str, value: object, least: int = 1) -> tuple[int, int]:
    """(height, width) from an integer or two of them."""
    sides = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(sides) != 2 or not all(is_integer(side) and side >= least for side in sides):
        allowed = f'an integer from {least} up, or two of them (height, width)'
        refuse(name, value, allowed)
    return int(sides[0]), int(sides[1])


def checked_indexes(name: str, value: object, length: int) -> list[int]:
    """Indexes into ``length`` things, sorted; negative ones are counted from the end."""
    given = value if isinstance(value, (tuple, list, range, set)) else None
    if given is None or not all(is_integer(i) and -length <= i < length for i in given):
        refuse(name, value, f'a sequence of integers from {-length} to {length - 1}')
    return sorted({int(index) % length for index in given})


def checked_settings(name: str, value: object, allowed: Sequence[str]) -> dict:
    """A dict whose keys are among ``allowed``."""
    if not isinstance(value, dict):
        refuse(name, value, 'a dict or None')
    unknown = sorted(set(value) - set(allowed))
    if unknown:
        raise ValueError(f'{name} has {unknown}, allowed are {list(allowed)}')
    return value


SIDES = re.compile(r'0*([1-9]\d*)(?:x0*([1-9]\d*))?')


def parse_size(text: str) -> int | tuple[int, int]:
    """'128', the shorter side, or '96x128', height and width; ValueError for anything else."""
    match = SIDES.fullmatch(text)
    if match is None:
        raise ValueError(
            f'size {text!r}: give a side (128) or HEIGHTxWIDTH (96x128), 1 or more'
        )
    height, width = match.groups()
    return int(height) if width is None else (int(height), int(width))


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """The end of a message: '; did you mean NAME?', or '' if no name is like the given one."""
    found = difflib.get_close_matches(given, list(allowed), n=1)
    return f'; did you mean {found[0]}?' if found else ''
