"""The command lines of the pages, as a shell reads them."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path
    for pattern in ('*.md', 'docs/**/*.md', 'configs/**/*.md', 'benchmarks/**/*.md')
    for path in ROOT.glob(pattern)
)
every_page = pytest.mark.parametrize(
    'page', PAGES, ids=lambda page: str(page.relative_to(ROOT))
)
# No program is on the path, so the shell calls the handler with the words of each command: after
# it has read loops, functions, variables, pipes and comments.
RECORD = r"""
exec 3>&1 1>/dev/null
command_not_found_handle() { local words; printf -v words '%s\t' "$@"; echo "$words" >&3; }
nice() { "${@:3}"; }
srun() { "$@"; }
"""


def prose(page: Path) -> str:
    """Text without blocks of code."""
    return re.sub(r'```.*?```', '', page.read_text(), flags=re.DOTALL)


def block_commands(page: Path) -> list[list[str]]:
    """Words of each command of the blocks called bash or sh, in the order of the page."""
    text = page.read_text()
    return recorded(
        re.findall(r'^ *```(?:bash|sh)\n(.*?)```', text, re.DOTALL | re.MULTILINE)
    )


def inline_commands(page: Path) -> list[list[str]]:
    """Words of each command between backticks; a program's name alone is none."""
    texts = re.findall(
        r'`((?:rope-dense|python|make|torchrun|bash)\s[^`]+)`', prose(page)
    )
    return recorded([' '.join(text.split()) for text in texts])


def own_arguments(words: list[str]) -> list[str] | None:
    """The words after ``rope-dense`` of a command in any of its forms; None for another program."""
    program, *rest = words
    if program == 'rope-dense':
        return rest
    if program == 'bash' and rest[0] == 'tools/dist_train.sh':
        return ['train', rest[1], *rest[3:]]  # CONFIG, number of GPUs, arguments
    if program == 'python' and rest[0] == 'tools/train.py':
        return ['train', *rest[1:]]
    if '-m' in rest:
        module, *given = rest[rest.index('-m') + 1 :]
        if module in ('rope_dense', 'rope_dense_command') and not given[0].endswith(
            '.py'
        ):
            return given
    return None


def recorded(scripts: list[str]) -> list[list[str]]:
    """Words of the commands that these scripts call; none of them runs.

    Raises:
        AssertionError: a script is no bash.
    """
    if not scripts:
        return []
    bash = shutil.which('bash')
    assert bash
    text = RECORD + '\n'.join(scripts).replace('.venv/bin/', '') + '\nwait\n'
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [bash, '-c', text],
            cwd=empty,
            env=dict(PATH=empty),
            text=True,
            capture_output=True,
        )
    assert not done.returncode and not done.stderr, done.stderr
    return [line.rstrip('\t').split('\t') for line in done.stdout.splitlines()]
