"""The error that ends a command with a one-line message, and other errors in one line."""

from collections.abc import Iterator
from contextlib import contextmanager


def message_of(error: Exception) -> str:
    """The message of an error in one line, with its kind unless it is a ValueError."""
    text = ' '.join(str(error).split())
    is_plain = isinstance(error, ValueError) and text
    return text if is_plain else f'{type(error).__name__}: {text}'


class UsageError(Exception):
    """A wrong setting, path or file: the message says which, and what is allowed."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Within this context, a ValueError becomes a UsageError."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error
