"""Tests of one model at many sizes, scalings and windows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from mmengine.config import Config, ConfigDict
from mmengine.dist import is_main_process
from mmengine.utils import to_2tuple

from ..project.contents import at_size, configured_size, tile_plan, trained_size
from ..project.identity import Identity
from ..project.launch import init_rank, should_merge
from ..project.load import Options, find_model
from ..project.ready import ready
from ..utils.configs import DOCS
from ..utils.errors import UsageError
from ..utils.validation import parse_size
from .candidates import with_factor
from .evaluator import Evaluator
from .plot import draw_resolutions
from .results import ResultRow, Results, headline, print_data, print_row
from .settings import FROM_CONFIG, Setting, Slide, combine


def evaluate_sizes(
    config: str | Path,
    checkpoint: str | Path | None = None,
    *,
    sizes: Sequence[str] = (),
    scaling: Sequence[str] = (FROM_CONFIG,),
    window: Sequence[str] = (FROM_CONFIG,),
    tiles: Sequence[int] = (),
    slide: Slide = 'keep',
    train_size: str | None = None,
    metric: str | None = None,
    label: str | None = None,
    overwrite: bool = False,
    cfg_options: Options = (),
    work_dir: str | None = None,
    data_root: str | None = None,
    split: str | None = None,
    launcher: str = 'none',
) -> list[ResultRow]:
    """Test a model at many sizes; print a table, write resolutions.json, .csv and .png.

    Results that are in the work folder are reused.

    Args:
        config, checkpoint, cfg_options, work_dir, data_root, split: see ``find_model``.
        sizes: a shorter side, '640', or height and width, '480x640', in pixels; by default the size
            of the config's test images, which grows with the tiles.
        tiles: sides of tiles in pixels of an image, for a run on tiles; by default the config's.
        scaling, window: see ``parse_scaling`` and ``parse_window``; 'config' leaves the config's.
        slide: see ``Setting``.
        train_size: of the training's images, which a scaling without a factor refers to, see
            ``with_factor``; by default see ``trained_size``.
        metric: in the plot; by default the main one of the task.
        label: of the run in the files; by default the name of the config.
        overwrite: measure anew.
        launcher: of the processes of a distributed run.

    Returns:
        A row for each setting, see ``Evaluator.evaluate``; none if another process merges them.

    Raises:
        UsageError, CheckpointError, ValueError: settings, files or data that cannot be used; they
            are checked before anything is written.
    """
    cfg, weights = find_model(
        config, checkpoint, cfg_options, work_dir, data_root, split=split
    )
    if weights is None:
        raise UsageError('each of several tasks is evaluated with its own config')
    settings = []
    sides: Sequence[int | None] = tiles or [None]
    for tile in sides:
        given = sizes or [test_size(cfg, tile)]
        settings += combine(given, scaling, window, slide, tile)
    sweep = Sweep.prepare(
        cfg,
        weights,
        settings,
        str(config),
        label,
        train_size,
        overwrite,
    )
    print_data(cfg)
    test_cfg = cfg.model.get('test_cfg') or ConfigDict()
    if slide == 'keep' and test_cfg.get('mode') == 'slide':
        crop = ' x '.join(map(str, test_cfg.crop_size))
        print(
            f'Every size is tested in crops of {crop}: the backbone sees no more. See --slide'
        )
    rows = sweep.run(launcher)
    if rows and is_main_process():
        path, _, plot = sweep.results.files
        with sweep.results.written.write(plot) as partial:
            shown = metric or headline(rows[0]['metrics'])
            draw_resolutions([sweep.results.content()], shown, partial)
        print(f'\n{path}, {path.stem}.csv, {plot.name}')
    return rows


def test_size(config: Config, tile: int | None) -> str:
    """The size of a config's test images; of other tiles, as much larger as the tile is."""
    plan = tile_plan(config)
    grown = tile / plan.tile if tile and plan else 1
    return 'x'.join(str(round(side * grown)) for side in configured_size(config))


