"""Choose the scaling and the window of a trained model for images of other sizes."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mmengine.config import Config
from mmengine.utils import to_2tuple

from ..project.checks.data import build_dataset
from ..project.errors import UsageError
from ..project.identity import Identity
from ..project.launch import build_runner
from ..project.load import find_model
from ..project.parts import datasets_of
from ..project.ready import ready
from ..project.sizes import configured_size, trained_size
from ..utils.size_text import parse_size
from .bootstrap import DRAWS, RULE
from .candidates import settings_at
from .choice_files import write_choice
from .chooser import Chooser
from .evaluator import Evaluator, bare_model, runner_config
from .per_image import Sample, check_metric
from .settings import Setting
from .sweep import Load, loader_of

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
        scaling, window: to try beside the config's; by default see ``settings_at``.
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
    plan = Plan.prepare(cfg, weights, sizes, train_size, scaling, window)
    most = max(map(len, plan.settings)) - 1
    if draws < DRAWS * most:
        raise UsageError(
            f'--draws {draws}: to compare {most} settings of a size with the config takes '
            f'{DRAWS * most}, or noise is taken for a gain'
        )
    samples = samples_of(plan.config, images, judge, seed)
    out = Path(cfg.work_dir) / FOLDER
    evaluator = plan.evaluator(out / 'log')
    tests = sum(map(len, plan.settings))
    print(f'{tests} tests of {samples[0].number} validation images each')
    if samples[0].number < FEW:
        print(f'{samples[0].number} images are few: intervals are too narrow (docs/evaluation.md)')
    chooser = Chooser(evaluator, samples, draws, tests)
    choices = [chooser.choose(settings) for settings in plan.settings]
    content = dict(
        metric=chooser.metric,
        rule=RULE,
        images=samples[0].number,
        draws=draws,
        seed=seed,
        training_size=plan.trained,
        identity=asdict(Identity.of(plan.config, str(config), weights)),
        sizes=choices,
    )
    write_choice(content, cfg, evaluator, out)
    return content


@dataclass
class Plan:
    """A model, and the settings to compare at each size.

    Attributes:
        config: that tests on validation data.
        load: see ``Sweep``.
        trained: height and width of the training's images.
        settings: for each size, the config's first.
    """

    config: Config
    load: Load
    trained: tuple[int, int]
    settings: list[list[Setting]]

    @classmethod
    def prepare(
        cls,
        config: Config,
        checkpoint: str,
        sizes: Sequence[str],
        train_size: str | None,
        scaling: Sequence[str],
        window: Sequence[str],
    ) -> Plan:
        """Check settings, data and weights; see ``choose_scaling`` for the arguments.

        Raises:
            UsageError, CheckpointError, ValueError: they do not fit, or there is nothing to choose.
        """
        config = with_validation(config)
        config.load_from, config.resume = checkpoint, False
        check_metric(config)
        model = ready(config, 'test', weights=checkpoint).model
        evaluator = Evaluator(model, config)
        if not evaluator.is_ours:
            name = type(model.backbone).__name__
            raise UsageError(f'the backbone must be one of rope_dense, it is {name}')
        tested = configured_size(config)
        trained = trained_size(config) if train_size is None else to_2tuple(parse_size(train_size))
        sizes = sizes or [str(round(min(tested) * by)) for by in GROWTH]
        settings = [
            settings_at(evaluator, size, trained, scaling, window) for size in dict.fromkeys(sizes)
        ]
        if all(len(tried) == 1 for tried in settings):
            raise UsageError(
                'nothing to choose at these sizes: the model has no other windows, and no rotary '
                'embedding whose frequencies can be scaled'
            )
        return cls(config, loader_of(model, checkpoint), trained, settings)

    def evaluator(self, log_folder: Path) -> Evaluator:
        """An evaluator of the trained model, which logs to a folder."""
        settings = runner_config(self.config)
        settings.work_dir = str(log_folder)
        runner = build_runner(settings, 'none')
        runner.call_hook('before_run')
        self.load(runner)
        return Evaluator(bare_model(runner), self.config, runner)


def with_validation(config: Config) -> Config:
    """A copy of a config that tests on its validation data, if it has some."""
    config = copy.deepcopy(config)
    if config.get('val_dataloader') and config.get('val_evaluator'):
        config.test_dataloader = config.val_dataloader
        config.test_evaluator = config.val_evaluator
        config.test_cfg = config.get('test_cfg') or dict(type='TestLoop')
    return config


def samples_of(config: Config, images: int, judge: int, seed: int) -> tuple[Sample, Sample]:
    """The images that choose, and those that judge.

    Raises:
        UsageError: there are not as many images left to judge.
    """
    datasets = datasets_of(config, 'test_dataloader')
    total = sum(len(build_dataset(config, key, dataset)) for key, dataset in datasets)
    chosen = min(images, total)
    if judge > total - chosen:
        raise UsageError(
            f'--judge {judge}: of {total} validation images, --images {images} leaves '
            f'{total - chosen}'
        )
    return Sample(chosen, seed), Sample(judge, seed, chosen)
