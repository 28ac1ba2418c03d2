"""Measure implementations against each other: times, memory, tables, CSV.

The implementations of a comparison alternate within one loop, so that a slow phase of the machine
slows all of them; a ratio is the median of the ratios within the rounds. Some influences last as
long as the process, such as the place of its memory: rounds can be spread over several processes.
"""

from __future__ import annotations

import csv
import datetime
import os
import platform
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

import torch

from rope_dense.measure.speed import profiled
from rope_dense.utils.disk import atomic_write
from rope_dense.utils.process import peak_rss

Run = Callable[[], object]
Row = dict[str, object]
Result = TypeVar('Result')
OVERWRITTEN = [
    2**28,
    2**32,
]  # bytes: larger than any L2 cache; and for about a millisecond


@dataclass(frozen=True)
class Case:
    """One implementation of a job.

    Attributes:
        name: of the implementation.
        prepare: untimed; returns what is timed.
        columns: further columns of its row.
    """

    name: str
    prepare: Callable[[], Run]
    columns: Row = field(default_factory=dict)


class Clock:
    """Seconds of a call on a device.

    On a GPU they are those between two events on its stream, which is idle before, and whose L2
    cache is overwritten. Work that is launched slower than it runs counts at the speed of its
    launches. With ``hide_launches`` the GPU is busy for about a millisecond before, in which
    launches queue up: for calls of few kernels, of which only the kernels count.
    """

    def __init__(self, device: torch.device, hide_launches: bool = False) -> None:
        self.cache = None
        if device.type == 'cuda':
            self.cache = torch.empty(
                OVERWRITTEN[hide_launches], dtype=torch.uint8, device=device
            )

    def seconds(self, run: Run) -> float:
        if self.cache is None:
            started = time.perf_counter()
            run()
            return time.perf_counter() - started
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        self.cache.zero_()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1000


def compare(
    cases: Sequence[Case],
    device: torch.device,
    *,
    rounds: int,
    warmup: int = 1,
    hide_launches: bool = False,
) -> list[Row]:
    """Time the cases; a row for each, see ``summary``, with its columns."""
    clock = Clock(device, hide_launches)
    times = time_rounds(cases, clock, rounds=rounds, warmup=warmup)
    rows = summary([case.name for case in cases], times)
    return [row | case.columns for row, case in zip(rows, cases, strict=True)]


def time_rounds(
    cases: Sequence[Case], clock: Clock, *, rounds: int, warmup: int = 1
) -> list[list[float]]:
    """Seconds of each case in each round. The order is drawn anew for each round, since the time of
    a call may depend on the call before it."""
    for case in cases:
        for _ in range(warmup):
            clock.seconds(case.prepare())
    times: list[list[float]] = [[] for _ in cases]
    for _ in range(rounds):
        for index in random.sample(range(len(cases)), len(cases)):
            times[index].append(clock.seconds(cases[index].prepare()))
    return times


def summary(names: Sequence[str], times: Sequence[Sequence[float]]) -> list[Row]:
    """A row for each name: implementation, median_ms, p20_ms, p80_ms, and the same of its ratio to
    the first one."""
    return [
        dict(implementation=name)
        | quantiles('_ms', [1000 * value for value in seconds])
        | quantiles('_ratio', [a / b for a, b in zip(seconds, times[0], strict=True)])
        for name, seconds in zip(names, times, strict=True)
    ]


def in_new_process(function: Callable[..., Result], *arguments: object) -> Result:
    """The result of a call in a process that has done nothing else."""
    threads = torch.get_num_threads()
    with ProcessPoolExecutor(
        1, get_context('spawn'), initializer=torch.set_num_threads, initargs=(threads,)
    ) as pool:
        return pool.submit(function, *arguments).result()


def quantiles(unit: str, values: Sequence[float]) -> Row:
    """Median, 20 and 80 percentiles, their names ending on ``unit``."""
    shares = torch.tensor([0.5, 0.2, 0.8], dtype=torch.float64)
    results = torch.tensor(values, dtype=torch.float64).quantile(shares).tolist()
    names = ('median', 'p20', 'p80')
    return {f'{name}{unit}': value for name, value in zip(names, results, strict=True)}


def peak_memory(prepare: Callable[[], Run], device: torch.device) -> Row:
    """MB of one call.

    peak_tensors_mb: of the tensors that the call makes. peak_rss_mb: of the process since its
    start, on a CPU; so a process should measure one call.
    """
    on_gpu = device.type == 'cuda'
    if on_gpu:
        prepare()()  # what libraries allocate once
    row = dict(peak_tensors_mb=profiled(prepare(), on_gpu)[1] / 2**20)
    return row if on_gpu else dict(peak_rss_mb=peak_rss() / 2**20, **row)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix('torch.')


def environment(device: torch.device) -> Row:
    """Hardware, versions and threads of the figures, for every row of a CSV file."""
    on_gpu = device.type == 'cuda'
    return dict(
        device=torch.cuda.get_device_name() if on_gpu else processor(),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        commit=commit(),
        date=datetime.date.today().isoformat(),
    )


def clocks() -> Row:
    """What nvidia-smi says about the first GPU now, a column each; none without the command."""
    if shutil.which('nvidia-smi') is None:
        return {}
    names = 'clocks.sm', 'clocks.max.sm', 'clocks.mem', 'power.limit', 'temperature.gpu'
    names += ('driver_version',)
    command = [
        'nvidia-smi',
        '--id=0',
        f'--query-gpu={",".join(names)}',
        '--format=csv,noheader',
    ]
    answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return dict(zip(names, answer.strip().split(', '), strict=False))


def processor() -> str:
    """Name of the CPU and how many of its cores this process may use."""
    path = Path('/proc/cpuinfo')
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line for line in lines if line.startswith('model name')]
    name = names[0].split(':', 1)[1].strip() if names else platform.processor()
    return f'{name}, {len(os.sched_getaffinity(0))} cores'


def commit() -> str:
    """Of this repository; with a + if files differ from it. Where the files are a copy without
    their history, $BENCHMARK_COMMIT can name it."""
    if name := os.environ.get('BENCHMARK_COMMIT'):
        return name
    here = Path(__file__).parent
    asked = ('rev-parse', '--short', 'HEAD'), ('status', '--porcelain', '-uno')
    try:
        name, changes = (
            subprocess.run(
                ('git', *args), cwd=here, capture_output=True, text=True, check=True
            )
            for args in asked
        )
    except (OSError, subprocess.CalledProcessError):
        return 'unknown'
    return name.stdout.strip() + ('+' if changes.stdout.strip() else '')


def write_csv(file: Path, rows: Sequence[Row]) -> None:
    """Write all rows, with the columns of all; the file is complete or absent."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with atomic_write(file) as partial, partial.open('w', newline='') as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(
            {name: rounded(value) for name, value in row.items()} for row in rows
        )


def rounded(value: object) -> object:
    return f'{value:.5g}' if isinstance(value, float) else value


def table(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """The columns as aligned text; a dash where a row has no such value."""
    lines = [[name for name in columns]]
    for row in rows:
        values = (row.get(name) for name in columns)
        lines.append(
            ['-' if value is None else str(readable(value)) for value in values]
        )
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return '\n'.join(
        '  '.join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def readable(value: object) -> object:
    if not isinstance(value, float):
        return value
    return f'{value:.4g}' if value < 1000 else f'{value:.0f}'
