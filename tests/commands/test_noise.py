"""What a command leaves out of its output, and what it does not."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import argparse, logging, sys, warnings
from rope_dense.commands.run import run
def main(args):
    from mmengine.logging import print_log
    print_log('Could not import OneDL', level=logging.DEBUG)
    print_log('a message', level=logging.INFO)
    warnings.warn('Default ``avg_non_ignore`` is False, if you')
    warnings.warn('another warning')
sys.exit(run(main, argparse.Namespace(debug=False)))
"""


def test_messages_for_debugging_and_of_other_packages_are_left_out() -> None:
    done = subprocess.run(
        [sys.executable, '-c', PROGRAM], capture_output=True, text=True
    )
    assert done.returncode == 0 and 'a message' in done.stdout
    assert 'OneDL' not in done.stdout and 'another warning' in done.stderr
    assert 'avg_non_ignore' not in done.stderr
