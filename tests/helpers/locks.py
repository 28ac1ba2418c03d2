"""A process that holds a lock."""

import subprocess
import sys
from pathlib import Path

from rope_dense.utils import lock

HOLD = """
import os, runpy, sys, time
exclusive = runpy.run_path(sys.argv[1])['exclusive']  # without the packages, which take seconds
with exclusive(sys.argv[2], file=sys.argv[4] or None):
    print('held', flush=True)
    for _ in range(int(sys.argv[3])):
        if not os.fork():
            print(os.getpid(), flush=True)
            time.sleep(60)
            os._exit(0)
    sys.stdin.read()
"""


def hold(path: Path, children: int = 0, file: str | Path = '') -> subprocess.Popen:
    """Start a process that holds a lock until its input ends, and prints the ids of children."""
    command = [
        sys.executable,
        '-c',
        HOLD,
        lock.__file__,
        str(path),
        str(children),
        str(file),
    ]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == 'held\n'
    return process
