"""Tests of one model at many sizes, scalings and windows: eval-resolutions, eval-classification."""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from mmengine.config import Config
from mmengine.dist import is_main_process
from mmengine.model import BaseModel
from mmengine.runner import Runner
from mmengine.utils import to_2tuple

from ..checks.data import check_data
from ..checks.model import build_model
from ..project.angles import check_convention
from ..project.identity import Identity
from ..project.launch import build_runner
from ..project.sizes import at_size, configured_size, parse_size
from ..project.weights import SelfLoading, check_tested_weights
from ..utils.atomic_write import atomic_write_text
from ..utils.lock import exclusive
from .comparison import Comparison, ReadRuns, read_runs, relative_to
from .evaluator import Evaluator, bare_model, runner_config
from .plot import draw_resolutions
from .results import Results, headline, rows_as_csv, table_header, table_line
from .settings import FROM_CONFIG, Setting, Slide, combine

Load = Callable[[Runner], None]


def prepare_sweep(
    args: argparse.Namespace,
    config: Config,
    *,
    name: str,
    sizes: Sequence[str],
    window: str = FROM_CONFIG,
    slide: Slide = 'keep',
    read_runs: ReadRuns = read_runs,
) -> Callable[..., None]:
    """Check all options, then return a function that runs the sweep, see ``run_sweep``.

    UsageError or CheckpointError for data, settings or files that do not fit: nothing is written
    before all of them are checked, so the model is built here, and by the Runner again.

    Args:
        args: of ``add_sweep_arguments`` in arguments.py, with ``checkpoint`` and
            ``train_size``.
        name: of the config or model, for the label and messages.
        sizes: see ``--sizes``.
        window: unless ``--window`` is given.
        read_runs: runs by the names that ``--overlay`` and ``--relative-to`` have.
    """
    check_data(config, ('test_dataloader',))
    model = build_model(config)
    settings = combine(sizes, args.scaling, args.window or [window], slide)
    training_size = configured_size(config)
    if args.train_size is not None:
        training_size = to_2tuple(parse_size(args.train_size))
    evaluator = Evaluator(model, config)
    for setting in settings:
        evaluator.apply(setting)
    comparison = Comparison.read(args.overlay, args.relative_to, read_runs)
    load = loader_of(config, model, args.checkpoint)
    results = Results(
        Path(config.work_dir) / 'resolutions.json',
        Identity.of(config, name, args.checkpoint),
        args.label or Path(name).stem,
        training_size,
    )
    if not args.overwrite:
        results.resume()
    planned = {min(configured_size(at_size(config, parse_size(x.size)))) for x in settings}
    comparison.check(results.content(), planned)
    return partial(run_sweep, args, config, settings, results, comparison, load)


def loader_of(config: Config, model: BaseModel, checkpoint: str) -> Load:
    """Load a checkpoint into a model; returns a function that loads it into a Runner's model."""
    check_convention(config, check_tested_weights(checkpoint, model))
    if isinstance(model, SelfLoading):
        return lambda runner: bare_model(runner).load_checkpoint(checkpoint)
    return Runner.load_or_resume


def run_sweep(
    args: argparse.Namespace,
    config: Config,
    settings: Sequence[Setting],
    results: Results,
    comparison: Comparison,
    load: Load,
    launcher: str = 'none',
) -> None:
    """Test the settings that have no result, print all as a table, draw the plots."""
    evaluator = None
    if is_main_process() and any(setting.scaling != FROM_CONFIG for setting in settings):
        print('scalings: docs/evaluation.md says which one is for which images')
    if not all(results.find(setting) for setting in settings):
        runner = build_runner(runner_config(config), launcher)
        runner.call_hook('before_run')
        load(runner)
        evaluator = Evaluator(bare_model(runner), config, runner)
    lock = exclusive(results.path) if is_main_process() else nullcontext()
    try:
        with lock:
            if not args.overwrite:  # another process may have added rows since it was read
                results.resume()
            print_table(settings, results, evaluator)
    except KeyboardInterrupt:
        stored = f'{len(results.rows)} results are in {results.path}'
        print(f'\nstopped; {stored}: the same command continues', file=sys.stderr)
        raise
    if is_main_process():
        files = draw(results, comparison, args.metric)
        print(f'\n{results.path}, {", ".join(file.name for file in files)}')


def print_table(settings: Sequence[Setting], results: Results, evaluator: Evaluator | None) -> None:
    """Print a line for each setting; those without a result are tested first.

    Args:
        evaluator: None if there is a result of every setting.
    """
    for setting in settings:
        row, note = results.find(setting), ' (reused)'
        if row is None:
            assert evaluator is not None, setting
            row, note = evaluator.evaluate(setting), ''
            results.add(row)
        if is_main_process():
            header = f'{table_header(row)}\n' * (setting == settings[0])
            print(f'{header}{table_line(row)}{note}', flush=True)


def draw(results: Results, comparison: Comparison, metric: str | None) -> list[Path]:
    """Draw results and what they are compared with; returns the files beside ``results.path``."""
    metric = metric or headline(results.rows[0]['metrics'])
    runs = [results.content(), *comparison.overlays]
    files = [results.path.with_suffix(suffix) for suffix in ('.csv', '.png')]
    draw_resolutions(runs, metric, files[1])
    if (baseline := comparison.baseline) is None:
        return files
    table, plot = (results.path.with_name(f'relative{suffix}') for suffix in ('.csv', '.png'))
    differences = [relative_to(baseline, run, metric) for run in runs]
    for run, left_out in differences:
        if left_out:
            print(
                f'{plot.name}: {run["label"]} without {", ".join(map(str, left_out))} pixels, '
                f'which {baseline["label"]} does not have'
            )
    runs = [run for run, _ in differences]
    atomic_write_text(table, rows_as_csv(runs))
    draw_resolutions(runs, metric, plot, baseline=baseline['label'])
    return [*files, table, plot]
