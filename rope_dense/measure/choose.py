"""Choose the scaling and the window of a trained model for images of other sizes.

Tests of the settings of a size, a table of their differences, and the choice.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from mmengine.config import Config
from mmengine.utils import to_2tuple

from ..project.checks.data import build_dataset
from ..project.contents import configured_size, datasets_of, trained_size
from ..project.identity import Identity
from ..project.load import find_model
from ..project.ready import ready
from ..utils.configs import DOCS
from ..utils.errors import UsageError
from ..utils.results import Results
from ..utils.sizes import ImageSize
from ..utils.validation import parse_size
from .candidates import settings_at
from .choice_files import write_choice
from .evaluator import Evaluator
from .per_image import Sample, check_metric, image_indexes, score_images
from .results import columns_text, shown_settings
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
    trained = (
        trained_size(tested)
        if train_size is None
        else to_2tuple(parse_size(train_size))
    )
    settings = settings_to_compare(
        Evaluator(model, tested), sizes, trained, scaling, window, tiles
    )
    most = max(map(len, settings)) - 1
    if draws < DRAWS * most:
        raise UsageError(
            f'--draws {draws}: to compare {most} settings of a size with the config takes '
            f'{DRAWS * most}, or noise is taken for a gain'
        )
    samples = samples_of(tested, images, judge, seed)
    out = Path(cfg.work_dir) / FOLDER
    names = [
        'choice.json',
        'choice.png',
        *(f'{tried[0].size}.py' for tried in settings),
    ]
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


def samples_of(
    config: Config, images: int, judge: int, seed: int
) -> tuple[Sample, Sample]:
    """The images that choose and those that judge; UsageError if too few are left to judge."""
    datasets = datasets_of(config, 'test_dataloader')
    total = sum(
        len({*image_indexes(build_dataset(config, *found))}) for found in datasets
    )
    chosen = min(images, total)
    if judge > total - chosen:
        raise UsageError(
            f'--judge {judge}: of {total} validation images, --images {images} leaves '
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
        metric: name of the metric, once it is known.
    """

    evaluator: Evaluator
    samples: tuple[Sample, Sample]
    draws: int
    tests: int
    metric: str = field(default='', init=False)
    done: int = field(default=0, init=False)

    def choose(self, settings: Sequence[Setting]) -> dict:
        """Choose one of the settings of a size, of which the config's is the first.

        Returns:
            size, rows (the settings with their metric, their difference to the first with its
            interval, and whether the chosen one is not clearly better: `tied`), chosen (index of a
            row), reason, judged (rows of the first and the chosen one, or None).
        """
        size = settings[0].size
        rows, scores = self.compare(settings, self.samples[0])
        chosen, reason = choose_setting([difference_of(row) for row in rows])
        weights = self.weights(scores[0], self.samples[0])
        for row, other in zip(rows, scores, strict=True):
            row['tied'] = not compare_settings(
                scores[chosen], other, weights, num_comparisons(settings)
            ).is_clear
        taken = f': {setting_text(rows[chosen])}' if chosen else ''
        print(f'{size}: {reason}{taken}', flush=True)
        if tied := [
            setting_text(row)
            for i, row in enumerate(rows)
            if row['tied'] and i != chosen
        ]:
            print(f'{size}: within the spread of it: {"; ".join(tied)}')
        judged = None
        if chosen and self.samples[1].number:
            judged, _ = self.compare([settings[0], settings[chosen]], self.samples[1])
            verdict = (
                'confirmed' if difference_of(judged[1]).is_clear else 'not confirmed'
            )
            print(
                f'{size}: {verdict} on {self.samples[1].number} other images',
                flush=True,
            )
        return dict(size=size, rows=rows, chosen=chosen, reason=reason, judged=judged)

    def compare(
        self, settings: Sequence[Setting], sample: Sample
    ) -> tuple[list[dict], list[Scores]]:
        """A row for each setting, with its difference to the first, and its scores."""
        rows: list[dict] = []
        scores: list[Scores] = []
        for setting in settings:
            title = self.title(setting, sample)
            scores.append(score_images(self.evaluator, setting, sample, title))
            weights = self.weights(scores[0], sample)
            difference = compare_settings(
                scores[-1], scores[0], weights, num_comparisons(settings)
            )
            rows.append(
                dict(asdict(setting), metric=scores[-1].value, **asdict(difference))
            )
            if not self.metric:
                self.metric = scores[0].name
                print(header_text(self.metric, rows[0]))
            print(choice_row_text(rows[-1]), flush=True)
        return rows, scores

    def weights(self, scores: Scores, sample: Sample) -> np.ndarray:
        """The draws of the images of a sample, which are the same for all settings."""
        return draw_images(scores.num_images, self.draws, sample.seed)

    def title(self, setting: Setting, sample: Sample) -> str:
        """The title of the progress of a test."""
        if sample is self.samples[1]:
            return f'on other images, {setting}'
        self.done += 1
        return f'test {self.done} of {self.tests}, {setting}'


def difference_of(row: dict) -> Difference:
    """The difference of a row of ``Chooser.choose``."""
    return Difference(row['value'], row['low'], row['high'], row['least'])


def num_comparisons(settings: Sequence[Setting]) -> int:
    """Comparisons of settings with one of them."""
    return max(len(settings) - 1, 1)


def setting_text(row: dict) -> str:
    """Scaling and window of a row, and its tile if there are several."""
    return ', '.join(
        f'{name} {x}' for name, x in shown_settings(row).items() if name != 'size'
    )


def header_text(metric: str, row: dict) -> str:
    """The header of the table that begins with this row."""
    names = [metric.rpartition('/')[2], 'better by', '90 % from', 'to']
    return columns_text(shown_settings(row), names, 11)


def choice_row_text(row: dict) -> str:
    """A row of ``Chooser.choose`` as a line of the table."""
    figures = [f'{row["metric"]:.3f}']
    figures += [f'{row[name]:+.3f}' for name in ('value', 'low', 'high')]
    return columns_text(shown_settings(row).values(), figures, 11)