@dataclass
class Sweep:
    """A model that is tested with several settings.

    Attributes:
        config, checkpoint: of the model.
        settings: of the tests, in order.
        results: the rows that were measured before, and this run's.
        overwrite: take no rows of an earlier run.
    """

    config: Config
    checkpoint: str
    settings: Sequence[Setting]
    results: Results
    overwrite: bool

    @classmethod
    def prepare(
        cls,
        config: Config,
        checkpoint: str,
        settings: Sequence[Setting],
        name: str,
        label: str | None = None,
        train_size: str | None = None,
        overwrite: bool = False,
    ) -> Sweep:
        """Check all settings, data and weights, so that nothing is written before they fit.

        The model is built for that, and by the Runner again.

        Args:
            name: of the config or model, for the label and messages.
            label, train_size, overwrite: see ``evaluate_sizes``.

        Raises:
            UsageError, CheckpointError, ValueError: they do not fit.
        """
        model = ready(config, 'test', has_weights=False).model
        training_size = trained_size(config)
        if train_size is not None:
            training_size = to_2tuple(parse_size(train_size))
        evaluator = Evaluator(model, config)
        settings = [with_factor(evaluator, x, training_size) for x in settings]
        for setting in settings:
            evaluator.apply(setting)
        ready(config, 'test', weights=checkpoint, model=model)
        results = Results(
            Path(config.work_dir) / 'resolutions.json',
            Identity.of(config, name, checkpoint),
            label or Path(name).stem,
            training_size,
        )
        if not overwrite:
            results.resume()
        return cls(config, checkpoint, settings, results, overwrite)

    def planned(self) -> set[int]:
        """The sizes of the images, by their shorter sides."""
        sides = set[int]()
        for setting in self.settings:
            config = at_size(self.config, parse_size(setting.size))
            sides.add(min(configured_size(config)))
        return sides

    def run(self, launcher: str = 'none') -> list[ResultRow]:
        """Test with the settings that have no row, print all as a table; returns their rows.

        Processes of torchrun share the images of each test. Of a run on tiles, whose images are
        few, they share the tests by index, if these are as many, and the first process merges.
        """
        rank, count = init_rank() if launcher == 'pytorch' else (0, 1)
        left = [x for x in self.settings if not self.results.find(x)]
        if tile_plan(self.config) is None or not 1 < count <= len(left):
            return self.test(launcher)
        path = self.results.path
        parts = []
        for number in range(1, count + 1):
            file = path.with_stem(f'{path.stem}_{number}')
            parts.append(replace(self.results, path=file, rows=[]))
        replace(self, settings=left[rank::count], results=parts[rank]).test()
        if not should_merge(rank, count):
            return []
        for number, part in enumerate(parts):
            complete = replace(part)  # which knows what the others have written
            complete.resume()
            parts[number] = complete
        for number, setting in enumerate(left):
            row = parts[number % count].find(setting)
            if row:
                self.results.add(row)
        for part in parts:
            for file in part.files:
                part.written.remove(file)
        return evaluate_settings(self.settings, self.results, None)

    def test(self, launcher: str = 'none') -> list[ResultRow]:
        """The rows of all settings; this process, or this group of them, tests what is left."""
        evaluator = None
        if is_main_process() and any(s.scaling != FROM_CONFIG for s in self.settings):
            print(f'scalings: {DOCS}/evaluation.md says which one is for which images')
        if not all(self.results.find(setting) for setting in self.settings):
            evaluator = Evaluator.from_checkpoint(
                self.config,
                self.checkpoint,
                launcher,
            )
        path = self.results.path
        try:
            with self.results.written if is_main_process() else nullcontext():
                if not self.overwrite:
                    self.results.resume()  # another process may have added rows
                return evaluate_settings(self.settings, self.results, evaluator)
        except KeyboardInterrupt:
            stored = f'{len(self.results.rows)} results are in {path}'
            print(f'\nstopped; {stored}: the same command continues', file=sys.stderr)
            raise


def evaluate_settings(
    settings: Sequence[Setting],
    results: Results,
    evaluator: Evaluator | None,
) -> list[ResultRow]:
    """The row of each setting, printed; settings without a result are tested first.

    The evaluator is None if there is a result of every setting.
    """
    rows = list[ResultRow]()
    for setting in settings:
        row = results.find(setting)
        note = ' (reused)'
        if row is None:
            assert evaluator is not None, setting
            row = evaluator.evaluate(setting)
            note = ''
            results.add(row)
        if is_main_process():
            print_row(row, rows[-1] if rows else None, note)
        rows.append(row)
    return rows
