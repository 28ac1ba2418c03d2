"""What tools/eval_resolutions.py and tools/eval_classification.py share."""

import argparse
import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mmengine.config import Config, ConfigDict
from mmengine.dist import is_main_process
from mmengine.runner import Runner
from torch import nn

from ..evaluation.classifier import RoPEClassifier, load_classifier
from ..evaluation.resolution import configured_size
from ..evaluation.results import Identity, Results, headline, read_results
from ..evaluation.settings import SweepModel, SweepPoint, parse_size
from ..evaluation.sweep import Evaluator, bare_model, run_sweep
from ..visualization.resolution_plot import draw_resolutions
from .checkpoints import check_tested_weights
from .errors import UsageError
from .launch import build_runner


def add_sweep_arguments(parser: argparse.ArgumentParser, *, sizes_required: bool) -> None:
    parser.add_argument(
        '--sizes',
        nargs='+',
        required=sizes_required,
        metavar='SIZE',
        help='test sizes in pixels: the shorter side (128), or HEIGHTxWIDTH (96x128); classifiers '
        "take squares (the paper's sizes)",
    )
    parser.add_argument(
        '--scaling',
        nargs='+',
        default=['config'],
        metavar='SCALING',
        help='frequency scalings, TYPE[:FACTOR][+TEMPERATURE]: none, linear, ntk or by_parts; a '
        'number or HEIGHTxWIDTH, without it from each input; log or yarn. Such as none by_parts '
        'ntk:2 by_parts+yarn; config is as the config says (config)',
    )
    parser.add_argument(
        '--window',
        nargs='+',
        metavar='WINDOW',
        help='window sizes in tokens: 7, 7x14 (height x width), auto, none (the whole map), or '
        'config, as the config says (config; auto for classifiers with windows)',
    )
    parser.add_argument('--metric', help='metric to plot (the main one of the task)')
    parser.add_argument('--label', help='name of this run in the plot (name of the config or file)')
    parser.add_argument(
        '--overlay',
        nargs='+',
        type=Path,
        default=[],
        metavar='RESULTS',
        help='results files (.json) of other runs to draw in the same plot',
    )
    parser.add_argument(
        '--overwrite',
        action='store_true',
        help='measure anew; otherwise finished figures of the same model and data are reused',
    )


def training_size_of(config: Config, given: str | None) -> tuple[int, int]:
    """Height and width that a model was trained at: as given, or those of its test images.

    Raises:
        ValueError: what is given is no size.
    """
    if given is None:
        return configured_size(config)
    try:
        size = parse_size(given)
    except ValueError as error:
        raise ValueError(str(error).replace('--sizes', '--train-size')) from error
    return (size, size) if isinstance(size, int) else size


@contextmanager
def usage_errors() -> Iterator[None]:
    """A ValueError within it is the user's to mend."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def check_points(points: list[SweepPoint], sweep_model: SweepModel) -> None:
    """Try all settings on a model before anything long starts.

    Raises:
        UsageError: see ``SweepModel``.
    """
    with usage_errors():
        for point in points:
            sweep_model.apply(point)
            sweep_model.config_of(point)


def loader_of(model: nn.Module, checkpoint: str) -> Callable[[Runner], None]:
    """What puts a checkpoint into the model of a Runner; tried on a model of the same kind first.

    Raises:
        UsageError, CheckpointError: it does not fit.
    """
    if not isinstance(model, RoPEClassifier):
        check_tested_weights(checkpoint, model)
        return Runner.load_or_resume
    load_classifier(model, checkpoint)
    return lambda runner: load_classifier(bare_model(runner), checkpoint)


def open_results(
    args: argparse.Namespace,
    config: Config,
    *,
    name: str,
    training_size: tuple[int, int],
) -> Results:
    """The results of an earlier run of the same, or none yet.

    Args:
        args: of ``add_sweep_arguments``, and ``checkpoint``.
        name: of the config or model, for the label and messages.

    Raises:
        UsageError: the file in the work folder is of something else, or an overlay is none.
    """
    with usage_errors():
        for overlay in args.overlay:
            read_results(overlay)
        return Results(
            Path(config.work_dir) / 'resolutions.json',
            Identity.of(config, name, args.checkpoint),
            label=args.label or Path(name).stem,
            training_size=training_size,
            overwrite=args.overwrite,
        )


def evaluate_points(
    config: Config,
    points: list[SweepPoint],
    results: Results,
    load: Callable[[Runner], None],
    launcher: str = 'none',
) -> None:
    """Evaluate what is not finished, and print the table.

    Args:
        load: puts the weights into the model of the Runner that it is given.
    """
    evaluate = None
    if not all(results.find(point) for point in points):
        quiet = copy.deepcopy(config)
        quiet.log_level = 'WARNING'  # the table is the log
        quiet.test_cfg = ConfigDict(type='ResolutionLoop', fp16=config.test_cfg.get('fp16', False))
        runner = build_runner(quiet, launcher)
        runner.call_hook('before_run')
        load(runner)
        evaluate = Evaluator(runner, config)
    try:
        run_sweep(points, results, evaluate)
    except KeyboardInterrupt:
        stored = f'{len(results.rows)} results are in {results.path}'
        print(f'\nstopped; {stored}: the same command goes on', file=sys.stderr)
        raise


def finish(args: argparse.Namespace, results: Results) -> None:
    """Draw the plot and say where everything is."""
    if not is_main_process():
        return
    metric = args.metric or headline(results.rows[0]['metrics'])
    plot = results.path.with_suffix('.png')
    with usage_errors():
        overlays = [read_results(path) for path in args.overlay]
        draw_resolutions([results.content(), *overlays], metric, plot)
    print(f'\n{results.path}, {results.path.with_suffix(".csv").name}, {plot.name}')
