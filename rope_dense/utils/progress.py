"""Progress messages during a step that prints nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

SECONDS = 10.0


@contextmanager
def alive(step: str, seconds: float = SECONDS) -> Iterator[None]:
    """Within this context, print the step and its time on standard error every 10 seconds."""
    done, started = Event(), time.monotonic()

    def report() -> None:
        while not done.wait(seconds):
            print(f'{step}: {time.monotonic() - started:.0f} s', file=sys.stderr, flush=True)

    thread = Thread(target=report, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
