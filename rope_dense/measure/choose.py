"""Choose the scaling and the window of a trained model for images of other sizes."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from mmengine.config import Config
from mmengine.utils import to_2tuple

from ..project.checks.data import build_dataset
from ..project.errors import UsageError
from ..project.identity import Identity
from ..project.load import find_model
from ..project.parts import datasets_of
from ..project.ready import ready
from ..project.sizes import configured_size, trained_size
from ..utils.configs import DOCS
from ..utils.results import Results
from ..utils.size_text import parse_size
from ..utils.sizes import ImageSize
from .bootstrap import DRAWS, LEAST_IMAGES, RULE
from .candidates import settings_at
from .choice_files import write_choice
from .chooser import Chooser
from .evaluator import Evaluator
from .per_image import Sample, check_metric, image_indexes
from .settings import Setting

GROWTH = (1, 1.5, 2)  # of the default sizes
FOLDER = 'scaling'  # in the work folder
FEW = 50  # images


def choose_scaling(
    config: str | Path,
    checkpoint: str | Path | None = None,
    *,
    sizes: Sequence[str] = (),
    scaling: Sequence[str] = (),
    window: Sequence[str] = (),
    tiles: Sequence[int] = (),
    images: int = 200,
    judge: int = 0,
    draws: int = 1000,
    seed: int = 0,
    train_size: str | None = None,
    cfg_options: Iterable[str] | Mapping[str, object] = (),
    work_dir: str | None = None,
    data_root: str | None = None,
) -> dict:
    """Compare settings on a sample of the validation data, and write the config of each size.

    The folder scaling/ in the work folder gets choice.json, choice.png, and SIZE.py for each size:
    the config at that size with the chosen settings. Validation data is the config's
    `val_dataloader`, or `test_dataloader` if it has none.

    Args:
        config, checkpoint, cfg_options, work_dir, data_root: see ``find_model``.
        sizes: see ``evaluate_sizes``; by default 1, 1.5 and 2 times the config's.
        scaling, window, tiles: to try beside the config's; by default see ``settings_at``.
        images: number of the images that choose; all of a smaller data set.
        judge: number of other images, on which a chosen setting is compared once more.
        draws: of the bootstrap, at least ``DRAWS`` for each setting beside the config's.
        seed: of sample and draws.
        train_size: size of the training's images, by default see ``trained_size``.

    Returns:
        The content of choice.json.

    Raises:
        UsageError, CheckpointError, ValueError: settings, files or data that cannot be used; they
            are checked before anything is written.
    """
    cfg, weights = find_model(config, checkpoint, cfg_options, work_dir, data_root)
    if weights is None:
        raise UsageError('each of several tasks is tested with its own config')
    tested = with_validation(cfg)
    check_metric(tested)
    model = ready(tested, 'test', weights=weights).model
    trained = trained_size(tested) if train_size is None else to_2tuple(parse_size(train_size))
    settings = settings_to_compare(Evaluator(model, tested), sizes, trained, scaling, window, tiles)
    most = max(map(len, settings)) - 1
    if draws < DRAWS * most:
        raise UsageError(
            f'--draws {draws}: to compare {most} settings of a size with the config takes '
            f'{DRAWS * most}, or noise is taken for a gain'
        )
    samples = samples_of(tested, images, judge, seed)
    out = Path(cfg.work_dir) / FOLDER
    names = ['choice.json', 'choice.png', *(f'{tried[0].size}.py' for tried in settings)]
    results = Results(out, 'choose-scaling')
    results.check(out / name for name in names)
    evaluator = Evaluator.from_checkpoint(tested, weights, work_dir=out / 'log')
    tests = sum(map(len, settings))
    number = samples[0].number
    print(f'{tests} tests of {number} validation image{"s" * (number != 1)} each')
    if number < FEW:
        few = f'fewer than {FEW} images: intervals are too narrow'
        if number < LEAST_IMAGES:
            few = f"fewer than {LEAST_IMAGES} images: the config's own setting is kept"
        print(f'{few} ({DOCS}/evaluation.md)')
    chooser = Chooser(evaluator, samples, draws, tests)
    choices = [chooser.choose(tried) for tried in settings]
    content = dict(
        metric=chooser.metric,
        rule=RULE,
        images=number,
        draws=draws,
        seed=seed,
        training_size=trained,
        identity=asdict(Identity.of(tested, str(config), weights)),
        sizes=choices,
    )
    with results:
        write_choice(content, cfg, evaluator, results)
    return content


def settings_to_compare(
    evaluator: Evaluator,
    sizes: Sequence[str],
    trained: ImageSize,
    scaling: Sequence[str],
    window: Sequence[str],
    tiles: Sequence[int],
) -> list[list[Setting]]:
    """The settings of each size, the config's first; UsageError, ValueError for wrong ones."""
    if not evaluator.is_ours:
        name = type(evaluator.backbone).__name__
        raise UsageError(f'the backbone must be one of rope_dense, it is {name}')
    tested = configured_size(evaluator.config)
    sizes = sizes or [str(round(min(tested) * by)) for by in GROWTH]
    settings = [
        settings_at(evaluator, size, trained, scaling, window, tiles)
        for size in dict.fromkeys(sizes)
    ]
    if all(len(tried) == 1 for tried in settings):
        raise UsageError(
            'nothing to choose at these sizes: the model has no other windows, and no rotary '
            'embedding whose frequencies can be scaled'
        )
    return settings


def with_validation(config: Config) -> Config:
    """A copy of a config that tests on its validation data, if it has some."""
    config = copy.deepcopy(config)
    if config.get('val_dataloader') and config.get('val_evaluator'):
        config.test_dataloader = config.val_dataloader
        config.test_evaluator = config.val_evaluator
        config.test_cfg = config.get('test_cfg') or dict(type='TestLoop')
    return config


def samples_of(config: Config, images: int, judge: int, seed: int) -> tuple[Sample, Sample]:
    """The images that choose and those that judge; UsageError if too few are left to judge."""
    datasets = datasets_of(config, 'test_dataloader')
    total = sum(len({*image_indexes(build_dataset(config, *found))}) for found in datasets)
    chosen = min(images, total)
    if judge > total - chosen:
        raise UsageError(
            f'--judge {judge}: of {total} validation images, --images {images} leaves '
            f'{total - chosen}'
        )
    return Sample(chosen, seed), Sample(judge, seed, chosen)
