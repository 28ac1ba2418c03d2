"""Tests of one model, built once, at many sizes, scalings and windows."""

from __future__ import annotations

import copy
import io
import time
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.dist import is_main_process
from mmengine.evaluator import Evaluator as Metrics
from mmengine.model import BaseModel
from mmengine.registry import LOOPS
from mmengine.runner import Runner, TestLoop
from mmengine.utils import to_2tuple

from ..backbones.base import Backbone
from ..engine.checkpoint_hook import is_empty, model_of
from ..engine.figure_source import FigureSource
from ..project.contents import at_size, configured_size, resize_steps
from ..project.launch import launch_runner
from ..project.weights import SelfLoadingModel
from ..utils.progress import bar
from ..utils.sizes import ImageSize, Size
from ..utils.validation import parse_size
from .results import ResultRow
from .settings import FROM_CONFIG, Setting, parse_scaling, parse_window


class Evaluator:
    """One model, and the settings that it is tested with.

    Args:
        model: a detector, segmentor or classifier. Its backbone may be one of another package, as
            long as settings leave scaling and window as the config has them.
        config: its config, with the test size and crops of the training.
        runner: runs the tests, with the model and a ``ResolutionLoop``. Without a runner, settings
            can only be checked.
    """

    def __init__(
        self,
        model: BaseModel,
        config: Config,
        runner: Runner | None = None,
    ) -> None:
        self.model = model
        self.config = config
        self.runner = runner
        self.backbone = model.backbone
        self.is_ours = isinstance(self.backbone, Backbone)
        if self.is_ours:
            self.window_size = self.backbone.window_size
            self.rope_scaling = self.backbone.rope_scaling
        self.test_cfg = copy.deepcopy(config.model.get('test_cfg') or ConfigDict())

    @classmethod
    def from_checkpoint(
        cls,
        config: Config,
        checkpoint: str | Path,
        launcher: str = 'none',
        work_dir: str | Path | None = None,
    ) -> Evaluator:
        """An evaluator of the weights of a checkpoint; ``work_dir`` of its log, or the config's."""
        settings = runner_config(config)
        settings.load_from = str(checkpoint)
        settings.resume = False
        settings.work_dir = str(work_dir or config.work_dir)
        runner = launch_runner(settings, launcher)
        runner.call_hook('before_run')
        model = model_of(runner)
        if isinstance(model, SelfLoadingModel):
            model.load_checkpoint(str(checkpoint))
        else:
            runner.load_or_resume()
        return cls(model, config, runner)

    def evaluate(self, setting: Setting, config: Config | None = None) -> ResultRow:
        """Test with a setting.

        Args:
            config: the evaluator's with other data; by default the same.

        Returns:
            A row: the fields of the setting, height and width of the images (their bounds with
            ``keep_ratio``), metrics, and seconds_per_image (loading included, building the data
            set and computing metrics excluded). A metric that is not defined is None.

        Raises:
            ValueError: see ``apply``; or there is no metric.
        """
        assert self.runner is not None, 'settings can only be checked'
        config = self.apply(setting, config)
        with redirect_stdout(io.StringIO()):  # what pycocotools prints
            metrics, seconds = self.runner.test_loop.run_on(config, str(setting))
        if not metrics:
            raise ValueError(f'{setting}: the test gave no metric')
        height, width = configured_size(config)
        row: Any = asdict(setting)
        return ResultRow(
            **row,
            height=height,
            width=width,
            metrics={name: rounded_metric(x) for name, x in metrics.items()},
            seconds_per_image=seconds,
            source=asdict(self.source(config)),
        )

    def source(self, config: Config) -> FigureSource:
        """The source of the figures of the last test, of a config."""
        assert self.runner is not None, 'settings can only be checked'
        loop = self.runner.test_loop
        metrics = loop.evaluator.metrics
        weights = self.runner.cfg.get('load_from')
        return FigureSource.of(config, loop.dataloader.dataset, metrics, weights)

    def apply(self, setting: Setting, config: Config | None = None) -> Config:
        """Set scaling, window and crops of the model; returns the config with the image size.

        Raises:
            ValueError: a setting that the model or the size does not allow, with the option that
                gave it.
        """
        config = at_size(config or self.config, parse_size(setting.size), setting.tile)
        test_cfg = self.test_cfg_of(setting, configured_size(config))
        if self.is_ours:
            grid = self._grid(setting, configured_size(config), test_cfg)
            scaling = self.rope_scaling
            if setting.scaling != FROM_CONFIG:
                scaling = parse_scaling(setting.scaling)
            self.backbone.set_rope_scaling(scaling)
            self._set_window(setting, grid)
        elif (setting.scaling, setting.window) != (FROM_CONFIG, FROM_CONFIG):
            raise ValueError(
                f'--scaling {setting.scaling}, --window {setting.window}: the backbone must be one '
                f'of rope_dense, it is {type(self.backbone).__name__}'
            )
        if self.slides:
            self.model.test_cfg = test_cfg
        return config

    @property
    def slides(self) -> bool:
        """True if the config tests images in overlapping crops."""
        return self.test_cfg.get('mode') == 'slide'

    @property
    def keeps_ratio(self) -> bool:
        """True if image sizes are bounds only."""
        return bool(resize_steps(self.config)[0].get('keep_ratio'))

    def test_cfg_of(self, setting: Setting, size: ImageSize) -> ConfigDict:
        """The model's ``test_cfg`` for images of a size."""
        if setting.slide == 'keep':
            return self.test_cfg
        if not self.slides:
            raise ValueError(
                f'--slide {setting.slide}: the config does not slide (model.test_cfg.mode)'
            )
        if setting.slide == 'whole':
            return ConfigDict(self.test_cfg, mode='whole')
        trained = configured_size(self.config)
        if self.keeps_ratio:
            size = (min(size),) * 2
            trained = (min(trained),) * 2
        scaled = ConfigDict(self.test_cfg)
        for name in {'crop_size', 'stride'} & scaled.keys():  # EoMT's have no stride
            height, width = scaled[name]
            scaled[name] = (
                max(1, round(height * size[0] / trained[0])),
                max(1, round(width * size[1] / trained[1])),
            )
        return scaled

    def _grid(self, setting: Setting, size: ImageSize, test_cfg: ConfigDict) -> Size:
        """Tokens of the first block for images of a size, or their crops; ValueError if none."""
        if test_cfg.get('mode') == 'slide':
            size = tuple(map(min, size, test_cfg.crop_size))
        patch_embed = self.backbone.patch_embed
        grid = patch_embed.grid(*size)
        if min(grid) < 1:
            patch = patch_embed.patch_size
            raise ValueError(
                f'--sizes {setting.size}: {size[0]} x {size[1]} pixels leave no token of {patch} x '
                f'{patch}; give {patch} or more'
            )
        return grid

    def _set_window(self, setting: Setting, grid: Size) -> None:
        """Set the window; ValueError for one larger than the finest map, which equals 'none'."""
        if setting.window == FROM_CONFIG:
            self.backbone.set_window_size(self.window_size)
            return
        if not self.backbone.has_windows:
            raise ValueError(
                f'--window {setting.window}: all blocks of this {type(self.backbone).__name__} '
                'attend globally'
            )
        window = parse_window(setting.window)
        self.backbone.set_window_size(window)
        if window in (None, 'auto'):
            return
        height, width = to_2tuple(window)
        rows, columns = grid
        if self.keeps_ratio:  # either side may be the longer one
            height, width = sorted((height, width))
            rows, columns = sorted(grid)
        if height > rows or width > columns:
            raise ValueError(
                f'--window {setting.window}: larger than the map, {grid[0]} x {grid[1]} tokens at '
                f'--sizes {setting.size}; give a smaller window, auto, or none for the whole map'
            )


