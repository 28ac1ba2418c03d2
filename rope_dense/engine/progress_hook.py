"""The log and the screen of a run: short lines, a bar of progress, the figures of evaluations."""

import io
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from functools import partial
from numbers import Real
from typing import Any

from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import LogProcessor, Runner
from tqdm import tqdm

from .checkpoint_hook import is_empty
from .figure_source import FigureSource, log_source
from .train_loop import epoch_length

# Losses of one layer, of denoising queries or of the encoder, such as d0.loss_cls, dn_loss_bbox,
# decode.d3.loss_mask and dn_pre.loss_giou.
OF_LAYERS = re.compile(r'(?:^|[._])(?:d\d+|dn|pre|enc)[._]')

KINDS = dict(bbox='boxes', segm='masks')
SHORT = dict(mAP_50='AP50', mAP_75='AP75', mAP_s='small', mAP_m='medium', mAP_l='large')

# Of mmdet's ``CocoMetric``, by default.
COCO_ITEMS = ('mAP', *SHORT)


class ShortLogProcessor(LogProcessor):
    """mmengine's log line without the losses of single layers, which scalars.json has.

    A line of the real-time detector has some sixty of them.
    """

    def get_log_after_iter(
        self, runner: Runner, batch_idx: int, mode: str
    ) -> tuple[dict, str]:
        """All values of an iteration, and the line of the log."""
        tag, line = super().get_log_after_iter(runner, batch_idx, mode)
        items = line.split('  ')
        kept = [item for item in items if not OF_LAYERS.search(item.partition(':')[0])]
        left = len(items) - len(kept)
        if left:
            kept.append(f'(and {left} losses in scalars.json)')
        return tag, '  '.join(kept)


def no_boxes(evaluator: Evaluator) -> dict[str, float]:
    """0 for the figures of mmdet's ``CocoMetric``, which has none if a test finds no box at all."""
    names = []
    for metric in evaluator.metrics:
        if type(metric).__name__.endswith('CocoMetric') and not metric.format_only:
            items = metric.metric_items or COCO_ITEMS
            kinds = [kind for kind in metric.metrics if kind in KINDS]
            for kind in kinds:
                names += [f'{metric.prefix}/{kind}_{item}' for item in items]
    return dict.fromkeys(names, 0.0)


