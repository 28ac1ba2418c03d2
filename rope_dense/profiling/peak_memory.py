"""The peak of the memory of this process."""

from __future__ import annotations

import re
import resource
from pathlib import Path

STATUS = Path('/proc/self/status')


def peak_rss() -> int:
    """Bytes that were resident at once, so far. (``ru_maxrss`` would be that of the parent, if it
    was larger; it is what there is without /proc.)"""
    if STATUS.exists() and (match := re.search(r'VmHWM:\s+(\d+) kB', STATUS.read_text())):
        return int(match[1]) * 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10
