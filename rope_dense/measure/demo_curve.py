"""The course of a training, from the log that mmengine keeps."""

import json
from pathlib import Path

from matplotlib.figure import Figure


def read_scalars(work_dir: str | Path, key: str) -> tuple[list[int], list[float]]:
    """Read the steps and values of one scalar from the newest run of a work folder.

    Raises:
        FileNotFoundError: the folder has no log.
        KeyError: the log has no such scalar.
    """
    logs = sorted(Path(work_dir).glob('*/vis_data/scalars.json'))
    if not logs:
        raise FileNotFoundError(f'{work_dir}: no */vis_data/scalars.json, train there first')
    records = [json.loads(line) for line in logs[-1].read_text().splitlines()]
    points = [(record['step'], record[key]) for record in records if key in record]
    if not points:
        raise KeyError(
            f'{logs[-1]}: no scalar {key!r}, choose from {sorted(set().union(*records))}'
        )
    steps, values = zip(*points, strict=True)
    return list(steps), list(values)


def draw_training_curve(
    work_dir: str | Path, out_file: str | Path, *, metric: str, goal: float
) -> None:
    """Draw the loss and a validation metric against the iteration, with a line at the goal.

    The config must log by iteration (`default_hooks.logger.log_metric_by_epoch=False`).
    """
    figure = Figure(figsize=(7, 3.5), layout='constrained')
    left, right = figure.subplots(1, 2)
    left.plot(*read_scalars(work_dir, 'loss'), color='#e76f51')
    left.set(xlabel='iteration', ylabel='training loss', ylim=(0, None))
    right.plot(*read_scalars(work_dir, metric), color='#269db2', marker='o', markersize=3)
    right.axhline(goal, color='gray', linestyle=':', label=f'goal {goal:.2f}')
    right.set(xlabel='iteration', ylabel=f'{metric} (validation)', ylim=(0, 1))
    right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[['top', 'right']].set_visible(False)
        axes.grid(alpha=0.3)
    figure.savefig(out_file, dpi=150)