def figures_of(metrics: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """Short names and texts of metrics, of boxes, of masks or of neither, without classes."""
    rows: dict[str, dict[str, str]] = {}
    for key, value in metrics.items():
        name = key.rpartition('/')[2]
        if isinstance(value, Real) and not name.endswith('_precision'):
            start, _, end = name.partition('_')
            kind = KINDS.get(start, '')
            name = end if kind else name
            text = f'{value:.3f}' if value < 10 else f'{value:.2f}'
            if is_empty(value):
                text = '-'
            rows.setdefault(kind, {})[SHORT.get(name, name)] = text
    return rows or {'': {'no figures': '(the log file says why)'}}


def figures_line_text(title: str, metrics: Mapping[str, object], is_best: bool) -> str:
    """The figures of an evaluation, in one line for boxes and one for masks."""
    lines = []
    for kind, row in figures_of(metrics).items():
        figures = '  '.join([kind, *map(' '.join, row.items())])
        lines.append(f'{title}: {figures.strip()}')
    text = '\n'.join(lines)
    return f'{text}  (best so far)' if is_best else text


def figures_table_text(metrics: Mapping[str, object]) -> str:
    """The figures of a test, in a column each."""
    rows = figures_of(metrics)
    names: dict[str, str] = {}
    for row in rows.values():
        names |= dict.fromkeys(row, '')
    table = [['', *names]]
    for kind, row in rows.items():
        figures = names | row
        table.append([kind, *figures.values()])
    lines = []
    for cells in table:
        line = ''.join(f'{cell:>10}' for cell in cells)
        lines.append(line.rstrip())
    return '\n'.join(lines)


SECONDS = 10.0
# Modules whose lines a bar replaces.
REPLACED = ('checkpoint_hook', 'progress_hook')
NAMES = dict(val='validation', test='test')


@HOOKS.register_module()
class ProgressHook(Hook):
    """Shows the iteration, the loss and the time left, and the figures of evaluations.

    On a terminal it is a bar, else a line after the first iteration and each 10 s. The lines of
    mmengine's ``LoggerHook``, which count iterations, and these take from milliseconds to a minute,
    are in the log file alone, as is what evaluators log and print; the screen has a line of
    figures, and after a test a table.
    """

    priority = 'VERY_LOW'  # behind the logger and the best checkpoint

    def __init__(self, seconds: float = SECONDS) -> None:
        self.seconds = seconds
        self.logged_at = 0.0
        self.evaluates = self.tests = False
        self.bar: tqdm | None = None

    def before_run(self, runner: Runner) -> None:
        for handler in runner.logger.handlers:
            # A file has a handler of a derived class.
            if type(handler) is logging.StreamHandler:
                handler.addFilter(self.is_for_screen)

    def is_for_screen(self, record: logging.LogRecord) -> bool:
        """Return whether the screen gets a line of the log, too; the bar makes room for it."""
        if record.levelno < logging.WARNING:
            is_table = self.tests and record.getMessage().startswith('\n')  # of classes
            has_figures = record.funcName in ('after_val_epoch', 'after_test_epoch')
            if has_figures or (self.evaluates and not is_table):
                return False
            if record.module == 'logger_hook':
                return False
            if record.module in REPLACED and has_terminal():
                return False
        if self.bar is not None:
            self.bar.clear()
        return True

    def before_train(self, runner: Runner) -> None:
        self.training = self.logged_at = time.monotonic()
        self.first = runner.iter
        if runner.val_loop is not None:
            log_source(runner)

    def after_train_iter(
        self, runner: Runner, batch_idx: int, *args: Any, **others: Any
    ) -> None:
        done = runner.iter + 1
        total = runner.max_iters
        each = epoch_length(runner.train_dataloader)
        left = time_left_text(self.training, done - self.first, total - done)
        epoch = runner.iter // each + 1
        epochs = -(-total // each)
        text = f'epoch {epoch} of {epochs}, iteration {done} of {total}, {left}'
        loss = runner.message_hub.log_scalars.get('train/loss')
        if loss is not None:
            text += f', loss {loss.current():.4g}'
        self.show(runner, text, done / total, at_once=done == self.first + 1)

    def after_train(self, runner: Runner) -> None:
        self.remove_bar()

    def _before_epoch(self, runner: Runner, mode: str = 'train') -> None:
        if mode != 'train':
            self.remove_bar()
            self.testing = time.monotonic()
            self.tests = mode == 'test'
            self.best = runner.message_hub.get_info('best_ckpt')
            evaluator = getattr(runner, f'{mode}_loop').evaluator
            if 'evaluate' not in vars(evaluator):
                evaluator.evaluate = partial(
                    self.evaluate, runner.logger, evaluator, evaluator.evaluate
                )

    def _after_iter(
        self, runner: Runner, batch_idx: int, *args: Any, **others: Any
    ) -> None:
        mode = others['mode']
        done = batch_idx + 1
        total = len(getattr(runner, f'{mode}_dataloader'))
        left = time_left_text(self.testing, done, total - done)
        self.show(runner, f'{NAMES[mode]}: {done} of {total}, {left}', done / total)

    def evaluate(
        self,
        logger: logging.Logger,
        evaluator: Evaluator,
        compute: Callable[[int], dict],
        size: int,
    ) -> dict:
        """Compute metrics; what that logs and prints goes to the log file."""
        self.evaluates = True
        printed = io.StringIO()
        try:
            with redirect_stdout(printed):
                return no_boxes(evaluator) | compute(size)
        finally:
            text = printed.getvalue().strip()
            if text:
                logger.info(text)
            self.evaluates = False

    def after_val_epoch(self, runner: Runner, metrics: dict | None = None) -> None:
        self.remove_bar()
        if runner.rank == 0:
            epoch, within = divmod(runner.iter, epoch_length(runner.train_dataloader))
            step = f'iteration {runner.iter}' if within else f'epoch {epoch}'
            is_best = runner.message_hub.get_info('best_ckpt') != self.best
            print(figures_line_text(step, metrics or {}, is_best), flush=True)

    def after_test_epoch(self, runner: Runner, metrics: dict | None = None) -> None:
        self.remove_bar()
        if runner.rank == 0:
            source = FigureSource.of_runner(runner, 'test')
            print(f'{source}\n{figures_table_text(metrics or {})}', flush=True)

    def show(
        self, runner: Runner, text: str, share: float, at_once: bool = False
    ) -> None:
        """Update the bar, and log a line, at once or if the last one is old enough."""
        if at_once or time.monotonic() - self.logged_at >= self.seconds:
            self.logged_at = time.monotonic()
            runner.logger.info(text)
        if runner.rank == 0 and has_terminal():
            if self.bar is None:
                self.bar = tqdm(
                    bar_format='{percentage:3.0f}%|{bar:10}| {desc}',
                    desc=text,
                    initial=share,
                    miniters=0,
                    total=1,
                    leave=False,
                )
            self.bar.set_description_str(text, refresh=False)
            self.bar.update(share - self.bar.n)

    def remove_bar(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.close()
        self.bar = None


def has_terminal() -> bool:
    """Return whether a terminal can show a bar; it may have no width."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        return False
    with suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns > 0
    return True


def time_left_text(started: float, done: int, left: int) -> str:
    """The time for as many iterations as are left."""
    seconds = (time.monotonic() - started) / done * left
    return f'{tqdm.format_interval(seconds)} left'
