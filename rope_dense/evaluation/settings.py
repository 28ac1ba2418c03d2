"""What a sweep varies: image size, frequency scaling, window, and how a segmentor slides."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Literal

from mmengine.config import Config, ConfigDict
from mmengine.model import BaseModel
from mmengine.utils import to_2tuple

from ..backbones.archs import WindowSetting
from ..backbones.base import Backbone
from ..rope import RopeScaling
from ..rope.embeddings import GridRoPE
from ..utils.sizes import ImageSize, Size
from .resolution import at_size, configured_size, resize_steps

AS_CONFIG = 'config'  # a setting that is left as the config has it
NUMBER = r'-?\d*\.?\d+'
SCALING = re.compile(rf'(\w+)(?::({NUMBER})(?:x({NUMBER}))?)?(?:\+(.*))?')
SIDES = re.compile(r'0*([1-9]\d*)(?:x0*([1-9]\d*))?')
Slide = Literal['keep', 'scale', 'whole']

# What each scaling was good for in docs/scaling_study.
LARGER = 'for larger images, of the same view sampled finer or of a larger extent'
LARGER_EXTENT = (
    'for a larger extent, where objects keep their size (training on crops, testing whole images)'
)
PURPOSES = {
    'none': (
        'for sizes of the training, or coordinates that were rescaled in it: positions run on past '
        'those of the training'
    ),
    'linear': f'{LARGER}: positions are divided by the factor',
    'ntk': 'between none and linear: low frequencies are divided by the factor, the highest stays',
    'by_parts': f'{LARGER_EXTENT}: low frequencies are divided by the factor, high ones stay',
}


@dataclass(frozen=True)
class SweepPoint:
    """One evaluation.

    Attributes:
        size: as ``parse_size`` reads it.
        scaling: as ``parse_scaling`` reads it, or 'config'.
        window: as ``parse_window`` reads it, or 'config'.
        slide: the crops of a segmentor that slides: 'keep' them, 'scale' them (and the stride) as
            the image is, or test the 'whole' image at once.
    """

    size: str
    scaling: str = AS_CONFIG
    window: str = AS_CONFIG
    slide: Slide = 'keep'

    def __str__(self) -> str:
        return ', '.join(f'{field.name} {getattr(self, field.name)}' for field in fields(self))


def parse_size(text: str, option: str = '--sizes') -> int | ImageSize:
    """'128', the shorter side, or '96x128', height and width, in pixels.

    Raises:
        ValueError: neither, or a side without a pixel.
    """
    advice = 'give a side in pixels (128), or HEIGHTxWIDTH (96x128), 1 or more'
    return parse_sides(text, f'{option} {text}: {advice}')


def parse_window(text: str) -> WindowSetting:
    """'7', '7x14' (height x width, in tokens), 'auto', or 'none' for the whole map.

    Raises:
        ValueError: anything else.
    """
    if text in ('auto', 'none'):
        return None if text == 'none' else 'auto'
    return parse_sides(
        text,
        f'--window {text}: give tokens of a side (7), HEIGHTxWIDTH (7x14), auto, none (the whole '
        'map) or config (as the config says)',
    )


def parse_sides(text: str, problem: str) -> int | Size:
    """'7' or '7x14', height and width; ValueError for anything else, or a side of 0."""
    match = SIDES.fullmatch(text)
    if match is None:
        raise ValueError(problem)
    height, width = match.groups()
    return int(height) if width is None else (int(height), int(width))


def parse_scaling(text: str) -> dict | None:
    """A ``rope_scaling`` from TYPE[:FACTOR][+TEMPERATURE].

    TYPE is none, linear, ntk or by_parts. FACTOR is a number or HEIGHTxWIDTH; without it the factor
    follows from each input. TEMPERATURE is log or yarn. So 'by_parts:2', 'linear:1.5x2+log'.

    Raises:
        ValueError: no such form. Whether values are allowed, the backbone says.
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
    factor: float | tuple[float, float] | None = None if height is None else float(height)
    if width is not None:
        factor = (float(height), float(width))
    return dict(type=kind, factor=factor, temperature=temperature)


