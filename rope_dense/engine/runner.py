"""The Runner of the tools: it names images that cannot be loaded, and logs less at the start."""

import copy
import logging
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.dataset import Compose
from mmengine.dist import is_main_process
from mmengine.logging import HistoryBuffer, MessageHub, MMLogger
from mmengine.registry import RUNNERS
from mmengine.runner import FlexibleRunner, LogProcessor, Runner
from mmengine.visualization import Visualizer
from torch.utils.data import DataLoader

from ..data.loading import NamingPipeline
from ..utils.disk import TRAINING
from ..utils.results import Results
from .class_rows_hook import ClassRowsHook
from .divergence import DivergenceHook
from .preemption import PreemptionHook, QuietLoader, start_worker
from .progress_hook import ProgressHook, ShortLogProcessor
from .resume_hook import ResumeHook
from .train_loop import AnyRunner

# Warnings about mmengine's own calls, which no user can mend.
NOISE = ('"FileClient" will be deprecated', '"HardDiskBackend" is the alias')

LOGGED = 10_000  # values; a log line is a mean of the last 50


class BoundedHistories(OrderedDict):
    """Histories of ``LOGGED`` values: each update copies one, and each checkpoint has them all."""

    def __setitem__(self, key: str, history: HistoryBuffer) -> None:
        history.max_length = LOGGED
        super().__setitem__(key, history)


class ToolRunner:
    """Overrides methods of a Runner of mmengine for the tools.

    An image that cannot be loaded raises a ``LoadError``. Until the first iteration only warnings
    reach the terminal: versions, the config and lists of hooks and parameters are in the log file.

    Attributes:
        batch: the files of the current batch, for messages.
        started: a loop has begun.
        trains: the work folder gets the config; only a training writes one.
    """

    batch: tuple[str, ...] = ()
    started = False
    trains = False

    def build_logger(
        self, log_level: int | str = 'INFO', log_file: str | None = None, **kwargs: Any
    ) -> MMLogger:
        """Build the logger, quiet on the terminal until a loop starts."""
        kwargs.setdefault('name', self.log_dir)  # type: ignore[attr-defined]
        logger = super().build_logger(log_level, log_file, **kwargs)  # type: ignore[misc]
        logger.addFilter(lambda record: not record.getMessage().startswith(NOISE))
        # Mmengine's loggers, which stay, would keep a runner with its data.
        runner = weakref.ref(self)

        def is_shown(record: logging.LogRecord) -> bool:
            has_started = getattr(runner(), 'started', True)
            return has_started or record.levelno >= logging.WARNING

        for handler in logger.handlers:
            # A file has a handler of a derived class.
            if type(handler) is logging.StreamHandler:
                handler.addFilter(is_shown)
        return logger

    def build_message_hub(self, message_hub: dict | None = None) -> MessageHub:
        """Build a message hub of this run alone; mmengine's is shared by runs of one second."""
        own = dict(name=self.log_dir)  # type: ignore[attr-defined]
        hub = super().build_message_hub(own)  # type: ignore[misc]
        hub._log_scalars = BoundedHistories()
        return hub

    def build_log_processor(self, log_processor: LogProcessor | dict) -> LogProcessor:
        """Build a log processor; mmengine's own writes short lines."""
        kind = None
        if isinstance(log_processor, dict):
            kind = log_processor.get('type', 'LogProcessor')
        if kind == 'LogProcessor':
            log_processor = {**log_processor, 'type': ShortLogProcessor}
        return super().build_log_processor(log_processor)  # type: ignore[misc]

    def build_visualizer(
        self, visualizer: Visualizer | dict | None = None
    ) -> Visualizer:
        """Build a visualizer of this run alone.

        mmengine keeps visualizers by name, and all configs have the same: the curves of a second
        run of a process would go to the folder of the first.
        """
        if isinstance(visualizer, dict):
            visualizer = {**visualizer, 'name': self.log_dir}  # type: ignore[attr-defined]
        return super().build_visualizer(visualizer)  # type: ignore[misc]

    def call_hook(self, fn_name: str, **kwargs: Any) -> None:
        """Call all hooks, and remember the files of a batch."""
        self.started |= fn_name in ('before_train', 'before_val', 'before_test')
        if fn_name == 'before_train':
            self.dump_config()
        batch = kwargs.get('data_batch')
        if fn_name.startswith('before') and isinstance(batch, dict):
            samples = batch.get('data_samples') or ()
            self.batch = tuple(str(getattr(x, 'img_path', '')) for x in samples)
        super().call_hook(fn_name, **kwargs)  # type: ignore[misc]

    def dump_config(self) -> None:
        """Write the config of a training to its folder when it begins, not when it is refused.

        Of a resumed one without its checkpoint, which the next save removes; of a complete one,
        only its log is recorded.
        """
        if not self.trains or not self.started or not is_main_process():
            return
        given = self.cfg  # type: ignore[attr-defined]
        folder, time = Path(self.work_dir), self.timestamp  # type: ignore[attr-defined]
        results = Results(folder, TRAINING)
        log = folder / time / f'{time}.log'
        # Mmengine gives two runs of one second in a process one logger.
        if log.is_file():
            results.note(log, log)
        if given.get('resume'):
            given = copy.deepcopy(given)
            given.resume = False
            given.load_from = None
        if self.iter < self.max_iters:  # type: ignore[attr-defined]
            name = Path(given.filename or f'{time}.py').name
            with results.write(folder / name) as partial:
                given.dump(partial)

    @staticmethod
    def build_dataloader(
        dataloader: DataLoader | dict,
        seed: int | None = None,
        diff_rank_seed: bool = False,
    ) -> DataLoader:
        """Build a dataloader; see mmengine's Runner."""
        loader = Runner.build_dataloader(dataloader, seed, diff_rank_seed)
        if type(loader) is DataLoader:
            loader.__class__ = QuietLoader
            loader.worker_init_fn = partial(start_worker, loader.worker_init_fn)
        for dataset in nested_datasets(loader.dataset):
            if type(getattr(dataset, 'pipeline', None)) is Compose:
                dataset.pipeline = NamingPipeline(dataset.pipeline.transforms)
        return loader


def nested_datasets(dataset: Any) -> Iterator[Any]:
    """A data set, and those that it concatenates, repeats or mixes."""
    yield dataset
    for part in (*getattr(dataset, 'datasets', ()), getattr(dataset, 'dataset', None)):
        if part is not None:
            yield from nested_datasets(part)


KINDS = dict(Runner=Runner, FlexibleRunner=FlexibleRunner)


def build_runner(cfg: Config, trains: bool = False) -> AnyRunner:
    """The Runner of a config, with ``ToolRunner``'s methods if it is one of mmengine's two."""
    name = cfg.get('runner_type', 'Runner')
    if name in KINDS:
        kind: Any = type(name, (ToolRunner, KINDS[name]), dict(trains=trains))
        runner = kind.from_cfg(cfg)
    else:
        runner = RUNNERS.build(cfg)
    for kind in (
        ClassRowsHook,
        ProgressHook,
        DivergenceHook,
        ResumeHook,
        PreemptionHook,
    ):
        runner.register_hook(kind())
    return runner
