"""Files of JSON, and of JSON lines, which grow while a process runs and may end within a line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_json_lines(path: str | Path, strict: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file, one a line, up to the first line that is not a whole one.

    A process that was killed may leave half a line, or zeros, at the end.

    Args:
        strict: raise an error in place of stopping there.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is not whole, and ``strict``.
    """
    with open(path, 'rb') as file:
        for number, line in enumerate(file, start=1):
            value = object_in(line)
            if value is None and strict:
                raise ValueError(f'{path}: line {number} is no object of JSON')
            if value is None:
                return
            yield value


def object_in(line: bytes) -> dict[str, Any] | None:
    """The object of JSON that a line is; None if it is none."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def read_json_or_empty(path: Path) -> dict[str, Any]:
    """The content of a JSON file that was written here; {} if it is not there, or is broken."""
    try:
        content = json.loads(path.read_text(encoding='utf-8'))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
