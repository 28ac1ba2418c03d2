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
    for key in map(short_key, keys):
        groups[re.sub(r'(?<=\.)\d+(?=\.)', '*', key)].append(key)
    names: list[str] = []
    rest = 0
    for group, members in groups.items():
        if len(names) == most:
            rest += len(members)
        else:
            is_one = len(members) == 1
            names.append(members[0] if is_one else f'{group} ({len(members)} times)')
    text = ', '.join(names)
    return f'{text} and {rest:,} more' if rest else text


def short_key(key: object) -> str:
    """A key with ``MAX_LENGTH`` characters at most; of a key that is no string, its type."""
    if not isinstance(key, str):
        return f'{key}' if isinstance(key, (int, float)) else f'a {type(key).__name__}'
    return key if len(key) <= MAX_LENGTH else f'{key[:MAX_LENGTH]}...'
