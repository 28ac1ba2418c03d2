"""Settings of a resumed run that differ from the settings of its checkpoint."""

from __future__ import annotations

import ast
import json
import os
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

from mmengine.config import Config

SHOWN = 4  # settings in a line
# The schedule, the labels and the number of images are compared when the checkpoint is loaded.
COMPARED_LATER = ('data_root', 'data_prefix', 'ann_file', 'epochs', 'lr', 'batch_size', 'gpus')
SILENT = (*COMPARED_LATER, 'init_cfg', 'metainfo')


def say_what_changed(cfg: Config, checkpoint: dict) -> None:
    """Print the settings of a training that differ from those of the checkpoint it resumes.

    Args:
        checkpoint: of mmengine's Runner, which has the text of its config.
    """
    text = (checkpoint.get('meta') or {}).get('cfg')
    if not isinstance(text, str) or os.environ.get('LOCAL_RANK', '0') != '0':
        return
    old, new = read_literals(text), json.loads(json.dumps(cfg.to_dict(), default=str))
    changes = [*differences(old.get('own', ...), new.get('own', ...), 'own')]
    for name in ('model', 'train_dataloader'):
        changes = changes or [*differences(old.get(name, ...), new.get(name, ...), name)]
    if changes:
        more = ' ...' if len(changes) > SHOWN else ''
        print(f'resume: the new settings hold: {", ".join(changes[:SHOWN])}{more}', file=sys.stderr)


def differences(old: Any, new: Any, key: str) -> Iterator[str]:
    """Yield each setting that differs, in words; ``...`` is what is not known."""
    if old is ... or new is ... or old == new or key.rpartition('.')[2] in SILENT:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*new, *old]):
            yield from differences(old.get(name), new.get(name), f'{key}.{name}')
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, now) in enumerate(zip(old, new, strict=True)):
            yield from differences(before, now, f'{key}.{index}')
    else:
        texts = [textwrap.shorten(json.dumps(value, default=str), 60) for value in (new, old)]
        yield f'{key} {texts[0]} in place of {texts[1]}'


def read_literals(text: str) -> dict[str, Any]:
    """The values of a config's text as JSON has them, without running it; {} for another text."""
    try:
        lines = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    return {
        line.targets[0].id: literal(line.value)
        for line in lines
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)
    }


def literal(node: ast.expr) -> Any:
    """A value of numbers, texts, lists, dicts and ``dict(...)``; ``...`` for any other."""
    if isinstance(node, ast.Call):
        return {item.arg: literal(item.value) for item in node.keywords if item.arg}
    if isinstance(node, (ast.List, ast.Tuple)):
        return [literal(item) for item in node.elts]
    try:
        return json.loads(json.dumps(ast.literal_eval(node)))
    except (ValueError, TypeError):
        return ...
