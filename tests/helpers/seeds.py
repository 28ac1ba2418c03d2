"""Seeds of tests with random cases."""

import os
from datetime import date

VARIABLE = 'ROPE_DENSE_FUZZ_SEED'


def seed_of_the_week() -> int:
    """Year and week, such as 202648, or what the environment variable says; it is printed."""
    year, week, _ = date.today().isocalendar()
    seed = int(os.environ.get(VARIABLE, 100 * year + week))
    print(f'{VARIABLE}={seed}')
    return seed
