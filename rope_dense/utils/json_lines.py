"""Files of JSON lines, which grow while a process runs and may end with half a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def read_json_lines(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in a file, one a line, up to the first line that is not a whole one.

    A process that was killed may leave half a line, or zeros, at the end.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, 'rb') as file:
        for line in file:
            try:
                value = json.loads(line)
            except ValueError:
                return
            if not isinstance(value, dict):
                return
            yield value
