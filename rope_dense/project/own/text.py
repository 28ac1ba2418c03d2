"""Settings as Python values or as text of a command line, read by the type of their field."""

import math
import os
import re
from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import msgspec
import yaml

WORDS: dict[Any, str] = {
    str: 'text',
    int: 'an integer',
    float: 'a number',
    bool: 'True or False',
    NoneType: 'None',
    Sequence[str]: "a list such as [cat, 'red, large']",
    Sequence[int]: 'a list such as [0, 1]',
    Sequence[float]: 'a list such as [0.5, 2]',
    Sequence[int | str]: "a list such as [0, 1, cat, 'red, large']",
}


class Text(str):
    """A setting as it is written on the command line."""


def read_setting(name: str, given: object, kind: Any) -> Any:
    """A setting as plain Python, of the type of its field: ``kind``.

    Paths and NumPy's values become Python's, and a ``Text`` is read; nothing else is coerced.
    ValueError for another type, an empty text or a number that is not finite.
    """
    is_text = isinstance(given, Text)
    try:
        read = parse_text(str(given), kind) if is_text else plain_value(given)
        value = msgspec.convert(read, kind, strict=not is_text)
        valid = True
        for item in value if isinstance(value, list) else [value]:
            valid &= math.isfinite(item) if isinstance(item, float) else item != ''
    except (ValueError, TypeError, RecursionError, yaml.YAMLError):
        valid = False
    if not valid:
        words = ' or '.join(WORDS[part] for part in alternatives(kind))
        said = str(given) if is_text else given
        raise ValueError(f'own.{name} must be {words}, got {said!r}')
    return value


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def plain_value(value: object) -> object:
    """Paths as text, and numbers and arrays of NumPy as Python's, also in lists."""
    import numpy as np  # not for --help

    if isinstance(value, (set, frozenset)):
        raise TypeError('a set has no order')  # msgspec would make a list of it
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return list(map(plain_value, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def parse_text(text: str, kind: Any) -> object:
    """The value of a text, for ``msgspec.convert``; docs/own_data.md has the rules.

    A field of text takes the text as it is. A list is `[a, 'b, c']`, its brackets may be left out
    where the field takes no single text.
    """
    kinds = alternatives(kind)
    word = text.strip()
    lists = [part for part in kinds if get_origin(part) is Sequence]
    if word == 'None' and NoneType in kinds:
        return None
    if str in kinds and not (lists and word.startswith('[')):
        return text
    value = number_or_text(word, kinds)
    if not lists or isinstance(value, int):
        return value
    if not word.startswith('['):
        word = f'[{word}]'
    node = yaml.compose(word, Loader=yaml.BaseLoader)
    allowed = alternatives(*get_args(lists[0]))
    found = []
    for item in node.value if isinstance(node, yaml.SequenceNode) else [node]:
        if not isinstance(item, yaml.ScalarNode):
            raise TypeError('no list of names or numbers')
        is_quoted = item.style is not None
        found.append(item.value if is_quoted else number_or_text(item.value, allowed))
    return found


def number_or_text(text: str, kinds: Sequence[Any]) -> str | int | float:
    """The number that a text is, if ``kinds`` has its type; else the text."""
    if int in kinds and re.fullmatch(r'[+-]?\d+', text):
        return int(text)
    try:
        return float(text) if float in kinds else text
    except ValueError:
        return text
