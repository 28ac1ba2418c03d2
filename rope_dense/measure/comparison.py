"""Results of other runs beside a sweep's, and differences to a baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from .results import read_results

ReadRuns = Callable[[str, str], list[dict]]


def read_runs(option: str, name: str) -> list[dict]:
    """Contents of a results file, as the only run.

    Args:
        option: of the command line, for messages.
        name: path of the file.

    Raises:
        ValueError: there is no such file.
    """
    try:
        return [read_results(Path(name))]
    except ValueError as error:
        raise ValueError(f'{option}: {error}') from error


@dataclass(frozen=True)
class Comparison:
    """Contents of results files that a sweep is compared with.

    Attributes:
        overlays: drawn in the same plots.
        baseline: what metrics are drawn relative to, or None.
    """

    overlays: list[dict]
    baseline: dict | None

    @classmethod
    def read(cls, overlays: Iterable[str], baseline: str | None, read: ReadRuns) -> Comparison:
        """Read ``--overlay`` and ``--relative-to``.

        Raises:
            ValueError: a name that ``read`` does not know, or several runs as the baseline.
        """
        runs = [run for name in overlays for run in read('--overlay', name)]
        baselines = read('--relative-to', baseline) if baseline else []
        if len(baselines) > 1:
            raise ValueError(f'--relative-to {baseline}: give one of its rows, TABLE:ROW')
        return cls(runs, baselines[0] if baselines else None)

    def check(self, run: dict, planned: set[int]) -> None:
        """Check that the baseline has a size of a run, and of each overlay.

        Args:
            run: contents of a results file, perhaps without rows.
            planned: sizes (shorter sides) that the run will have.

        Raises:
            ValueError: it has none.
        """
        if self.baseline is None:
            return
        known = rows_by_side(self.baseline).keys()
        for other, more in [(run, planned), *((overlay, set()) for overlay in self.overlays)]:
            sides = {*map(shorter_side, other['rows']), *more}
            if not sides & known:
                raise ValueError(
                    f'--relative-to: {self.baseline["label"]} has results at '
                    f'{", ".join(map(str, known))} pixels (shorter side), {other["label"]} at '
                    f'{", ".join(map(str, sorted(sides)))}'
                )


def relative_to(baseline: dict, run: dict, metric: str) -> tuple[dict, list[int]]:
    """A run with the difference of a metric to a baseline, at the sizes (shorter sides) of both.

    Args:
        baseline, run: contents of results files; the baseline as for ``rows_by_side``.

    Returns:
        The run, and the sizes that only the run has.

    Raises:
        ValueError: see ``rows_by_side``; or no size is in both.
    """
    values = {side: row['metrics'].get(metric) for side, row in rows_by_side(baseline).items()}
    rows, left_out = [], []
    for row in run['rows']:
        value, side = row['metrics'].get(metric), shorter_side(row)
        if value is None:
            continue
        if values.get(side) is None:
            left_out.append(side)
        else:
            rows.append(dict(row, metrics={metric: round(value - values[side], 6)}))
    if not rows:
        raise ValueError(
            f'--relative-to: {run["label"]} has {metric} at no size of {baseline["label"]}, '
            f'{", ".join(map(str, values))} pixels'
        )
    return dict(run, rows=rows), sorted(set(left_out))


def rows_by_side(baseline: dict) -> dict[int, dict]:
    """The rows of a baseline by their size (shorter side).

    Raises:
        ValueError: it has several settings, or several rows of a size.
    """
    settings = {(row['scaling'], row['window'], row['slide']) for row in baseline['rows']}
    rows = {shorter_side(row): row for row in baseline['rows']}
    if len(settings) > 1 or len(rows) < len(baseline['rows']):
        sizes = (f'{row["height"]} x {row["width"]}' for row in baseline['rows'])
        raise ValueError(
            f'--relative-to: {baseline["label"]} must have one scaling, window and slide, and one '
            f'result for each shorter side; it has {", ".join(sorted(map(str, settings)))} and '
            f'{", ".join(sizes)} pixels'
        )
    return rows


def shorter_side(row: dict) -> int:
    """The size of the images of a row, in pixels."""
    return min(row['height'], row['width'])
