"""The console script `rope-dense NAME`, which tools/NAME.py calls too.

Importing the package registers models, which takes seconds. So this module is outside of it, and a
command reads its arguments, and looks for the files that they name, before the package is imported.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

COMMANDS = (
    'train predict report test eval_resolutions choose_scaling export predict_large browse_data '
    'convert_data convert_checkpoint push_to_hub print_recipe benchmark position_bias demo'
).split()
RESEARCH = (
    'eval_classification',
    'analyze_positions',
    'make_shapes',
)  # rope-dense research NAME
PACKAGES = dict.fromkeys(COMMANDS, 'rope_dense.commands') | dict.fromkeys(
    RESEARCH, 'research'
)
POSTPONED: list[str] = []  # packages in sys.modules that are not executed yet


def main() -> int:
    """Run the command that the first arguments name; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):  # names of files need not be UTF-8
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors='backslashreplace')
    given = [word.replace('-', '_') for word in sys.argv[1:3]]
    clone = Path(__file__).parent
    has_research = (clone / 'research').is_dir()
    if has_research:  # which configs import, too
        sys.path.append(str(clone))
    if given[:1] == ['research']:
        if not has_research:
            print(
                'error: rope-dense research is not installed: run it in a clone of the repository, '
                'by python -m rope_dense_command research',
                file=sys.stderr,
            )
            return 2
        return run_named('rope-dense research', given[1:], RESEARCH, 3)
    return run_named('rope-dense', given[:1], COMMANDS, 2)


def run_named(
    program: str, given: Sequence[str], names: Sequence[str], start: int
) -> int:
    """Run one of `names`, or list them.

    Args:
        program: before the name on the command line.
        given: the name, as that of a module; empty to list all.
        start: index in ``sys.argv`` of the command's own arguments.
    """
    if given and given[0] in names:
        sys.argv[:start] = [f'{program} {shown(given[0])}']  # the program in messages
        return command(given[0])(None)
    asks = not given or given[0] in ('_h', '__help')
    if not asks:
        meant = difflib.get_close_matches(given[0], names, n=1)
        hint = (
            f'; did you mean {shown(meant[0])}?'
            if meant
            else f' (see {program} --help)'
        )
        print(
            f'error: {program} has no command {shown(given[0])}{hint}', file=sys.stderr
        )
        return 2
    print(f'usage: {program} COMMAND ..., and {program} COMMAND --help\n')
    for name in names:
        first_line, *_ = (import_early(name).__doc__ or '').splitlines()
        print(f'  {shown(name):<20}{first_line}')
    if names is COMMANDS:
        print(f'  {"research":<20}More commands: rope-dense research --help')
    return 0


def shown(name: str) -> str:
    """The name of a command as users write it."""
    return name.replace('_', '-')


def command(name: str) -> Callable[[Sequence[str] | None], int]:
    """The command as a function of its arguments, by default of ``sys.argv``."""

    def run(argv: Sequence[str] | None = None) -> int:
        if '' not in sys.path:
            sys.path.append('')  # the current folder, for modules that a config names
        module = import_early(name)
        usage_error = importlib.import_module('rope_dense.utils.errors').UsageError
        try:
            args = module.parse_args(argv)  # answers --help and mistakes
        except usage_error as error:
            if '--debug' in (sys.argv if argv is None else argv):
                traceback.print_exc()
            if os.environ.get('LOCAL_RANK', '0') == '0':
                print(f'error: {error}', file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 130
        import_packages()
        runner = importlib.import_module('rope_dense.commands.run')
        return runner.run(module.main, args)

    return run


def import_early(name: str) -> ModuleType:
    """Import the module of a command, and postpone the packages that early modules are in."""
    parent = PACKAGES[name]
    for package in (
        'rope_dense',
        'rope_dense.commands',
        parent,
        'rope_dense.backbones',
    ):
        if package not in sys.modules:
            spec = importlib.util.find_spec(package)
            assert spec is not None
            sys.modules[package] = importlib.util.module_from_spec(spec)
            POSTPONED.append(package)
    return importlib.import_module(f'{parent}.{name}')


def import_packages() -> None:
    """Import the packages that ``import_early`` postponed; modules in them stay as they are."""
    early = {name: sys.modules.pop(name) for name in POSTPONED}
    for name, empty in early.items():
        vars(importlib.import_module(name)).update(
            {
                key: value
                for key, value in vars(empty).items()
                if isinstance(value, ModuleType)
            }
        )
    POSTPONED.clear()


if __name__ == '__main__':
    sys.exit(main())
