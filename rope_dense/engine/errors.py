"""Errors of a run, and their messages."""


class RunError(Exception):
    """A training that would not be the one of its config; the message says what to do."""


def message_of(error: Exception) -> str:
    """The message of an error in one line, with its kind unless it is a ValueError."""
    text = ' '.join(str(error).split())
    is_plain = isinstance(error, ValueError) and text
    return text if is_plain else f'{type(error).__name__}: {text}'
