"""Errors in one line."""


def message_of(error: Exception) -> str:
    """The message of an error in one line, with its kind unless it is a ValueError."""
    text = ' '.join(str(error).split())
    is_plain = isinstance(error, ValueError) and text
    return text if is_plain else f'{type(error).__name__}: {text}'
