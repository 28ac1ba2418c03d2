"""The error that ends a command with one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class UsageError(Exception):
    """A wrong setting, path or file: the message says which, and what is allowed."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Within this context, a ValueError becomes a UsageError."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def nearest(name: str, allowed: Iterable[str]) -> str:
    """', did you mean X?' for the closest allowed name, else an empty string."""
    close = difflib.get_close_matches(name, list(allowed), n=1)
    return f', did you mean {close[0]!r}?' if close else ''
