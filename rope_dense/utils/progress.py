"""Progress on standard error: one line that is overwritten on a terminal, lines of text in a log.

It appears after 0.2 seconds on a terminal and after 10 in a log, and changes as often.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from threading import Event, Thread
from typing import TypeVar

from tqdm import tqdm

T = TypeVar('T')


def is_first_here() -> bool:
    """Return whether this is the first process of a run on this machine, which alone speaks."""
    return os.environ.get('LOCAL_RANK', '0') == '0'


def progress(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """The items (``total`` if they have no length), while number and time left are shown."""
    return iter(bar(title, total, items))


def bar(title: str, total: int | None = None, items: Iterable | None = None) -> tqdm:
    """Progress, as a context, of a loop that says by ``update(n)`` that ``n`` more are done."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    settings = dict(
        desc=title,
        total=total,
        miniters=0,
        leave=False,
        disable=not is_first_here(),  # another process shows it
    )
    if sys.stderr.isatty():
        return tqdm(items, **settings, mininterval=0.2, delay=0.2)
    text = '{desc}: {n_fmt}, {elapsed_s:.0f} s'
    if total:
        text = '{desc}: {n_fmt} of {total_fmt}, {remaining_s:.0f} s left'
    log = LogStream()
    return tqdm(items, **settings, mininterval=10, delay=10, bar_format=text, file=log)


@contextmanager
def show_elapsed(step: str, seconds: float | None = None) -> Iterator[None]:
    """Show the step and its time, each ``seconds``: by default 1 on a terminal and 10 in a log."""
    done = Event()
    if not seconds:
        seconds = 1.0 if sys.stderr.isatty() else 10.0

    def tick() -> None:
        while not done.wait(seconds):
            line.refresh()

    with bar(step) as line:
        line.bar_format = '{desc}: {elapsed_s:.0f} s'
        line.delay = 0  # so that it is cleared at the end
        thread = Thread(target=tick, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


class LogStream:
    """Standard error as a log: what tqdm would overwrite is a line of its own."""

    def write(self, text: str) -> None:
        """Print a line, unless it is empty."""
        line = text.strip()
        if line:
            print(line, file=sys.stderr, flush=True)

    def flush(self) -> None:
        """A line has been written when ``write`` returns."""
