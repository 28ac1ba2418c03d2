"""The choices of a setting for each size, and their files: figures, a picture, and configs."""

import inspect
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from mmengine.config import Config

from ..backbones.base import Backbone
from ..engine.figure_source import FigureSource
from ..project.contents import at_size, configured_size
from ..utils.results import Results
from ..utils.validation import parse_size
from .evaluator import Evaluator
from .plot import COLOURS, open_axes
from .results import json_text
from .scores import Difference
from .settings import FROM_CONFIG, Setting, parse_scaling, parse_window

OTHER, CHOSEN, _, TIED = COLOURS[:4]


@dataclass
class TriedSetting:
    """A setting with its metric, and its difference to the config's own.

    Attributes:
        tied: the chosen setting is not clearly better; None where that was not asked.
    """

    setting: Setting
    metric: float
    difference: Difference
    tied: bool | None = None

    def content(self) -> dict[str, Any]:
        """The row in choice.json: all fields side by side."""
        row = asdict(self.setting) | dict(metric=self.metric) | asdict(self.difference)
        if self.tied is not None:
            row['tied'] = self.tied
        return row


@dataclass(frozen=True)
class Choice:
    """The choice of a setting for a size.

    Attributes:
        metric: its name.
        tried: the settings, the config's first.
        chosen: index of one of them.
        reason: why, in words.
        judged: the first and the chosen one on other images, or None.
    """

    metric: str
    tried: Sequence[TriedSetting]
    chosen: int
    reason: str
    judged: tuple[TriedSetting, TriedSetting] | None

    @property
    def setting(self) -> Setting:
        """The chosen setting."""
        return self.tried[self.chosen].setting

    def content(self) -> dict[str, Any]:
        """The entry in choice.json."""
        judged = self.judged
        return dict(
            size=self.setting.size,
            rows=[row.content() for row in self.tried],
            chosen=self.chosen,
            reason=self.reason,
            judged=None if judged is None else [row.content() for row in judged],
        )


def write_choice(
    choices: Sequence[Choice],
    content: dict,
    config: Config,
    evaluator: Evaluator,
    results: Results,
) -> None:
    """Write choice.json, choice.png and the config of each size; all files or none.

    Args:
        content: of choice.json.
        config: the user's.
        evaluator: of its model.
    """
    names = []
    with results.fresh() as partial:
        for choice in choices:
            written = config_of(config, choice.setting, evaluator)
            names.append(f'{choice.setting.size}.py')
            written.dump(partial / names[-1])
        (partial / 'choice.json').write_text(json_text(content))
        source = FigureSource(**content['source'])
        draw_choice(choices, partial / 'choice.png', source)
    configs = ', '.join(names)
    print(
        f'\n{results.folder}: choice.json, choice.png; {configs} for `rope-dense test`'
    )


def config_of(config: Config, setting: Setting, evaluator: Evaluator) -> Config:
    """A copy of the config of an evaluator's model that tests with a setting."""
    config = at_size(config, parse_size(setting.size), setting.tile)
    backbone = config.model.backbone
    if setting.scaling != FROM_CONFIG:
        backbone.rope_scaling = parse_scaling(setting.scaling)
    if setting.window != FROM_CONFIG:
        backbone[window_argument(evaluator.backbone)] = parse_window(setting.window)
    if setting.slide != 'keep':
        config.model.test_cfg = evaluator.test_cfg_of(setting, configured_size(config))
    return config


def window_argument(backbone: Backbone) -> str:
    """The name of a backbone's argument for its window."""
    arguments = inspect.signature(type(backbone).__init__).parameters
    return 'kernel_size' if 'kernel_size' in arguments else 'window_size'


def draw_choice(
    choices: Sequence[Choice], out_file: Path, source: FigureSource
) -> None:
    """Draw the difference of each setting to the config's own, with its interval.

    One column for each size. What judged the chosen setting is hollow, below it.
    """
    most = max(len(choice.tried) for choice in choices)
    figure = Figure(
        figsize=(1.5 + 2.6 * len(choices), 1.6 + 0.32 * most),
        layout='constrained',
    )
    columns = figure.subplots(1, len(choices), squeeze=False)[0]
    for axes, choice in zip(columns, choices, strict=True):
        for place, row in enumerate(choice.tried):
            colour = TIED if row.tied else OTHER
            if place == choice.chosen:
                colour = CHOSEN
            draw_row(axes, place, row.difference, colour, colour)
        if choice.judged:
            _, judged = choice.judged
            draw_row(axes, choice.chosen + 0.3, judged.difference, CHOSEN, 'white')
        axes.axvline(0, color='gray', linewidth=1)
        labels = setting_labels([row.setting for row in choice.tried])
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
        axes.set_ylim(most - 0.4, -0.6)
        title = f'{choice.setting.size} pixels: {choice.tried[0].metric:.3f}'
        axes.set_title(title, fontsize=9)
        axes.tick_params(axis='x', labelsize=8)
        open_axes(axes, 'x')
    gain = f"{choices[0].metric}: gain over the config's settings, 90 % interval\n"
    gain += 'red: chosen, hollow on other images; yellow: within the spread of it\n'
    gain += str(source)
    figure.supxlabel(gain, fontsize=9)
    figure.savefig(out_file, dpi=150)


def draw_row(
    axes: Axes,
    place: float,
    difference: Difference,
    colour: str,
    face: str,
) -> None:
    """Draw a difference and its interval as a point on a line."""
    ends = [difference.low, difference.high]
    axes.plot(ends, [place, place], color=colour, linewidth=1.5)
    axes.plot(difference.value, place, 'o', color=colour, markerfacecolor=face)


def setting_labels(settings: Sequence[Setting]) -> list[str]:
    """The names of settings; window and tile only if several were tried."""
    labels = [setting.scaling for setting in settings]
    for name in ('window', 'tile'):
        values = [getattr(setting, name) for setting in settings]
        if len({*values}) > 1:
            for index, value in enumerate(values):
                labels[index] += f', {name} {value}'
    return labels
