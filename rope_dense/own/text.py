"""Settings as text of a command line, read by the type of their field."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import yaml

from ..utils.validation import is_integer, is_number

WHOLE = re.compile(r'[+-]?\d+')
WORDS = {
    str: 'text',
    int: 'an integer',
    float: 'a number',
    bool: 'True or False',
    NoneType: 'None',
}
EXAMPLES = {str: "cat, 'red, large'", int: '0, 1', float: '0.5, 2'}
FITS: dict[Any, Callable[[object], bool]] = {
    str: lambda value: isinstance(value, str) and bool(value),
    int: is_integer,
    float: is_number,
    bool: lambda value: isinstance(value, bool),
    NoneType: lambda value: value is None,
}


class Text(str):
    """A setting as it is written on the command line."""


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the one type."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def described(kind: Any) -> str:
    """A type in words: 'text or None', 'a list such as [0, 1]'."""
    if get_origin(kind) is Sequence:
        parts = alternatives(*get_args(kind))
        return f'a list such as [{", ".join(EXAMPLES[part] for part in parts)}]'
    return ' or '.join(
        described(part) if get_origin(part) is Sequence else WORDS[part]
        for part in alternatives(kind)
    )


def fits(value: object, kind: Any) -> bool:
    """Return whether a value is of a type."""
    if get_origin(kind) is Sequence:
        (item,) = get_args(kind)
        return isinstance(value, (list, tuple)) and all(fits(part, item) for part in value)
    parts = alternatives(kind)
    return FITS[kind](value) if len(parts) == 1 else any(fits(value, part) for part in parts)


def read_text(text: str, kind: Any) -> Any:
    """The value that a text means for a field of a type.

    For text it is the text as it is, spaces and commas included. A list is `[a, b]`, where a
    comma within an item needs quotes around it; brackets may be left out where the field takes
    lists only. `None` is None where the field may be None.

    Raises:
        ValueError: it means none.
    """
    parts = alternatives(kind)
    if NoneType in parts and text.strip() == 'None':
        return None
    if int in parts and WHOLE.fullmatch(text.strip()):
        return int(text)
    lists = [part for part in parts if get_origin(part) is Sequence]
    if lists and (str not in parts or text.lstrip().startswith('[')):
        return read_list(text, alternatives(*get_args(lists[0])))
    if str in parts:
        return str(text)
    for part, read in ((bool, read_bool), (int, int), (float, float)):
        if part in parts:
            return read(text)
    raise ValueError(f'no text is {described(kind)}')


def read_bool(text: str) -> bool:
    """True or False from 'True', 'true', 'False', 'false'."""
    if (word := text.strip().lower()) not in ('true', 'false'):
        raise ValueError(f'{text!r} is neither')
    return word == 'true'


def read_list(text: str, kinds: Sequence[Any]) -> list[Any]:
    """The items of `[a, 'b c', 3]`: text as it is written, or numbers if ``kinds`` has them.

    Raises:
        ValueError: no such list, or an item is none of the kinds.
    """
    bracketed = text if text.lstrip().startswith('[') else f'[{text}]'
    try:
        node = yaml.compose(bracketed, Loader=yaml.BaseLoader)  # items stay text: yes, 1.10
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    items = node.value if isinstance(node, yaml.SequenceNode) else [None]
    if not all(isinstance(item, yaml.ScalarNode) for item in items):
        raise ValueError('no list of names')
    return [read_item(item, kinds) for item in items]


def read_item(item: yaml.ScalarNode, kinds: Sequence[Any]) -> str | int | float:
    """An item of a list: a number if it may be one and is not in quotes, else its text."""
    if float in kinds:
        return float(item.value)
    if int in kinds and item.style is None and WHOLE.fullmatch(item.value):
        return int(item.value)
    if str not in kinds or not item.value:
        raise ValueError(f'{item.value!r} is no item of the list')
    return str(item.value)
