"""Settings of a test as text: image size, frequency scaling, window and sliding."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from ..backbones.archs import WindowSetting
from ..utils.validation import parse_size

GROWTH = (1, 1.5, 2)  # of the default sizes
FROM_CONFIG = 'config'  # leaves a setting as the config has it
NUMBER = r'-?\d*\.?\d+'
SCALING = re.compile(rf'(\w+)(?::pretrain|:({NUMBER})(?:x({NUMBER}))?)?(?:\+(.*))?')
Slide = Literal['keep', 'scale', 'whole']


@dataclass(frozen=True)
class Setting:
    """The settings of one test.

    Attributes:
        size: see ``parse_size``.
        scaling: see ``parse_scaling``, or 'config'.
        window: see ``parse_window``, or 'config'.
        slide: the crops of a segmentor that slides: 'keep' them, 'scale' them (and the stride) as
            the image is, or test the 'whole' image at once.
        tile: side of the tiles of a run on tiles, in pixels of an image; None for the config's.
        given: the scaling as it was given, if ``with_factor`` added its factor.
    """

    size: str
    scaling: str = FROM_CONFIG
    window: str = FROM_CONFIG
    slide: Slide = 'keep'
    tile: int | None = None
    given: str | None = None

    def __str__(self) -> str:
        """Each field with its value, but ``given``, and but for a tile of the config."""
        text = f'size {self.size}, scaling {self.scaling}, window {self.window}'
        text = f'{text}, slide {self.slide}'
        return text if self.tile is None else f'{text}, tile {self.tile}'


def combine(
    sizes: Sequence[str],
    scalings: Sequence[str] = (FROM_CONFIG,),
    windows: Sequence[str] = (FROM_CONFIG,),
    slide: Slide = 'keep',
    tile: int | None = None,
) -> list[Setting]:
    """All combinations, each once; all sizes of one scaling and window before the next."""
    settings = []
    for scaling, window, size in dict.fromkeys(product(scalings, windows, sizes)):
        settings.append(Setting(size, scaling, window, slide, tile))
    return settings


def parse_window(text: str) -> WindowSetting:
    """'7', '7x14' (height x width, in tokens), 'auto', or 'none'; ValueError for anything else."""
    if text == 'none':
        return None
    return 'auto' if text == 'auto' else parse_size(text)


def parse_scaling(text: str) -> dict | None:
    """A ``rope_scaling`` from TYPE[:FACTOR][+TEMPERATURE].

    TYPE is none, linear, ntk or by_parts. FACTOR is a number or HEIGHTxWIDTH; without it, or with
    'pretrain', it follows from each input and the grid of pre-training. TEMPERATURE is log or yarn.
    So 'by_parts:2', 'linear:1.5x2+log'. ValueError for another form; the backbone checks the
    values.
    """
    match = SCALING.fullmatch(text)
    if match is None:
        raise ValueError(
            f'--scaling {text}: give TYPE[:FACTOR][+TEMPERATURE], such as none, linear, ntk:2, '
            'by_parts:1.5x2, by_parts+yarn; or config (as the config says)'
        )
    if text == 'none':
        return None
    kind, height, width, temperature = match.groups()
    factor: float | tuple[float, float] | None = None
    if width is not None:
        factor = (float(height), float(width))
    elif height is not None:
        factor = float(height)
    return dict(type=kind, factor=factor, temperature=temperature)
