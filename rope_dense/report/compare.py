"""Two reports side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..project.errors import UsageError
from .page import Page

FIGURES = {  # sections with plots, of detectors or segmentors
    'Kinds of error': ('errors',),
    'Precision and recall': ('precision_recall',),
    'IoU': ('iou',),
    'Confusion': ('confusion',),
    'Calibration': ('calibration',),
    'Image sizes': ('image_sizes',),
    'Training': ('losses', 'metrics'),
}


def compare(first: Path, second: Path, out: Path) -> Path:
    """Write a page with the tables and plots of two reports; returns its path.

    Raises:
        UsageError: a run has no report, or they are of different tasks.
    """
    runs = [read_report(first), read_report(second)]
    (folder_a, a), (folder_b, b) = runs
    if list(a['classes'][0]) != list(b['classes'][0]):
        raise UsageError(f'--compare {first} {second}: reports of different tasks')
    about = dict(first=a['about']['checkpoint'], second=b['about']['checkpoint'])
    page = Page(out, f'{first.name or first} and {second.name or second}', about)
    page.section('Classes', 'Each figure of the first and of the second model, and the difference.')
    page.add_table('classes', differences(a['classes'], b['classes'], 'class'))
    if 'errors' in a and 'errors' in b:
        page.section('Kinds of error', 'A negative difference: the second model has less of it.')
        page.add_table('errors', differences(a['errors'], b['errors'], 'error'))
    for title, names in FIGURES.items():
        files = [(f, n) for n in names for f in (folder_a, folder_b) if (f / f'{n}.png').is_file()]
        if files:
            page.section(title)
        for folder, name in files:
            label = 'first' if folder == folder_a else 'second'
            page.embed('image/png', (folder / f'{name}.png').read_bytes(), f'{label}: {name}')
    return page.close()


def read_report(run: Path) -> tuple[Path, dict[str, Any]]:
    """The folder and the content of the report of a run.

    Raises:
        UsageError: there is none.
    """
    folder = run / 'report' if (run / 'report').is_dir() else run
    try:
        content = json.loads((folder / 'report.json').read_text(encoding='utf-8'))
        return folder, dict(content, about=content['about'], classes=content['classes'])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f'--compare {run}: no report, run `rope-dense report {run}`') from error


def differences(first: list[dict], second: list[dict], key: str) -> list[dict[str, Any]]:
    """Rows with the figures of both, matched by `key`."""
    others = {row[key]: row for row in second}
    rows = []
    for row in first:
        cells: dict[str, Any] = {key: row[key]}
        for name, value in row.items():
            other = others.get(row[key], {}).get(name)
            if name != key:
                both = value is not None and other is not None
                change = other - value if both else None
                cells |= {name: value, f'{name} (2)': other, f'{name} (change)': change}
        rows.append(cells)
    return rows
