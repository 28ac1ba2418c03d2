"""What others may import from a room: its ``__all__``, and the table in its docstring.

The table has a line for each module: ``labels.maps: DEPTH, MASKS``. Beside the package, research,
configs and benchmarks are held to it.
"""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / 'rope_dense'
ROOMS = sorted(path.parent.name for path in PACKAGE.glob('*/__init__.py'))
TABLE = '\nOthers import::\n\n'
LINE = re.compile(r'    ([\w.]+): (.+)')
Names = dict[str, set[str]]  # by module, below the room


def imports(path: Path) -> list[tuple[str, list[str]]]:
    """Modules and names that a file imports from the package."""
    found = []
    place = path.relative_to(ROOT).with_suffix('').parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            start = '.'.join(place[: -node.level]) if node.level else ''
            module = '.'.join(filter(None, (start, node.module)))
            found.append((module, [alias.name for alias in node.names]))
    return found


def is_module(dotted: str) -> bool:
    path = ROOT.joinpath(*dotted.split('.'))
    return path.with_suffix('.py').is_file() or (path / '__init__.py').is_file()


def crossing() -> dict[str, Names]:
    """Names that other rooms, and what stands beside the package, import from each room."""
    found: dict[str, Names] = {room: defaultdict(set) for room in ROOMS}
    for folder in ('rope_dense', 'research', 'configs', 'benchmarks'):
        for path in (ROOT / folder).rglob('*.py'):
            parts = path.relative_to(ROOT).parts
            if '.mim' in parts:
                continue
            own = parts[1] if folder == 'rope_dense' else None
            for module, names in imports(path):
                root, *inner = module.split('.')
                if root != 'rope_dense' or inner[:1] == [own] or not inner:
                    continue
                if inner[0] not in ROOMS:
                    continue
                room, *rest = inner
                for name in names:
                    if not is_module(f'{module}.{name}'):
                        found[room]['.'.join(rest)].add(name)
    return found


CROSSING = crossing()


def listed(room: str) -> tuple[Names, set[str]]:
    """The table of a room, and its ``__all__``."""
    tree = ast.parse((PACKAGE / room / '__init__.py').read_text())
    table: Names = {}
    text = ast.get_docstring(tree) or ''
    for module, names in LINE.findall(re.sub(r',\n +', ', ', text.partition(TABLE)[2])):
        table[module] = set(names.split(', '))
    public: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == '__all__':
            public = set(ast.literal_eval(node.value))
    return table, public


@pytest.mark.parametrize('room', ROOMS)
def test_the_table_of_a_room_names_what_others_import(room: str):
    table, public = listed(room)
    used = {module: names for module, names in CROSSING[room].items() if module}
    assert CROSSING[room].get('', set()) <= public
    assert table == used
