"""Choose the scaling and the window of a trained model for images of other sizes."""

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from mmengine.config import Config
from mmengine.utils import to_2tuple

from ..engine.figure_source import FigureSource
from ..project.checks.data import build_dataset
from ..project.contents import configured_size, datasets_of, trained_size
from ..project.identity import Identity
from ..project.load import Options, find_model
from ..project.ready import ready
from ..utils.configs import DOCS
from ..utils.errors import UsageError
from ..utils.results import Results
from ..utils.sizes import ImageSize
from ..utils.validation import parse_size
from .candidates import settings_at
from .choice_files import Choice, TriedSetting, write_choice
from .evaluator import Evaluator
from .per_image import Sample, check_metric, image_indexes, score_images
from .results import columns_text, print_data, shown_settings
from .scores import (
    DRAWS,
    LEAST_IMAGES,
    RULE,
    Difference,
    Scores,
    choose_setting,
    compare_settings,
    draw_images,
)
from .settings import GROWTH, Setting

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
    cfg_options: Options = (),
    work_dir: str | None = None,
    data_root: str | None = None,
    split: str | None = None,
) -> dict:
    """Compare settings on a sample of the validation data, and write the config of each size.

    The folder scaling/ in the work folder gets choice.json, choice.png, and SIZE.py for each size:
    the config at that size with the chosen settings. Validation data is the config's
    `val_dataloader`, or `test_dataloader` if it has none.

    Args:
        config, checkpoint, cfg_options, work_dir, data_root, split: see ``find_model``.
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
    cfg, weights = find_model(
        config, checkpoint, cfg_options, work_dir, data_root, split=split
    )
    if weights is None:
        raise UsageError('each of several tasks is tested with its own config')
    tested = with_validation(cfg)
    check_metric(tested)
    model = ready(tested, 'test', has_weights=False).model
    trained = trained_size(tested)
    if train_size is not None:
        trained = to_2tuple(parse_size(train_size))
    settings = settings_to_compare(
        Evaluator(model, tested),
        sizes,
        trained,
        scaling,
        window,
        tiles,
    )
    numbers = list(map(len, settings))
    most = max(numbers) - 1
    if draws < DRAWS * most:
        raise UsageError(
            f'--draws {draws}: to compare {most} settings of a size with the config takes '
            f'{DRAWS * most}, or noise is taken for a gain'
        )
    ready(tested, 'test', weights=weights, model=model)
    samples = samples_of(tested, images, judge, seed)
    results = Results(Path(cfg.work_dir) / FOLDER, 'choose-scaling')
    names = ['choice.json', 'choice.png']
    names += [f'{tried[0].size}.py' for tried in settings]
    results.check(results.folder / name for name in names)
    print_data(cfg)
    log = results.folder / 'log'
    evaluator = Evaluator.from_checkpoint(tested, weights, work_dir=log)
    tests = sum(numbers)
    number = samples[0].number
    print(f'{tests} tests of {number} {"image" if number == 1 else "images"} each')
    if number < FEW:
        few = f'fewer than {FEW} images: intervals are too narrow'
        if number < LEAST_IMAGES:
            few = f"fewer than {LEAST_IMAGES} images: the config's own setting is kept"
        print(f'{few} ({DOCS}/evaluation.md)')
    chooser = Chooser(evaluator, samples, draws, tests)
    choices = list(map(chooser.choose, settings))
    content = dict(
        metric=choices[0].metric,
        rule=RULE,
        images=number,
        draws=draws,
        seed=seed,
        training_size=trained,
        identity=asdict(Identity.of(tested, str(config), weights)),
        source=asdict(chooser.source()),
        sizes=[choice.content() for choice in choices],
    )
    with results:
        write_choice(choices, content, cfg, evaluator, results)
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
    if not sizes:
        side = min(configured_size(evaluator.config))
        sizes = [str(round(side * by)) for by in GROWTH]
    settings = []
    for size in dict.fromkeys(sizes):
        tried = settings_at(evaluator, size, trained, scaling, window, tiles)
        settings.append(tried)
    if max(map(len, settings)) == 1:
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


def samples_of(
    config: Config,
    images: int,
    judge: int,
    seed: int,
) -> tuple[Sample, Sample]:
    """The images that choose and those that judge; UsageError if too few are left to judge."""
    total = 0
    for found in datasets_of(config, 'test_dataloader'):
        total += len({*image_indexes(build_dataset(config, *found))})
    chosen = min(images, total)
    if judge > total - chosen:
        raise UsageError(
            f'--judge {judge}: of {total} images, --images {images} leaves '
            f'{total - chosen}'
        )
    return Sample(chosen, seed), Sample(judge, seed, chosen)


@dataclass
class Chooser:
    """Settings of one size after the other: tests, a printed line for each, a choice.

    Attributes:
        samples: that choose, and that judge; the second may be empty.
        draws: of the bootstrap.
        tests: number of all that choose, for the progress.
        done: number of these that are done.
    """

    evaluator: Evaluator
    samples: tuple[Sample, Sample]
    draws: int
    tests: int
    done: int = field(default=0, init=False)

    def choose(self, settings: Sequence[Setting]) -> Choice:
        """Choose one of the settings of a size, of which the config's is the first."""
        choosing, judging = self.samples
        size = settings[0].size
        titles = []
        for number, setting in enumerate(settings, start=self.done + 1):
            titles.append(f'test {number} of {self.tests}, {setting}')
        tried, scores = self.compare(settings, choosing, titles)
        self.done += len(settings)
        chosen, reason = choose_setting([row.difference for row in tried])
        tied = []
        for row, other in zip(tried, scores, strict=True):
            gain = self.difference(scores[chosen], other, choosing, len(settings))
            row.tied = not gain.is_clear
            if row.tied and row is not tried[chosen]:
                tied.append(setting_text(row.setting))
        taken = f': {setting_text(settings[chosen])}' if chosen else ''
        print(f'{size}: {reason}{taken}', flush=True)
        if tied:
            print(f'{size}: within the spread of it: {"; ".join(tied)}')
        judged = None
        if chosen and judging.number:
            pair = [settings[0], settings[chosen]]
            titles = [f'on other images, {setting}' for setting in pair]
            (own, again), _ = self.compare(pair, judging, titles)
            judged = own, again
            verdict = 'confirmed' if again.difference.is_clear else 'not confirmed'
            print(f'{size}: {verdict} on {judging.number} other images', flush=True)
        return Choice(scores[0].name, tried, chosen, reason, judged)

    def compare(
        self,
        settings: Sequence[Setting],
        sample: Sample,
        titles: Sequence[str],
    ) -> tuple[list[TriedSetting], list[Scores]]:
        """Each setting with its difference to the first, and its scores; titles of the tests."""
        tried = []
        scores = []
        for setting, title in zip(settings, titles, strict=True):
            found = score_images(self.evaluator, setting, sample, title)
            scores.append(found)
            gain = self.difference(found, scores[0], sample, len(settings))
            tried.append(TriedSetting(setting, found.value, gain))
            if not self.done and found is scores[0]:
                print(f'{self.source()}\n{header_text(found.name, setting)}')
            print(row_text(tried[-1]), flush=True)
        return tried, scores

    def source(self) -> FigureSource:
        """The source of the figures of the images that choose, once there was a test."""
        source = self.evaluator.source(self.evaluator.config)
        return replace(source, images=self.samples[0].number)

    def difference(
        self,
        scores: Scores,
        baseline: Scores,
        sample: Sample,
        settings: int,
    ) -> Difference:
        """The difference of one of so many settings to another; all have the same draws."""
        weights = draw_images(baseline.num_images, self.draws, sample.seed)
        return compare_settings(scores, baseline, weights, max(settings - 1, 1))


def setting_text(setting: Setting) -> str:
    """Scaling and window of a setting, and its tile if there are several."""
    shown = shown_settings(vars(setting))
    return ', '.join(f'{name} {x}' for name, x in shown.items() if name != 'size')


def header_text(metric: str, setting: Setting) -> str:
    """The header of the table that begins with this setting."""
    names = [metric.rpartition('/')[2], 'better by', '90 % from', 'to']
    return columns_text(shown_settings(vars(setting)), names, 11)


def row_text(row: TriedSetting) -> str:
    """A setting as a line of the table."""
    figures = [f'{row.metric:.3f}']
    for value in (row.difference.value, row.difference.low, row.difference.high):
        figures.append(f'{value:+.3f}')
    return columns_text(shown_settings(vars(row.setting)).values(), figures, 11)