class SweepModel:
    """A built model and its config, which take the settings of one point after the other.

    Args:
        model: a detector, segmentor or classifier. Its backbone may be one of another package, as
            long as points leave scaling and window as the config has them.
        config: its config, with the test size and crops that weights were made for.
    """

    def __init__(self, model: BaseModel, config: Config) -> None:
        self.model, self.config, self.backbone = model, config, model.backbone
        self.is_ours = isinstance(self.backbone, Backbone)
        if self.is_ours:
            self.window_size = self.backbone.window_size
            self.rope_scaling = self.backbone.rope_scaling
        self.test_cfg = copy.deepcopy(config.model.get('test_cfg') or ConfigDict())

    def check(self, points: Sequence[SweepPoint]) -> dict[str, str]:
        """Try all points, without data. Returns what each scaling is for, in words.

        Raises:
            ValueError: see ``apply``.
        """
        purposes = {}
        for point in points:
            self.apply(point)
            if self.is_ours:
                purposes[point.scaling] = purpose_of(self.backbone)
        return purposes

    def apply(self, point: SweepPoint) -> Config:
        """Set scaling, window and crops of the model; returns the config at the size of the point.

        Raises:
            ValueError: a setting that the model or the size does not allow, with the option that
                gave it.
        """
        size = parse_size(point.size)
        with named(f'--sizes {point.size}'):
            config = at_size(self.config, size)
        test_cfg = self.test_cfg_of(point, configured_size(config))
        if self.is_ours:
            grid = self.grid_of(point, configured_size(config), test_cfg)
            self.set_scaling(point.scaling)
            self.set_window(point, grid)
        elif (point.scaling, point.window) != (AS_CONFIG, AS_CONFIG):
            raise ValueError(
                f'--scaling {point.scaling}, --window {point.window}: the backbone must be one of '
                f'rope_dense, it is {type(self.backbone).__name__}'
            )
        if self.slides:
            self.model.test_cfg = test_cfg
        return config

    def test_cfg_of(self, point: SweepPoint, size: ImageSize) -> ConfigDict:
        """The model's ``test_cfg`` for images of a size."""
        if point.slide == 'keep':
            return self.test_cfg
        if not self.slides:
            raise ValueError(
                f'--slide {point.slide}: the config does not slide (model.test_cfg.mode)'
            )
        if point.slide == 'whole':
            return ConfigDict(self.test_cfg, mode='whole')
        trained = configured_size(self.config)
        if self.keeps_ratio:
            size, trained = (min(size),) * 2, (min(trained),) * 2
        scaled = {
            name: tuple(
                max(1, round(side * to / of))
                for side, to, of in zip(self.test_cfg[name], size, trained, strict=True)
            )
            for name in ('crop_size', 'stride')
            if name in self.test_cfg  # EoMT's windows have no stride
        }
        return ConfigDict(self.test_cfg, **scaled)

    @property
    def slides(self) -> bool:
        return self.test_cfg.get('mode') == 'slide'

    @property
    def keeps_ratio(self) -> bool:
        """Whether image sizes are bounds only."""
        return bool(resize_steps(self.config)[0].get('keep_ratio'))

    def grid_of(self, point: SweepPoint, size: ImageSize, test_cfg: ConfigDict) -> Size:
        """Tokens of the first block for images of a size, or their crops; ValueError if none."""
        if test_cfg.get('mode') == 'slide':
            size = tuple(map(min, size, test_cfg.crop_size))
        patch_embed = self.backbone.patch_embed
        grid = patch_embed.grid(*size)
        if min(grid) < 1:
            patch = patch_embed.patch_size
            raise ValueError(
                f'--sizes {point.size}: {size[0]} x {size[1]} pixels leave no token of {patch} x '
                f'{patch}; give {patch} or more'
            )
        return grid

    def set_scaling(self, text: str) -> None:
        scaling = self.rope_scaling if text == AS_CONFIG else parse_scaling(text)
        with named(f'--scaling {text}'):
            self.backbone.set_rope_scaling(scaling)

    def set_window(self, point: SweepPoint, grid: Size) -> None:
        """Set the window; one larger than the finest map, ``grid``, is an error, as it attends to
        nothing more than 'none' does."""
        if point.window == AS_CONFIG:
            self.backbone.set_window_size(self.window_size)
            return
        if not self.backbone.has_windows:
            raise ValueError(
                f'--window {point.window}: all blocks of this {type(self.backbone).__name__} '
                'attend globally'
            )
        window = parse_window(point.window)
        self.backbone.set_window_size(window)
        if window in (None, 'auto'):
            return
        order = sorted if self.keeps_ratio else tuple  # either side may be the longer one
        pairs = zip(order(to_2tuple(window)), order(grid), strict=True)
        if any(side > tokens for side, tokens in pairs):
            raise ValueError(
                f'--window {point.window}: larger than the map, {grid[0]} x {grid[1]} tokens at '
                f'--sizes {point.size}; give a smaller window, auto, or none for the whole map'
            )


@contextmanager
def named(option: str) -> Iterator[None]:
    """A ValueError within it begins with the option that it is about."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f'{option}: {error}') from error


def purpose_of(backbone: Backbone) -> str:
    """What the scaling of a backbone is for, in words."""
    rope = backbone.ordered_blocks[0].attn.rope
    if rope is None:
        return 'no rotary embedding to scale'
    if isinstance(rope, GridRoPE) and rope.coordinates.fit_the_grid:
        return f'{LARGER}: coordinates cover the same range on every grid'
    scaling = backbone.rope_scaling
    kind = scaling.type if isinstance(scaling, RopeScaling) else (scaling or {}).get('type', 'none')
    return PURPOSES[kind]
