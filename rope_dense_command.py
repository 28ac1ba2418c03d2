"""The console script `rope-dense NAME`, which tools/NAME.py calls too.

A command reads its arguments, and looks for the files that they name, before PyTorch and OpenMMLab
are imported, which takes seconds.
"""

import difflib
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rope_dense.utils.errors import UsageError
from rope_dense.utils.imports import installation_advice, missing_packages

COMMANDS = (
    'train predict report test eval_resolutions choose_scaling export check_file predict_large '
    'browse_data convert_data convert_checkpoint push_to_hub print_recipe benchmark '
    'position_bias demo'
).split()
RESEARCH = 'eval_classification analyze_positions make_shapes'.split()
PACKAGES = {
    **dict.fromkeys(COMMANDS, 'rope_dense.commands'),
    **dict.fromkeys(RESEARCH, 'research'),
}
NO_RESEARCH = (
    'rope-dense research is not installed: run it in a clone of the repository, '
    'by python -m rope_dense_command research'
)


def main() -> int:
    """Run the command that the first arguments name, or list all; returns the exit code.

    That is 141 where the program that reads what is printed has ended, as ``head`` does.
    """
    try:
        try:
            return dispatch()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the rest
        return 141


def dispatch() -> int:
    """Run the command that the first arguments name, or list all; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):  # names of files need not be UTF-8
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors='backslashreplace')
    clone = Path(__file__).parent
    has_research = (clone / 'research').is_dir()
    if has_research:  # which configs import, too
        sys.path.append(str(clone))
    program, names, given = 'rope-dense', COMMANDS, sys.argv[1:]
    if given[:1] == ['research']:
        if not has_research:
            print(f'error: {NO_RESEARCH}', file=sys.stderr)
            return 2
        program, names, given = 'rope-dense research', RESEARCH, given[1:]
    if not given or given[0] in ('-h', '--help'):
        list_commands(program, names)
        return 0
    name = given[0].replace('-', '_')
    if name in names:
        shown_program = f'{program} {shown(name)}'  # in messages
        sys.argv[:] = [shown_program, *given[1:]]
        return command(name)(None)
    meant = difflib.get_close_matches(name, names, n=1)
    hint = f'; did you mean {shown(meant[0])}?' if meant else f' (see {program} --help)'
    print(f'error: {program} has no command {shown(name)}{hint}', file=sys.stderr)
    return 2


def list_commands(program: str, names: Sequence[str]) -> None:
    """Print the names with the first lines of their help."""
    print(f'usage: {program} COMMAND ..., and {program} COMMAND --help\n')
    for name in names:
        first_line, *_ = (import_command(name).__doc__ or '').splitlines()
        print(f'  {shown(name):<20}{first_line}')
    if names is COMMANDS:
        print(f'  {"research":<20}More commands: rope-dense research --help')


def shown(name: str) -> str:
    """The name of a command as users write it."""
    return name.replace('_', '-')


def import_command(name: str) -> ModuleType:
    """The module of a command."""
    return import_module(f'{PACKAGES[name]}.{name}')


def command(name: str) -> Callable[[Sequence[str] | None], int]:
    """The command as a function of its arguments, by default of ``sys.argv``."""

    def run(argv: Sequence[str] | None = None) -> int:
        if '' not in sys.path:
            sys.path.append('')  # the current folder, for modules that a config names
        module = import_command(name)
        try:
            args = module.parse_args(argv)  # answers --help and mistakes
            if hasattr(module, 'prepare'):
                module.prepare(args)  # looks at own data
        except UsageError as error:
            if '--debug' in (sys.argv if argv is None else argv):
                traceback.print_exc()
            if os.environ.get('LOCAL_RANK', '0') == '0':
                print(f'error: {error}', file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 130
        missing = missing_packages()
        if missing:
            raise ImportError(installation_advice(missing))
        return import_module('rope_dense.commands.run').run(module.main, args)

    return run


if __name__ == '__main__':
    sys.exit(main())
