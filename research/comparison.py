"""Results of other runs and of papers beside a sweep's, and differences to a baseline."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rope_dense.measure.plot import draw_resolutions
from rope_dense.measure.results import ResultFile, ResultRow, rows_csv_text
from rope_dense.utils.results import Results

from .papers import read_runs


@dataclass(frozen=True)
class Comparison:
    """Contents of results files that a sweep is compared with.

    Attributes:
        overlays: drawn in the same plots.
        baseline: what metrics are drawn relative to, or None.
    """

    overlays: list[ResultFile]
    baseline: ResultFile | None

    @classmethod
    def read(cls, overlays: Iterable[str], baseline: str | None) -> Comparison:
        """Read ``--overlay`` and ``--relative-to``; ValueError as of ``read_runs``."""
        runs = [run for name in overlays for run in read_runs('--overlay', name)]
        baselines = read_runs('--relative-to', baseline) if baseline else []
        if len(baselines) > 1:
            raise ValueError(
                f'--relative-to {baseline}: give one of its rows, TABLE:ROW'
            )
        return cls(runs, baselines[0] if baselines else None)

    def check(self, run: ResultFile, planned: set[int]) -> None:
        """Check that the baseline has a size of a run, or planned for it, and of each overlay.

        ValueError if it has none. Sizes are shorter sides; the run is the contents of a results
        file, perhaps without rows.
        """
        if self.baseline is None:
            return
        known = rows_by_side(self.baseline).keys()
        for other, more in [
            (run, planned),
            *((overlay, set()) for overlay in self.overlays),
        ]:
            sides = {*map(shorter_side, other['rows']), *more}
            if not sides & known:
                raise ValueError(
                    f'--relative-to: {self.baseline["label"]} has results at '
                    f'{", ".join(map(str, known))} pixels (shorter side), {other["label"]} at '
                    f'{", ".join(map(str, sorted(sides)))}'
                )

    def draw(self, path: Path, run: ResultFile, metric: str) -> list[Path]:
        """Draw a run beside the overlays, and their differences to the baseline.

        Args:
            path: of the results file of the run.

        Returns:
            The files, which are beside the results.

        Raises:
            ValueError: see ``relative_to``.
        """
        runs, plot = [run, *self.overlays], path.with_suffix('.png')
        results = Results(path.parent, path.name)
        with results.write(plot) as partial:
            draw_resolutions(runs, metric, partial)
        if self.baseline is None:
            return [plot]
        files = [path.with_name(f'relative{suffix}') for suffix in ('.csv', '.png')]
        differences = [relative_to(self.baseline, run, metric) for run in runs]
        for run, left_out in differences:
            if left_out:
                print(
                    f'{files[1].name}: {run["label"]} without {", ".join(map(str, left_out))} '
                    f'pixels, which {self.baseline["label"]} does not have'
                )
        runs = [run for run, _ in differences]
        results.write_text(files[0], rows_csv_text(runs))
        with results.write(files[1]) as partial:
            draw_resolutions(runs, metric, partial, baseline=self.baseline['label'])
        return [plot, *files]


def relative_to(
    baseline: ResultFile, run: ResultFile, metric: str
) -> tuple[ResultFile, list[int]]:
    """A run with the difference of a metric to a baseline, at the sizes (shorter sides) of both.

    Args:
        baseline, run: contents of results files; the baseline as for ``rows_by_side``.

    Returns:
        The run, and the sizes that only the run has.

    Raises:
        ValueError: see ``rows_by_side``; or no size is in both.
    """
    values = {
        side: row['metrics'].get(metric) for side, row in rows_by_side(baseline).items()
    }
    rows, left_out = [], []
    for row in run['rows']:
        value, side = row['metrics'].get(metric), shorter_side(row)
        if value is None:
            continue
        at_side = values.get(side)
        if at_side is None:
            left_out.append(side)
        else:
            changed = row.copy()
            changed['metrics'] = {metric: round(value - at_side, 6)}
            rows.append(changed)
    if not rows:
        raise ValueError(
            f'--relative-to: {run["label"]} has {metric} at no size of {baseline["label"]}, '
            f'{", ".join(map(str, values))} pixels'
        )
    difference = run.copy()
    difference['rows'] = rows
    return difference, sorted(set(left_out))


def rows_by_side(baseline: ResultFile) -> dict[int, ResultRow]:
    """The rows of a baseline by size (shorter side); ValueError for several of a size."""
    settings = {
        (row.get('given') or row['scaling'], row['window'], row['slide'])
        for row in baseline['rows']
    }
    rows = {shorter_side(row): row for row in baseline['rows']}
    if len(settings) > 1 or len(rows) < len(baseline['rows']):
        sizes = (f'{row["height"]} x {row["width"]}' for row in baseline['rows'])
        raise ValueError(
            f'--relative-to: {baseline["label"]} must have one scaling, window and slide, and one '
            f'result for each shorter side; it has {", ".join(sorted(map(str, settings)))} and '
            f'{", ".join(sizes)} pixels'
        )
    return rows


def shorter_side(row: ResultRow) -> int:
    """The size of the images of a row, in pixels."""
    return min(row['height'], row['width'])
