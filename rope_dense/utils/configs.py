"""The folders of configs and guides, and the values that the text of a config has."""

import ast
import json
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
CONFIGS = PACKAGE / '.mim' / 'configs'  # of an installed package
if not CONFIGS.is_dir():
    CONFIGS = PACKAGE.parent / 'configs'  # of a clone
DOCS = CONFIGS.parent / 'docs'  # messages name its pages


def values_in(text: str) -> dict[str, Any]:
    """The values that lines give to names, as JSON, or ``...``; {} if there are other lines."""
    values = dict[str, Any]()
    try:
        for line in ast.parse(text).body:
            if isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant):
                continue  # a docstring
            (target,) = line.targets  # type: ignore[attr-defined]
            values[target.id] = literal(line.value)  # type: ignore[attr-defined]
    except (SyntaxError, ValueError, AttributeError, RecursionError, MemoryError):
        return {}
    return values


def literal(node: ast.expr) -> Any:
    """A value of numbers, texts, lists, dicts and ``dict(...)``; ``...`` for any other."""
    if isinstance(node, ast.Call):
        if ast.unparse(node.func) != 'dict' or node.args:
            return ...
        return {item.arg: literal(item.value) for item in node.keywords if item.arg}
    if isinstance(node, (ast.List, ast.Tuple)):
        return [literal(item) for item in node.elts]
    try:
        return json.loads(json.dumps(ast.literal_eval(node)))
    except (ValueError, TypeError):
        return ...
