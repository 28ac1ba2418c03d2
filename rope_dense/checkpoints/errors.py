"""The error of this package, and keys as its messages list them."""

import re
from collections import defaultdict
from collections.abc import Iterable

MAX_KEYS = 20  # of a list in a message
MAX_LENGTH = 200  # characters of a key in a message
AGAIN = 'get it again'  # advice for a damaged file


class CheckpointError(ValueError):
    """A checkpoint that cannot be fetched, read or used; the message says why and what to do."""


def keys_text(keys: Iterable[object], most: int = MAX_KEYS) -> str:
    """Keys for a message, at most ``most`` groups and ``MAX_LENGTH`` characters of each.

    Keys that differ only in numbers between dots are one group.
    """
    groups = defaultdict(list)
    for key in keys:
        groups[re.sub(r'(?<=\.)\d+(?=\.)', '*', short_key(key))].append(short_key(key))
    names = [
        members[0] if len(members) == 1 else f'{group} ({len(members)} times)'
        for group, members in groups.items()
    ]
    rest = sum(len(members) for members in list(groups.values())[most:])
    return ', '.join(names[:most]) + (f' and {rest:,} more' if rest else '')


def short_key(key: object) -> str:
    """A key with ``MAX_LENGTH`` characters at most; of a key that is no string, its type."""
    if not isinstance(key, str):
        return f'{key}' if isinstance(key, (int, float)) else f'a {type(key).__name__}'
    return key if len(key) <= MAX_LENGTH else f'{key[:MAX_LENGTH]}...'
