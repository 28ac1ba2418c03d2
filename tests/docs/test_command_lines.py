"""Every command line of every page parses: its program, options and files exist."""

import argparse
import importlib.util
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from helpers.page_commands import (
    PAGES,
    ROOT,
    block_commands,
    every_page,
    inline_commands,
    own_arguments,
    prose,
)
from rope_dense.utils.errors import UsageError
from rope_dense_command import COMMANDS, RESEARCH, import_command

# Of detectron2 and detrex, and programs of docs/clients, which docs/export.md copies.
SCRIPTS_ELSEWHERE = {
    'tools/lazyconfig_train_net.py',
    'tools/train_net.py',
    'draw.py',
    'detect.py',
}
PROGRAMS_ELSEWHERE = {
    *('pip', 'torchrun', 'label-studio-converter', 'scontrol', 'sbatch', 'find', 'head')
}
OTHER_OPTIONS = {  # of timm's script, naver's and BEiT's, benchmarks/gpu.py, torchrun and Slurm
    *(
        '--device-modules',
        '--grad-accum-steps',
        '--initial-checkpoint',
        '--layer-decay',
    ),
    *('--model-kwargs', '--eval-crop-ratio', '--deterministic', '--pretend'),
    *('--max-restarts', '--shutdown-timeout', '--signals-to-handle', '--requeue'),
}
OWN_FILES = re.compile(
    r'(?:configs/(?!own/cats)|benchmarks/|docs/|tools/|tests/\w+/)\S+\.\w+$'
)
TARGETS = set(re.findall(r'^(\w+):', (ROOT / 'Makefile').read_text(), re.MULTILINE))


def check_command(words: list[str]) -> None:
    """Fail for a program or a file that is not there, or for options that it does not take."""
    program, *rest = words
    named = {word for word in rest if OWN_FILES.match(word)} - SCRIPTS_ELSEWHERE
    assert all((ROOT / name).is_file() for name in named), named
    if (given := own_arguments(words)) is not None:
        check_arguments(given)
    elif program == 'python' and rest[0] == '-m':
        assert importlib.util.find_spec(rest[1]), rest[1]
    elif program == 'python':
        assert rest[0].endswith('.py') and (rest[0] in named | SCRIPTS_ELSEWHERE), rest[
            0
        ]
        if rest[0] in named and 'parse_args(' in (ROOT / rest[0]).read_text():
            check_script(ROOT / rest[0], rest[1:])
    elif program == 'make':
        assert {word for word in rest if '=' not in word} <= TARGETS, words
    else:
        assert program in PROGRAMS_ELSEWHERE, program


def check_arguments(words: list[str]) -> None:
    """Parse the arguments of a command, unless only its name is given; files may be missing."""
    names, words = (
        (RESEARCH, words[1:]) if words[:1] == ['research'] else (COMMANDS, words)
    )
    if words[:1] in ([], ['NAME'], ['COMMAND'], ['--help']):
        return
    name = words[0].replace('-', '_')
    assert name in names, words
    if words[1:] and '...' not in words and '--help' not in words:
        try:
            import_command(name).parse_args(words[1:])
        except UsageError as error:
            assert re.search('no such|not a config|no report', str(error)), error


class EndOfParsingError(Exception):
    """The arguments of a script are right."""


def check_script(script: Path, words: list[str]) -> None:
    """Run a script up to the end of its parser."""
    parse_args, modules = argparse.ArgumentParser.parse_args, set(sys.modules)

    def parse(*given: object) -> None:
        parse_args(*given)
        raise EndOfParsingError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(EndOfParsingError):
        patch.setattr(sys, 'argv', [str(script), *words])
        patch.syspath_prepend(script.parent)
        patch.setattr(argparse.ArgumentParser, 'parse_args', parse)
        runpy.run_path(str(script), run_name='__main__')
    for name in (
        set(sys.modules) - modules
    ):  # scripts of other folders have modules of these names
        if (
            Path(str(getattr(sys.modules[name], '__file__', ''))).parent
            == script.parent
        ):
            del sys.modules[name]


@every_page
def test_commands_parse(
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Types of options that look for files find all of them: so the words after them are read."""
    for name in ('check_checkpoint', 'find_config'):
        monkeypatch.setattr(f'rope_dense.commands.arguments.{name}', lambda path: None)
    for words in [*block_commands(page), *inline_commands(page)]:
        try:
            check_command(words)
        except SystemExit:
            pytest.fail(f'{shlex.join(words)}: {capsys.readouterr().err}')


def test_options_in_the_text_exist(capsys: pytest.CaptureFixture[str]) -> None:
    known = set(OTHER_OPTIONS)
    for name in (*COMMANDS, *RESEARCH):
        with pytest.raises(SystemExit):
            import_command(name).parse_args(['--help'])
        known |= set(re.findall(r'--[a-z-]+', capsys.readouterr().out))
    for page in set(PAGES) - {ROOT / 'CHANGELOG.md'}:
        named = set(re.findall(r'`(--[a-z-]+)(?![\w-])', prose(page)))
        assert named <= known, (page, named - known)
