"""A process that holds a lock."""

import subprocess
import sys
from pathlib import Path

from rope_dense.utils import lock

HOLD = """
import runpy, sys
exclusive = runpy.run_path(sys.argv[1])['exclusive']  # without the packages, which take seconds
with exclusive(sys.argv[2]):
    print('held', flush=True)
    sys.stdin.read()
"""


def hold(path: Path) -> subprocess.Popen:
    """Start a process that holds a lock until its input ends."""
    command = [sys.executable, '-c', HOLD, lock.__file__, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == 'held\n'
    return process
