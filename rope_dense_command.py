"""The console script `rope-dense NAME`, which tools/NAME.py calls too.

Importing the package registers models, which takes seconds. So this module is outside of it, and a
command reads its arguments before the package is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType

COMMANDS = {
    'commands': (
        *('train', 'test', 'predict', 'predict_large', 'export', 'eval_resolutions', 'benchmark'),
        *('print_recipe', 'browse_data', 'convert_data', 'convert_checkpoint', 'convert_eomt'),
        *('push_to_hub', 'make_shapes', 'demo', 'report'),
    ),
    'research': ('eval_classification', 'analyze_positions'),
}
ROOMS = {name: room for room, names in COMMANDS.items() for name in names}
POSTPONED: list[ModuleType] = []  # packages in sys.modules that are not executed yet


def main() -> int:
    """Run the command that is the first argument; returns the exit code."""
    name = sys.argv[1].replace('-', '_') if len(sys.argv) > 1 else '__help'
    if name in ROOMS:
        sys.argv[:2] = [f'rope-dense {name.replace("_", "-")}']  # the program in messages
        return command(name)(None)
    print('usage: rope-dense COMMAND ..., and rope-dense COMMAND --help\n')
    for name in ROOMS:
        first_line, *_ = (import_early(name).__doc__ or '').splitlines()
        print(f'  {name.replace("_", "-"):<20}{first_line}')
    return 0 if sys.argv[1:] in ([], ['-h'], ['--help']) else 2


def command(name: str) -> Callable[[Sequence[str] | None], int]:
    """The command as a function of its arguments, by default of ``sys.argv``."""

    def run(argv: Sequence[str] | None = None) -> int:
        module = import_early(name)
        args = module.parse_args(argv)  # answers --help and mistakes
        import_packages()
        door = importlib.import_module('rope_dense.commands.run')
        return door.run(module.main, args)

    return run


def import_early(name: str) -> ModuleType:
    """Import the module of a command, and postpone the packages that commands are in."""
    for package in ('rope_dense', 'rope_dense.commands', f'rope_dense.{ROOMS[name]}'):
        if package not in sys.modules:
            spec = importlib.util.find_spec(package)
            assert spec is not None
            sys.modules[package] = importlib.util.module_from_spec(spec)
            POSTPONED.append(sys.modules[package])
            parent, _, child = package.rpartition('.')
            if parent:
                setattr(sys.modules[parent], child, sys.modules[package])
    return importlib.import_module(f'rope_dense.{ROOMS[name]}.{name}')


def import_packages() -> None:
    """Execute the packages that ``import_early`` postponed, outer ones first."""
    while POSTPONED:
        package = POSTPONED.pop(0)
        assert package.__spec__ is not None and package.__spec__.loader is not None
        package.__spec__.loader.exec_module(package)


if __name__ == '__main__':
    sys.exit(main())
