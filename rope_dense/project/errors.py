"""The error that ends a command with a one-line message."""

from collections.abc import Iterator
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
