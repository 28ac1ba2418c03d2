"""What the paper reports for a config, from the metafile.yml in its folder."""

from __future__ import annotations

import ast
from pathlib import Path

import mmengine
from mmengine.config import Config


def paper_result(path: Path, cfg: Config) -> str:
    """The paper's result for `cfg`, which was read from `path`, or why there is none to expect.

    A config that only has another for its base, as the flagship configs do, has that one's result;
    one that changes anything has none.
    """
    source: Path | None = path
    while source is not None:
        if entry := metafile_entry(source):
            if differs(cfg, source):
                return f'none: {source.name} has one, and settings of it are changed here'
            return describe(entry)
        source = single_base(source)
    return 'none known'


def single_base(path: Path) -> Path | None:
    """The file that a config names as its only `_base_`, unless it is one of another package."""
    if path.suffix != '.py':
        return None
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], 'id', '') == '_base_':
            base = ast.literal_eval(node.value)
            is_file = isinstance(base, str) and '::' not in base
            return (path.parent / base).resolve() if is_file else None
    return None


def metafile_entry(path: Path) -> dict | None:
    """The entry for a config in the metafile of its folder, if there are such."""
    metafile = path.parent / 'metafile.yml'
    models = mmengine.load(metafile)['Models'] if metafile.is_file() else []
    return next((model for model in models if model['Name'] == path.stem), None)


def differs(cfg: Config, path: Path) -> bool:
    """Whether a config does anything else than the one at `path`."""
    other = Config.fromfile(path)
    return any(cfg.get(key) != other[key] for key in other)


def describe(entry: dict) -> str:
    """Metrics and source of the results of a metafile's entry, on one line."""
    lines = []
    for result in entry.get('Results', []):
        metrics = ', '.join(f'{value} {name}' for name, value in result['Metrics'].items())
        lines.append(f'{metrics} on {result["Dataset"]} ({result["Source"]})')
    return '; '.join(lines) or 'none: not in the paper'
