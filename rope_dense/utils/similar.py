"""Names that a user may have meant."""

import difflib
from collections.abc import Iterable


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """The end of a message: '; did you mean NAME?', or '' if no name is like the given one."""
    found = difflib.get_close_matches(given, [*allowed], n=1)
    return f'; did you mean {found[0]}?' if found else ''
