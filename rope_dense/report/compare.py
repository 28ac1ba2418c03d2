"""Two reports side by side."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..measure.plot import plot_resolutions
from ..measure.results import headline
from ..utils.errors import UsageError
from ..utils.results import Results
from . import figures
from .page import FIGURES, NAME, Page
from .settings import differing_settings

Reports = Mapping[
    str, dict[str, Any]
]  # the content of report.json by the name of the run

COLUMNS = (
    'AP AP50 f1 IoU boundary PQ SQ RQ rmse abs_rel'.split()
)  # others would not fit
SETTINGS = 40  # rows at most


def compare_runs(first: Path, second: Path, out: Path) -> Path:
    """Write a page on the differences of two runs that have a report; returns its path.

    Raises:
        UsageError: a run has no report, or they are of different tasks.
        ForeignFileError: a file that would be written is the user's, or one of the reports.
    """
    reports = dict(
        zip(run_names(first, second), map(read_report, (first, second)), strict=True)
    )
    a, b = reports.values()
    if list(a['classes'][0]) != list(b['classes'][0]):
        raise UsageError(f'--compare {first} {second}: reports of different tasks')
    with Results(out, NAME, [report_file(first), report_file(second)]) as results:
        about = {
            name: report['about']['checkpoint'] for name, report in reports.items()
        }
        page = Page(results, ' and '.join(reports), about)
        add_settings(page, reports)
        add_classes(page, reports)
        add_errors(page, reports)
        add_plots(page, reports)
        add_training(page, reports)
        add_image_sizes(page, reports)
        return page.write()


def run_names(first: Path, second: Path) -> tuple[str, str]:
    """Names of two runs: of their folders, or the paths if these are equal."""
    runs = [path.parent if path.name == 'report' else path for path in (first, second)]
    a, b = (path.resolve().name for path in runs)
    if a == b:
        a, b = map(str, runs)
    return (a, b) if a != b else (f'{a} (1)', f'{b} (2)')


def report_file(run: Path) -> Path:
    """The file of the report of a run, or of a folder that is one."""
    return (run / 'report' if (run / 'report').is_dir() else run) / FIGURES


def read_report(run: Path) -> dict[str, Any]:
    """The content of the report of a run; UsageError if there is none."""
    try:
        content = json.loads(report_file(run).read_text(encoding='utf-8'))
        missing = {'about', 'classes', 'names', 'settings'} - content.keys()
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(
            f'--compare {run}: no report, run `rope-dense report {run}`'
        ) from error
    if missing:
        raise UsageError(
            f'--compare {run}: an old report, run `rope-dense report {run}` again'
        )
    return content


def add_settings(page: Page, reports: Reports) -> None:
    """Add the settings in which the runs differ, and the iterations that they trained for."""
    (a, first), (b, second) = reports.items()
    rows = differing_settings(first['settings'], second['settings'])
    trained = [
        report.get('losses', {}).get('loss', [[None]])[0][-1]
        for report in reports.values()
    ]
    if trained[0] != trained[1]:
        rows.insert(0, ('last iteration of the run', *trained))
    text = 'Folders of data and output are left out, but for own.data_root.'
    if not rows:
        text = f'The runs have the same settings. {text}'
    elif len(rows) > SETTINGS:
        text = f'The first {SETTINGS} of {len(rows)}, settings of own data before what they change.'
    page.section('Differences of the settings', text)
    table = [{'setting': key, a: str(x), b: str(y)} for key, x, y in rows[:SETTINGS]]
    page.add_table('settings', table)


def add_classes(page: Page, reports: Reports) -> None:
    """Add the main figures of each class, or range of distances."""
    text = f'Each figure of {" and of ".join(reports)}, and the change.'
    columns = [
        name for name in COLUMNS if name in next(iter(reports.values()))['classes'][0]
    ]
    a, b = (keyed(report['classes'], 'class').keys() for report in reports.values())
    if others := sorted(a ^ b):
        text += f' Only one of them has {", ".join(others)}: their means are of other classes.'
    page.section('Classes', text)
    add_changes(page, reports, 'classes', 'class', columns, f'{columns[0]} by class.')


def add_errors(page: Page, reports: Reports) -> None:
    """Add the kinds of error of two detectors."""
    if not all('errors' in report for report in reports.values()):
        return
    columns = [name for name in next(iter(reports.values()))['errors'][0]][1:3]
    page.section(
        'Kinds of error', 'A negative change: the second model has less of it.'
    )
    add_changes(
        page, reports, 'errors', 'error', columns, 'AP50 lost by kind of error.'
    )


def add_changes(
    page: Page,
    reports: Reports,
    table: str,
    key: str,
    columns: Sequence[str],
    caption: str,
) -> None:
    """Add the rows of a table with the figures of both, matched by `key`; bars of the first one."""
    first, second = (keyed(report[table], key) for report in reports.values())
    lengths: dict[str, dict[str, Any]] = {run: {} for run in reports}
    (a, b), rows = reports, []
    for name in {**first, **second}:
        cells: dict[str, Any] = {key: name}
        for column in columns:
            value, other = (
                first.get(name, {}).get(column),
                second.get(name, {}).get(column),
            )
            change = None if value is None or other is None else other - value
            cells |= {
                f'{column}, {a}': value,
                f'{column}, {b}': other,
                f'{column}, change': change,
            }
        for run, values in lengths.items():
            values[name] = cells[f'{columns[0]}, {run}']
        rows.append(cells)
    page.add_figure(table, figures.draw_bars(lengths, columns[0]), caption)
    page.add_table(table, rows)


def keyed(rows: Sequence[dict[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    """Rows by their value of `key`."""
    return {row[key]: row for row in rows}


def add_plots(page: Page, reports: Reports) -> None:
    """Add plots of the test, each where both runs have it."""
    if runs := values_of_both(reports, 'precision_recall'):
        page.section('Precision and recall')
        figure = figures.draw_lines(runs, 'recall', 'precision', unit=True)
        page.add_figure('precision_recall', figure, 'At IoU 0.5, by class.')
    names = next(iter(reports.values()))['names']
    if all(report['names'] == names for report in reports.values()) and (
        runs := values_of_both(reports, 'confusion')
    ):
        tables = {run: np.array(table) for run, table in runs.items()}
        names = [*names, 'nothing'][: len(next(iter(tables.values())))]
        page.section('Confusion')
        page.add_figure('confusion', figures.draw_matrix(tables, names), 'Rows: truth.')
    if runs := values_of_both(reports, 'calibration'):
        page.section('Calibration')
        page.add_figure(
            'calibration', figures.draw_calibration(runs), 'True positives by score.'
        )


def add_training(page: Page, reports: Reports) -> None:
    """Add the loss, and the main metric of each evaluation, as one plot each."""
    runs = values_of_both(reports, 'losses')
    if runs and all('loss' in losses for losses in runs.values()):
        page.section('Training')
        curves = {run: losses['loss'] for run, losses in runs.items()}
        page.add_figure(
            'losses', figures.draw_lines({'': curves}, 'iteration', 'loss'), 'Loss.'
        )
    if runs := values_of_both(reports, 'metrics'):
        metric = headline(next(iter(runs.values())))
        curves = {
            run: metrics[metric] for run, metrics in runs.items() if metric in metrics
        }
        figure = figures.draw_lines({'': curves}, 'step of the evaluation', metric)
        page.add_figure('metrics', figure, f'{metric}.')


def add_image_sizes(page: Page, reports: Reports) -> None:
    """Add the main metric against the size of the image, as one plot."""
    if not (runs := values_of_both(reports, 'image_sizes')):
        return
    metric = headline(next(iter(runs.values()))['rows'][0]['metrics'])
    page.section('Image sizes')
    figure = plot_resolutions(
        [dict(run, label=name) for name, run in runs.items()], metric
    )
    page.add_figure('image_sizes', figure, f'{metric} against image size.')


def values_of_both(reports: Reports, name: str) -> dict[str, Any]:
    """Values that both reports have under a name, by run; empty if one has nothing."""
    runs = {run: report[name] for run, report in reports.items() if report.get(name)}
    return runs if len(runs) == len(reports) else {}
