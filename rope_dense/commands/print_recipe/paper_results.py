"""The result of the paper for a config, from the metafile.yml in its folder."""

from __future__ import annotations

from pathlib import Path

import mmengine
from mmengine.config import Config

from .config import base_files


def paper_result(path: Path, cfg: Config) -> str:
    """The paper's result for `cfg`, which was read from `path`, or why there is none.

    A config that only names its base, such as the flagship configs, has the result of the base; a
    config that changes a setting has none.
    """
    while (entry := metafile_entry(path)) is None:
        bases = base_files(path)
        if len(bases) != 1:
            return 'none known'
        path = bases[0]
    original = Config.fromfile(path)
    if any(cfg.get(key) != original[key] for key in original):
        return f'none: {path.name} has one, and settings of it are changed here'
    return results_line(entry)


def metafile_entry(path: Path) -> dict | None:
    """The entry for a config in the metafile of its folder, if there is one."""
    metafile = path.parent / 'metafile.yml'
    models = mmengine.load(metafile)['Models'] if metafile.is_file() else []
    return next((model for model in models if model['Name'] == path.stem), None)


def results_line(entry: dict) -> str:
    """Metrics and source of the results of a metafile's entry, on one line."""
    lines = []
    for result in entry.get('Results', []):
        metrics = ', '.join(f'{value} {name}' for name, value in result['Metrics'].items())
        lines.append(f'{metrics} on {result["Dataset"]} ({result["Source"]})')
    return '; '.join(lines) or 'none: not in the paper'
