"""The peak of the memory of this process."""

import re
import resource
from pathlib import Path

STATUS = Path('/proc/self/status')


def peak_rss() -> int:
    """Return the bytes that were resident at once, at most so far.

    ``ru_maxrss``, the fallback without /proc, starts at the parent's value.
    """
    if STATUS.exists() and (match := re.search(r'VmHWM:\s+(\d+) kB', STATUS.read_text())):
        return int(match[1]) * 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10
