"""Files of a choice: its figures, a picture, and a config for each size."""

import inspect
import json
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from mmengine.config import Config

from ..backbones.base import Backbone
from ..project.contents import at_size, configured_size
from ..utils.results import Results
from ..utils.validation import parse_size
from .evaluator import Evaluator
from .plot import COLOURS
from .settings import FROM_CONFIG, Setting, parse_scaling, parse_window

CHOSEN, TIED, OTHER = COLOURS[1], COLOURS[3], COLOURS[0]


def write_choice(
    content: dict, config: Config, evaluator: Evaluator, results: Results
) -> None:
    """Write choice.json, choice.png and the config of each size; all files or none.

    ``content`` is of ``choose_scaling``, ``config`` the user's, ``evaluator`` of its model.
    """
    with results.fresh() as partial:
        for choice in content['sizes']:
            setting = chosen_setting(choice)
            written = config_of(config, setting, evaluator)
            written.dump(partial / f'{setting.size}.py')
        (partial / 'choice.json').write_text(json.dumps(content, indent=1) + '\n')
        draw_choice(content, partial / 'choice.png')
    names = ', '.join(f'{choice["size"]}.py' for choice in content['sizes'])
    print(f'\n{results.folder}: choice.json, choice.png; {names} for `rope-dense test`')


def chosen_setting(choice: dict) -> Setting:
    """The chosen setting of an entry of ``sizes``."""
    row = choice['rows'][choice['chosen']]
    return Setting(
        *(row[name] for name in ('size', 'scaling', 'window', 'slide', 'tile'))
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


def draw_choice(content: dict, out_file: Path) -> None:
    """Draw the difference of each setting to the config's own, with its interval.

    One column for each size. What judged the chosen setting is hollow, below it.
    """
    choices = content['sizes']
    most = max(len(choice['rows']) for choice in choices)
    figure = Figure(
        figsize=(1.5 + 2.6 * len(choices), 1.6 + 0.32 * most), layout='constrained'
    )
    for axes, choice in zip(
        figure.subplots(1, len(choices), squeeze=False)[0], choices, strict=True
    ):
        rows = choice['rows']
        for place, row in enumerate(rows):
            colour = (
                CHOSEN if place == choice['chosen'] else TIED if row['tied'] else OTHER
            )
            draw_row(axes, place, row, colour, filled=True)
        if choice['judged']:
            draw_row(
                axes, choice['chosen'] + 0.3, choice['judged'][1], CHOSEN, filled=False
            )
        axes.axvline(0, color='gray', linewidth=1)
        axes.set_yticks(range(len(rows)), setting_labels(rows), fontsize=8)
        axes.set_ylim(most - 0.4, -0.6)
        axes.set_title(f'{choice["size"]} pixels: {rows[0]["metric"]:.3f}', fontsize=9)
        axes.tick_params(axis='x', labelsize=8)
        axes.spines[['top', 'right']].set_visible(False)
        axes.grid(alpha=0.3, axis='x')
    gain = f"{content['metric']}: gain over the config's settings, 90 % interval\n"
    gain += 'red: chosen, hollow on other images; yellow: within the spread of it'
    figure.supxlabel(gain, fontsize=9)
    figure.savefig(out_file, dpi=150)


def draw_row(axes: Axes, place: float, row: dict, colour: str, filled: bool) -> None:
    """Draw a difference and its interval as a point on a line."""
    axes.plot([row['low'], row['high']], [place, place], color=colour, linewidth=1.5)
    axes.plot(
        row['value'],
        place,
        'o',
        color=colour,
        markerfacecolor=colour if filled else 'white',
    )


def setting_labels(rows: Sequence[dict]) -> list[str]:
    """The names of settings; window and tile only if several were tried."""
    varied = [
        name for name in ('window', 'tile') if len({row[name] for row in rows}) > 1
    ]
    return [
        ', '.join([row['scaling'], *(f'{x} {row[x]}' for x in varied)]) for row in rows
    ]
