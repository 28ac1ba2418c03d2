"""What a sweep varies: image size, frequency scaling, window, and how a segmentor slides."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, fields
from typing import Literal, get_args

from mmengine.config import Config, ConfigDict
from torch import nn

from ..backbones.base import Backbone
from ..backbones.windows import WindowSetting
from .resolution import Size, at_size, configured_size, resize_steps

AS_CONFIG = 'config'  # a setting that is left as the config has it
SCALING = re.compile(r'(?P<type>\w+)(:(?P<factor>[^+]*))?(\+(?P<temperature>.*))?')
SIZE = re.compile(r'(\d+)(?:x(\d+))?')
Slide = Literal['keep', 'scale', 'whole']


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
        parts = [f'{field.name} {getattr(self, field.name)}' for field in fields(self)]
        return ', '.join(parts)


def parse_size(text: str) -> int | Size:
    """'128', the shorter side, or '96x128', height and width, in pixels.

    Raises:
        ValueError: neither, or a side without a pixel.
    """
    match = SIZE.fullmatch(text)
    sides = [int(side) for side in match.groups() if side] if match else [0]
    if min(sides) < 1:
        raise ValueError(
            f'--sizes {text}: give a side in pixels (128), or HEIGHTxWIDTH (96x128), 1 or more'
        )
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def parse_window(text: str) -> WindowSetting:
    """'7', '7x14' (height x width, in tokens), 'auto', or 'none' for the whole map.

    Raises:
        ValueError: anything else.
    """
    if text in ('auto', 'none'):
        return None if text == 'none' else 'auto'
    match = SIZE.fullmatch(text)
    sides = [int(side) for side in match.groups() if side] if match else [0]
    if min(sides) < 1:
        raise ValueError(
            f'--window {text}: give tokens of a side (7), HEIGHTxWIDTH (7x14), auto, none (the '
            'whole map) or config (as the config says)'
        )
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def parse_scaling(text: str) -> dict | None:
    """A ``rope_scaling`` from TYPE[:FACTOR][+TEMPERATURE].

    TYPE is none, linear, ntk or by_parts. FACTOR is a number or HEIGHTxWIDTH; without it the factor
    follows from each input. TEMPERATURE is log or yarn. So 'by_parts:2', 'linear:1.5x2+log'.

    Raises:
        ValueError: no such form. Whether values are allowed, the backbone says.
    """
    match = SCALING.fullmatch(text)
    factors = []
    try:
        if match and match['factor'] is not None:
            factors = [float(number) for number in match['factor'].split('x')]
    except ValueError:
        match = None
    if not match or len(factors) > 2:
        raise ValueError(
            f'--scaling {text}: give TYPE[:FACTOR][+TEMPERATURE], such as none, linear, ntk:2, '
            'by_parts:1.5x2, by_parts+yarn; or config (as the config says)'
        )
    if text == 'none':
        return None
    factor = {0: None, 1: factors[:1], 2: factors}[len(factors)]
    return dict(
        type=match['type'],
        factor=factor[0] if factor and len(factor) == 1 else factor and tuple(factor),
        temperature=match['temperature'],
    )


class SweepModel:
    """A built model and its config, which take the settings of one point after the other.

    Args:
        model: a detector, segmentor or classifier. Its backbone may be one of another package, as
            long as points leave scaling and window as the config has them.
        config: its config, with the test size and crops that weights were made for.
    """

    def __init__(self, model: nn.Module, config: Config) -> None:
        self.model, self.config = model, config
        backbone = model.backbone
        if isinstance(backbone, Backbone):
            self.window_size, self.rope_scaling = backbone.window_size, backbone.rope_scaling
        self.test_cfg = copy.deepcopy(config.model.get('test_cfg') or ConfigDict())

    def config_of(self, point: SweepPoint) -> Config:
        """The config at the size of a point.

        Raises:
            ValueError: see ``at_size``.
        """
        try:
            return at_size(self.config, parse_size(point.size))
        except ValueError as error:
            raise ValueError(f'--sizes {point.size}: {error}') from error

    def apply(self, point: SweepPoint) -> None:
        """Set scaling, window and crops of the model.

        Raises:
            ValueError: a setting that the model or the size does not allow, with the option that
                gave it.
        """
        for option, value in (('--scaling', point.scaling), ('--window', point.window)):
            if value != AS_CONFIG and not isinstance(self.model.backbone, Backbone):
                raise ValueError(
                    f'{option} {value}: the backbone must be one of rope_dense, it is '
                    f'{type(self.model.backbone).__name__}'
                )
        if isinstance(self.model.backbone, Backbone):
            self.grid_of(point)
            self.set_scaling(point.scaling)
            self.set_window(point)
        if self.test_cfg.get('mode') == 'slide':
            self.model.test_cfg = self.sliding(point)
        elif point.slide != 'keep':
            raise ValueError(
                f'--slide {point.slide}: the config does not slide (model.test_cfg.mode)'
            )

    def set_scaling(self, text: str) -> None:
        backbone = self.model.backbone
        if text == AS_CONFIG:
            backbone.set_rope_scaling(self.rope_scaling)
            return
        try:
            backbone.set_rope_scaling(parse_scaling(text))
        except ValueError as error:
            if str(error).startswith('--scaling'):
                raise
            raise ValueError(f'--scaling {text}: {error}') from error

    def set_window(self, point: SweepPoint) -> None:
        backbone = self.model.backbone
        if point.window == AS_CONFIG:
            backbone.set_window_size(self.window_size)
            return
        if not backbone.has_windows:
            raise ValueError(
                f'--window {point.window}: all blocks of this {type(backbone).__name__} attend '
                'globally'
            )
        window = parse_window(point.window)
        backbone.set_window_size(window)
        if window not in (None, 'auto'):
            self.check_window(point, (window, window) if isinstance(window, int) else window)

    def check_window(self, point: SweepPoint, window: Size) -> None:
        """A window larger than the finest map attends to nothing more than 'none' does."""
        grid = self.grid_of(point)
        pairs = zip(window, grid, strict=True)
        if resize_steps(self.config)[0].get('keep_ratio'):  # either side may be the longer one
            pairs = zip(sorted(window), sorted(grid), strict=True)
        if any(side > tokens for side, tokens in pairs):
            raise ValueError(
                f'--window {point.window}: larger than the map, {grid[0]} x {grid[1]} tokens at '
                f'--sizes {point.size}; give a smaller window, auto, or none for the whole map'
            )

    def grid_of(self, point: SweepPoint) -> Size:
        """Tokens of the first block (of a backbone of ours) for the largest images of a point.

        Raises:
            ValueError: there are none.
        """
        patch_embed = self.model.backbone.patch_embed
        height, width = self.input_size(point, configured_size(self.config_of(point)))
        grid = patch_embed.grid(height, width)
        if min(grid) < 1:
            patch = patch_embed.patch_size
            raise ValueError(
                f'--sizes {point.size}: {height} x {width} pixels leave no token of {patch} x '
                f'{patch}; give {patch} or more'
            )
        return grid

    def input_size(self, point: SweepPoint, size: Size) -> Size:
        """The largest input of the backbone for images of a size."""
        if self.test_cfg.get('mode') != 'slide' or point.slide == 'whole':
            return size
        crop = self.sliding(point).crop_size
        return min(size[0], crop[0]), min(size[1], crop[1])

    def sliding(self, point: SweepPoint) -> ConfigDict:
        """The model's ``test_cfg``, of a segmentor that slides."""
        if point.slide not in get_args(Slide):
            raise ValueError(f'--slide {point.slide}: give one of {", ".join(get_args(Slide))}')
        if point.slide == 'keep':
            return self.test_cfg
        if point.slide == 'whole':
            return ConfigDict(self.test_cfg, mode='whole')
        new, old = configured_size(self.config_of(point)), configured_size(self.config)
        if resize_steps(self.config)[0].get('keep_ratio'):  # the sizes are bounds only
            new, old = (min(new),) * 2, (min(old),) * 2
        scaled = {
            name: tuple(
                max(1, round(side * to / of))
                for side, to, of in zip(self.test_cfg[name], new, old, strict=True)
            )
            for name in ('crop_size', 'stride')
            if name in self.test_cfg  # EoMT's windows have no stride
        }
        return ConfigDict(self.test_cfg, **scaled)
