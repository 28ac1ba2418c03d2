"""A line holds one thought: how dense the package's lines are, in nodes of the syntax tree.

A line of code has something besides docstrings, comments and imports; docstrings, imports and
contexts (load, store) are no nodes.
"""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / 'rope_dense'
MOST = {
    'nodes': 7.0,
    'comprehensions': 0.032,
    'walruses': 0.002,
}  # on average a line of code
# Of these, at most so many nodes.
CALM = dict.fromkeys(('rope', 'backbones', 'models', 'data', 'project', 'predict'), 6.8)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def count(folder: Path) -> Counter:
    """Lines of code, nodes, comprehensions and walruses in a folder."""
    found: Counter = Counter()
    for path in folder.rglob('*.py'):
        text = path.read_text()
        lines = set()
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
        skipped = set()
        nodes = list(ast.walk(ast.parse(text)))
        for node in nodes:
            is_doc = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            is_doc = is_doc and isinstance(node.value.value, str)
            if is_doc or isinstance(node, (ast.Import, ast.ImportFrom)):
                lines -= set(range(node.lineno, node.end_lineno + 1))
                skipped.update(map(id, ast.walk(node)))
        for node in nodes:
            if id(node) in skipped or isinstance(node, ast.expr_context):
                continue
            found['nodes'] += 1
            found['comprehensions'] += isinstance(node, COMPREHENSIONS)
            found['walruses'] += isinstance(node, ast.NamedExpr)
        found['lines'] += len(lines)
    return found


def test_lines_are_not_dense() -> None:
    found = count(PACKAGE)
    assert found['lines'] > 30_000
    for what, most in MOST.items():
        assert found[what] <= most * found['lines'], what


@pytest.mark.parametrize('room', CALM)
def test_lines_of_a_room_are_calm(room: str) -> None:
    found = count(PACKAGE / room)
    assert found['nodes'] <= CALM[room] * found['lines']
