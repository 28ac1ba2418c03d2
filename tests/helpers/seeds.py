"""Seeds of tests with random cases, and the time that they take."""

import os
import time
from collections.abc import Iterator
from datetime import date
from itertools import count

VARIABLE = 'ROPE_DENSE_FUZZ_SEED'
SECONDS = 'ROPE_DENSE_FUZZ_SECONDS'


def seed_of_the_week() -> int:
    """Year and week, such as 202648, or what the environment variable says; it is printed."""
    year, week, _ = date.today().isocalendar()
    seed = int(os.environ.get(VARIABLE, 100 * year + week))
    print(f'{VARIABLE}={seed}')
    return seed


def seeds_of_the_week() -> Iterator[int]:
    """A seed for each random case, until the seconds of the environment variable are over (5).

    It is the time that this process computes, so that a busy machine has as many cases.
    """
    first, end = (
        1000 * seed_of_the_week(),
        time.process_time() + float(os.environ.get(SECONDS, 5)),
    )
    for number in count():
        yield first + number
        if time.process_time() > end:
            return
