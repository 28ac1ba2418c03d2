"""Two reports side by side."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from ..measure.plot import plot_resolutions
from ..measure.results import ResultFile, headline
from ..utils.errors import UsageError
from ..utils.results import Results
from . import figures
from .page import FIGURES, NAME, Page
from .record import LOST, NUMBER, Comparison, ReportRecord, Row
from .settings import differing_settings

Reports = Mapping[str, ReportRecord]  # by the name of the run
Value = TypeVar('Value')

# Of the table of classes; others would not fit.
COLUMNS = 'AP AP50 f1 IoU boundary PQ SQ RQ rmse abs_rel'.split()
SETTINGS = 40  # rows at most


def compare_runs(first: Path, second: Path, out: Path) -> Path:
    """Write a page on the differences of two runs that have a report; returns its path.

    Raises:
        UsageError: a run has no report, or they are of different tasks.
        ForeignFileError: a file that would be written is the user's, or one of the reports.
    """
    a, b = run_names(first, second)
    reports = {a: read_report(first), b: read_report(second)}
    columns, others = map(class_columns, reports.values())
    if columns != others:
        raise UsageError(f'--compare {first} {second}: reports of different tasks')
    files = [report_file(first), report_file(second)]
    with Results(out, NAME, files) as results:
        about = {run: report.about['checkpoint'] for run, report in reports.items()}
        page = Page(results, f'{a} and {b}', Comparison(about=about))
        add_settings(page, reports)
        add_classes(page, reports, [name for name in COLUMNS if name in columns])
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
    inside = run / 'report'
    return (inside if inside.is_dir() else run) / FIGURES


def read_report(run: Path) -> ReportRecord:
    """The report of a run; UsageError if there is none."""
    again = f'run `rope-dense report {run}`'
    try:
        return ReportRecord.parse(report_file(run).read_text(encoding='utf-8'))
    except KeyError as error:
        raise UsageError(f'--compare {run}: an old report, {again} again') from error
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f'--compare {run}: no report, {again}') from error


def class_columns(report: ReportRecord) -> list[str]:
    """The columns of the table of classes."""
    assert report.classes, 'every class has a row, and all of them'
    return list(report.classes[0])


def add_settings(page: Page[Comparison], reports: Reports) -> None:
    """Add the settings in which the runs differ, and the iterations that they trained for."""
    (a, first), (b, second) = reports.items()
    rows = differing_settings(first.settings, second.settings)
    last = last_iteration(first)
    other = last_iteration(second)
    if last != other:
        rows.insert(0, ('last iteration of the run', last, other))
    text = 'Folders of data and output are left out, but for own.data_root.'
    if not rows:
        text = f'The runs have the same settings. {text}'
    elif len(rows) > SETTINGS:
        text = f'The first {SETTINGS} of {len(rows)}, settings of own data before what they change.'
    page.section('Differences of the settings', text)
    for key, x, y in rows[:SETTINGS]:
        page.record.settings.append({'setting': key, a: str(x), b: str(y)})
    page.add_table(page.record.settings)


def last_iteration(report: ReportRecord) -> float | None:
    """The last iteration of the losses of a training, if it is known."""
    losses = report.losses or {}
    iterations, _ = losses.get('loss', ([None], []))
    return iterations[-1]


def add_classes(page: Page, reports: Reports, columns: Sequence[str]) -> None:
    """Add the main figures of each class, or range of distances."""
    text = f'Each figure of {" and of ".join(reports)}, and the change.'
    tables = {run: by_key(x.classes, 'class') for run, x in reports.items()}
    first, second = tables.values()
    others = sorted(first.keys() ^ second.keys())
    if others:
        text += f' Only one of them has {", ".join(others)}: their means are of other classes.'
    page.section('Classes', text)
    caption = f'{columns[0]} by class.'
    page.record.classes = add_changes(
        page,
        'classes',
        'class',
        tables,
        columns,
        caption,
    )


def add_errors(page: Page, reports: Reports) -> None:
    """Add the kinds of error of two detectors."""
    tables = {run: by_key(x.errors, 'error') for run, x in reports.items()}
    if all(tables.values()):
        text = 'A negative change: the second model has less of it.'
        page.section('Kinds of error', text)
        columns = [LOST, NUMBER]
        caption = 'AP50 lost by kind of error.'
        page.record.errors = add_changes(
            page,
            'errors',
            'error',
            tables,
            columns,
            caption,
        )


def by_key(rows: Sequence[Row] | None, key: str) -> dict[str, Row]:
    """Rows by their value of `key`."""
    return {row[key]: row for row in rows or ()}


def add_changes(
    page: Page,
    name: str,
    key: str,
    tables: Mapping[str, Mapping[str, Row]],
    columns: Sequence[str],
    caption: str,
) -> list[Row]:
    """Add a table with the figures of both runs, and their bars in the first of the columns.

    Args:
        name: of the file of the bars.
        key: the first column, which rows are matched by.
        tables: of each run the rows by that column.

    Returns:
        The rows of the table.
    """
    main = columns[0]
    rows = []
    (a, first), (b, second) = tables.items()
    lengths: dict[str, Row] = {a: {}, b: {}}
    for place in {**first, **second}:
        row = first.get(place, {})
        other_row = second.get(place, {})
        lengths[a][place] = row.get(main)
        lengths[b][place] = other_row.get(main)
        cells: Row = {key: place}
        for column in columns:
            value = row.get(column)
            other = other_row.get(column)
            change = None if value is None or other is None else other - value
            cells[f'{column}, {a}'] = value
            cells[f'{column}, {b}'] = other
            cells[f'{column}, change'] = change
        rows.append(cells)
    page.add_figure(name, figures.draw_bars(lengths, main), caption)
    page.add_table(rows)
    return rows


def add_plots(page: Page, reports: Reports) -> None:
    """Add plots of the test, each where both runs have it."""
    a, b = reports.values()
    lines = of_both(reports, a.precision_recall, b.precision_recall)
    if lines:
        page.section('Precision and recall')
        figure = figures.draw_lines(lines, 'recall', 'precision', unit=True)
        page.add_figure('precision_recall', figure, 'At IoU 0.5, by class.')
    counts = of_both(reports, a.confusion, b.confusion)
    if counts and a.names == b.names:
        tables = {run: np.array(rows) for run, rows in counts.items()}
        names = [*a.names, 'nothing'][: len(next(iter(tables.values())))]
        page.section('Confusion')
        page.add_figure('confusion', figures.draw_matrix(tables, names), 'Rows: truth.')
    ranges = of_both(reports, a.calibration, b.calibration)
    if ranges:
        figure = figures.draw_calibration(ranges)
        page.section('Calibration')
        page.add_figure('calibration', figure, 'True positives by score.')


def add_training(page: Page, reports: Reports) -> None:
    """Add the loss, and the main metric of each evaluation, as one plot each."""
    a, b = reports.values()
    losses = of_both(reports, a.losses, b.losses)
    if losses and all('loss' in lines for lines in losses.values()):
        curves = {run: lines['loss'] for run, lines in losses.items()}
        figure = figures.draw_lines({'': curves}, 'iteration', 'loss')
        page.section('Training')
        page.add_figure('losses', figure, 'Loss.')
    metrics = of_both(reports, a.metrics, b.metrics)
    if metrics:
        metric = headline(next(iter(metrics.values())))
        curves = {run: x[metric] for run, x in metrics.items() if metric in x}
        figure = figures.draw_lines({'': curves}, 'step of the evaluation', metric)
        page.add_figure('metrics', figure, f'{metric}.')


def add_image_sizes(page: Page, reports: Reports) -> None:
    """Add the main metric against the size of the image, as one plot."""
    a, b = (report.image_sizes for report in reports.values())
    if a and b:
        first, second = reports
        metric = headline(a['rows'][0]['metrics'])
        page.section('Image sizes')
        runs = [ResultFile({**a, 'label': first}), ResultFile({**b, 'label': second})]
        figure = plot_resolutions(runs, metric)
        page.add_figure('image_sizes', figure, f'{metric} against image size.')


def of_both(
    runs: Iterable[str],
    first: Value | None,
    second: Value | None,
) -> dict[str, Value]:
    """The values of two runs by name; empty if one has nothing."""
    return dict(zip(runs, (first, second), strict=True)) if first and second else {}