def runner_config(config: Config) -> Config:
    """A copy of a config, for a Runner with a ``ResolutionLoop`` that logs warnings only."""
    config = copy.deepcopy(config)
    config.log_level = 'WARNING'
    fp16 = (config.get('test_cfg') or {}).get('fp16', False)
    config.test_cfg = ConfigDict(type='ResolutionLoop', fp16=fp16)
    return config


@LOOPS.register_module()
class ResolutionLoop(TestLoop):
    """mmengine's test loop, run repeatedly by one Runner, with one model on different data.

    It shows progress, and measures the time of an image.
    """

    def run_on(
        self,
        config: Config,
        title: str,
        metrics: Metrics | None = None,
    ) -> tuple[dict[str, float], float]:
        """Metrics on the test data of a config, and the seconds that an image took.

        Other metrics may take the place of the config's; ``title`` is of the progress.
        """
        self.dataloader = self.runner.build_dataloader(config.test_dataloader)
        self.evaluator = metrics or self.runner.build_evaluator(config.test_evaluator)
        self.evaluator.dataset_meta = getattr(self.dataloader.dataset, 'metainfo', None)
        self.images = 0
        started = time.monotonic()
        self.finished = started
        shown = bar(title, len(self.dataloader)) if is_main_process() else nullcontext()
        with shown as self.shown:
            values = self.run()
        return values, (self.finished - started) / max(1, self.images)

    def run_iter(self, idx: int, data_batch: dict) -> None:
        """Test one batch."""
        super().run_iter(idx, data_batch)
        self.finished = time.monotonic()
        self.images += len(data_batch['inputs'])
        if self.shown is not None:
            self.shown.update()


def rounded_metric(value: float) -> float | None:
    """A metric to six places; None where it is not defined: COCO gives -1 there, others NaN."""
    value = round(float(value), 6)  # mmseg's are float32
    return None if is_empty(value) else value
