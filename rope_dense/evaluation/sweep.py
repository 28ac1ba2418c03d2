"""One model at many sizes, scalings and windows."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from collections.abc import Sequence
from functools import partial
from itertools import product

from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.model import BaseModel, is_model_wrapper
from mmengine.runner import Runner

from ..utils.sizes import ImageSize
from .resolution import configured_size
from .results import Results, table_header, table_line
from .settings import AS_CONFIG, Slide, SweepModel, SweepPoint

REPORT_SECONDS = 30.0  # between lines of progress where they cannot be overwritten


def plan(
    sizes: Sequence[str],
    scalings: Sequence[str] = (AS_CONFIG,),
    windows: Sequence[str] = (AS_CONFIG,),
    slide: Slide = 'keep',
) -> list[SweepPoint]:
    """All combinations, each once; size by size for one setting after the other."""
    combinations = dict.fromkeys(product(scalings, windows, sizes))
    return [SweepPoint(size, scaling, window, slide) for scaling, window, size in combinations]


class Evaluator:
    """Evaluates points with one Runner and one model.

    Args:
        runner: with weights loaded and a ``ResolutionLoop``.
        config: the runner's, with the test size and crops that weights were made for.
    """

    def __init__(self, runner: Runner, config: Config) -> None:
        self.runner, self.progress = runner, Progress()
        self.sweep_model = SweepModel(bare_model(runner), config)
        runner.register_hook(self.progress)

    def __call__(self, point: SweepPoint) -> tuple[ImageSize, dict[str, float], float]:
        """Size of the images, metrics, and seconds per image of a point."""
        config = self.sweep_model.apply(point)
        self.progress.title = str(point)
        with contextlib.redirect_stdout(io.StringIO()):  # what pycocotools prints
            metrics = self.runner.test_loop.run_on(config)
        return configured_size(config), metrics, self.progress.seconds_per_image


def evaluate_points(
    points: Sequence[SweepPoint], results: Results, evaluate: Evaluator | None
) -> None:
    """Evaluate the points that are not finished, and print all as a table.

    Args:
        evaluate: None if all are finished.

    Raises:
        ValueError: it is None, and one is not.
    """
    say = partial(print, flush=True) if is_main_process() else lambda line: None
    for scaling in dict.fromkeys(point.scaling for point in points):
        if scaling in results.purposes:
            say(f'scaling {scaling}: {results.purposes[scaling]}')
    for point in points:
        row = results.find(point)
        is_stored = row is not None
        if row is None:
            if evaluate is None:
                raise ValueError(f'evaluate is None, and there is no result of: {point}')
            row = results.add(point, *evaluate(point))
        if point == points[0]:
            say(table_header(row))
        say(table_line(row, is_stored=is_stored))


def bare_model(runner: Runner) -> BaseModel:
    """The model of a runner, out of the wrapper of a distributed run."""
    return runner.model.module if is_model_wrapper(runner.model) else runner.model


class Progress(Hook):
    """Says on standard error how far a test is, and measures it.

    Attributes:
        title: what is tested.
        seconds_per_image: of the last test, loading included, building the data set and metrics
            not.
    """

    def __init__(self) -> None:
        self.title = ''
        self.seconds_per_image = 0.0

    def before_test_epoch(self, runner: Runner) -> None:
        self.started = self.reported = time.monotonic()
        self.images = 0

    def after_test_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | tuple | list | None = None,
        outputs: Sequence = (),
    ) -> None:
        now = time.monotonic()
        self.images += len(outputs)
        self.seconds_per_image = (now - self.started) / self.images
        if is_main_process():
            self.report(now, batch_idx + 1, len(runner.test_dataloader))

    def report(self, now: float, done: int, total: int) -> None:
        overwrites = sys.stderr.isatty()
        if done < total and now - self.reported < (0.2 if overwrites else REPORT_SECONDS):
            return
        self.reported = now
        left = (now - self.started) / done * (total - done)
        text = f'{self.title}: {done} of {total} batches, {left:.0f} s left' * (done < total)
        if overwrites:
            print(f'\r\033[K{text}', end='', file=sys.stderr, flush=True)
        elif text:
            print(text, file=sys.stderr, flush=True)
