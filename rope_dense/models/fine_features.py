"""Features finer than a patch, guided by the image.

Letters: B images, C channels of a map, h x w its grid, H x W the finer grid, K keys of a window
along an axis, D channels of a head of the guidance.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from mmengine.logging import print_log
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor, nn

from ..backbones import RoPENAT, RoPESwin, RoPEViT
from ..backbones.base import Backbone
from ..checkpoints.errors import CheckpointError
from ..checkpoints.incompatible import compare_weights
from ..checkpoints.load import read_weights
from ..rope import AxialRoPE
from ..rope.rotation import rotate_packed
from ..utils.sizes import Size, larger, smaller
from ..utils.validation import check_choice, checked_settings, refuse
from .window_attention import HEADS, average, is_exporting, window_attention

Method = Literal['attention', 'bilinear']
CHANNELS = 128  # of each stack of the guidance
MAX_PIXELS = 4  # of the image, along an axis, for a position of the finer grid
PERIODS = 'image_encoder.rope.periods'  # published; computed here


@MODELS.register_module()
class FineFeatures(BaseModule):
    """Neck that makes the maps of a backbone finer, by attention that the image guides (NAF).

    Two stacks of convolutions make a guidance of the image, averaged over the positions of the
    finer grid and rotated by them. Each position attends to the 9 x 9 positions of the map around
    it: queries are the guidance, keys its averages over the map's positions, values the map, in 4
    heads and without projection. Values are mixed and nothing is added, so any backbone can have
    the same weights. Near a border the window is moved inside; a map with fewer than 9 rows or
    columns is attended to as a whole along that axis. Chambon et al., "NAF: Zero-Shot Feature
    Upsampling via Neighborhood Attention Filtering" (CVPR 2026, arXiv 2511.18452). Checked against
    the formula position by position in float64, and against the authors' code where a checkout of
    valeoai/NAF is there, in tests/models/test_fine_features.py.

    The neck takes the output of a backbone that appends the image to its maps, such as
    ``RoPEViTWithImage``. Other necks may follow it. The published weights are made for RGB images
    with ImageNet's mean and deviation.

    Args:
        scale_factor: rows of the output for a row of a map, 1 or more: 4 makes stride 4 of patches
            of 16 pixels. A number that is exact, or text, '8/3'. H = floor(h * scale_factor). A
            window of the map serves all positions of a cell if it is an integer; otherwise each
            position has its own window, which takes more time.
        method: 'attention', or 'bilinear' for resized maps without guidance, the baseline.
        frozen: do not train the guidance, and leave its coordinates as they are in training.
        init_cfg: ``dict(type='Pretrained', checkpoint=...)``, with ``prefix='neck.'`` for a
            checkpoint of a model with this neck. Loading is strict.

    Raises:
        ValueError: an argument that is not allowed.
    """

    is_init: bool

    def __init__(
        self,
        scale_factor: float | str,
        method: Method = 'attention',
        frozen: bool = False,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        check_choice('method', method, get_args(Method))
        check_choice('frozen', frozen, (True, False))
        self.scale_factor = checked_factor(scale_factor)
        self.step = int(self.scale_factor) if self.scale_factor.denominator == 1 else 1
        self.method = method
        self.frozen = frozen
        if method == 'attention':
            self.image_encoder = Guidance()
        self.requires_grad_(not frozen)

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Finer maps.

        Args:
            maps: one or more [B, C, h, w], each with C a multiple of 4, then the image
                [B, 3, height, width].

        Returns:
            [B, C, H, W] of each map.

        Raises:
            ValueError: maps of several sizes, no image, or channels that do not fit.
        """
        *coarse, image = maps
        self.check(coarse, image)
        height, width = coarse[0].shape[2:]
        size = self.scaled(height), self.scaled(width)
        if self.method == 'bilinear':
            return tuple(F.interpolate(x, size, mode='bilinear') for x in coarse)
        queries = self.image_encoder(image, size)  # [B, 4 D, H, W]
        values = [x.unflatten(1, (HEADS, -1)) for x in coarse]
        channels = [x.shape[2] for x in values]
        # [B, 4, C / 4 ..., H, W]
        out = window_attention(queries, torch.cat(values, 2), self.step)
        return tuple(x.flatten(1, 2) for x in out.split(channels, 2))

    def check(self, coarse: Sequence[Tensor], image: Tensor) -> None:
        """Raise ValueError unless these are maps of one size and an image."""
        if not coarse or image.ndim != 4 or image.shape[1] != 3:
            raise ValueError(
                'FineFeatures needs maps and the image of three channels behind them: take '
                'RoPEViTWithImage, RoPESwinWithImage or RoPENATWithImage as the backbone'
            )
        sizes = [tuple(x.shape[2:]) for x in coarse]
        if sizes.count(sizes[0]) < len(sizes):
            raise ValueError(
                f'FineFeatures needs maps of one size, got {sizes}: set out_indices'
            )
        channels = [x.shape[1] for x in coarse]
        if any(number % HEADS for number in channels):
            raise ValueError(
                f'FineFeatures needs channels in multiples of 4, got {channels}'
            )

    def scaled(self, side: int) -> int:
        """Positions of the finer grid for a side of the map."""
        return side * self.scale_factor.numerator // self.scale_factor.denominator

    def train(self, mode: bool = True) -> FineFeatures:
        return super().train(mode and not self.frozen)

    def init_weights(self) -> None:
        """Initialise as ``init_cfg`` says; pre-trained weights are loaded strictly.

        Raises:
            CheckpointError: the checkpoint cannot be fetched or read, or does not fit.
        """
        if self.method == 'bilinear':  # also with the weights of the other method
            return
        if self.is_init or not self.init_cfg or self.init_cfg['type'] != 'Pretrained':
            super().init_weights()
            return
        known = ('type', 'checkpoint', 'prefix')
        settings = checked_settings('init_cfg', self.init_cfg, known)
        load_fine_features(self, settings['checkpoint'], settings.get('prefix'))
        self.is_init = True


def checked_factor(value: float | str) -> Fraction:
    """The factor that a number, or text such as '8/3', is exactly.

    Raises:
        ValueError: not a factor of 1 or more, or a rounded one: 1.3333 is not 4/3.
    """
    try:
        factor = Fraction(value)
    except (TypeError, ValueError, ArithmeticError):
        factor = Fraction(0)
    if factor < 1 or factor.denominator > 64:
        near = max(factor.limit_denominator(64), Fraction(4, 3))
        allowed = f"1 or more, such as 2.5, or text such as '{near}'"
        refuse('scale_factor', value, allowed)
    return factor


class Guidance(nn.Module):
    """Image to guidance, under the published names of its parts.

    In training, coordinates are rescaled by up to 2, one draw for a batch. (The authors' code draws
    once for each size of a training.)

    Attributes:
        encoder: sees single pixels.
        sem_encoder: sees 11 x 11 pixels.
        rope: rotates 4 heads of 64 channels, rows before columns.
    """

    def __init__(self) -> None:
        super().__init__()
        self.encoder = conv_stack(kernel_size=1)
        self.sem_encoder = conv_stack(kernel_size=3)
        self.rope = AxialRoPE(
            2 * CHANNELS // HEADS,
            HEADS,
            theta=100.0,
            series='periods',
            axes='yx',
            pair_layout='half',
            coordinates=dict(type='centres', rescale=2.0),
        )

    def forward(self, image: Tensor, size: Size) -> Tensor:
        """Rotated guidance [B, 4 D, H, W] of images [B, 3, height, width] for ``size``, (H, W)."""
        x = shrink_image(image.to(next(self.parameters()).dtype), size)
        # Each is averaged before the next is in memory.
        stacks = (self.encoder, self.sem_encoder)
        averages = [average(stack(x), size) for stack in stacks]
        x = torch.cat(averages, 1)  # [B, 4 D, H, W]
        x = x.flatten(2).transpose(1, 2)  # [B, H W, 4 D]
        x = x.unflatten(-1, (1, HEADS, -1))  # [B, H W, 1, 4, D]
        x = rotate_packed(x, self.rope(x, size)).flatten(2)
        return x.transpose(1, 2).unflatten(2, size)


def conv_stack(kernel_size: int) -> nn.Sequential:
    """A stack of convolutions from 3 to ``CHANNELS`` channels."""
    return nn.Sequential(
        convolution(3, kernel_size),
        GuidanceBlock(kernel_size),
        GuidanceBlock(kernel_size),
    )


class GuidanceBlock(nn.Module):
    """Twice a norm, SiLU and a convolution; [B, 128, height, width] to the same, no residual."""

    def __init__(self, kernel_size: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(8, CHANNELS)
        self.norm2 = nn.GroupNorm(8, CHANNELS)
        self.conv1 = convolution(CHANNELS, kernel_size)
        self.conv2 = convolution(CHANNELS, kernel_size)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(F.silu(self.norm1(x)))
        return self.conv2(F.silu(self.norm2(x)))


def convolution(in_channels: int, kernel_size: int) -> nn.Conv2d:
    """A convolution to ``CHANNELS`` that mirrors the image at its borders."""
    padding = kernel_size // 2
    return nn.Conv2d(
        in_channels, CHANNELS, kernel_size, padding=padding, padding_mode='reflect'
    )


def shrink_image(image: Tensor, size: Size) -> Tensor:
    """The image, resized (bilinear) if it has more than 4 pixels a side for a position of ``size``.

    Both sides are then limited by both sides of ``size``, as in the published code: images may
    change their aspect ratio.
    """
    height, width = image.shape[2:]
    max_height = MAX_PIXELS * size[0]
    max_width = MAX_PIXELS * size[1]
    limit = smaller(max_height, max_width)
    target = smaller(height, limit), smaller(width, limit)
    if is_exporting():  # without a branch, which would fix sizes: a factor of 0 or 1
        excess = larger(height - max_height, 0) + larger(width - max_width, 0)
        shrinks = smaller(excess, 1)
        target = (
            height - shrinks * (height - target[0]),
            width - shrinks * (width - target[1]),
        )
    elif height <= max_height and width <= max_width:
        return image
    return F.interpolate(image, target, mode='bilinear')


def load_fine_features(
    neck: FineFeatures,
    checkpoint: str,
    prefix: str | None = None,
) -> None:
    """Load published weights, such as naf_release.pth, or a model's of this package.

    Args:
        neck: with ``method='attention'``; unchanged if anything fails.
        checkpoint: path or address.
        prefix: of the names of the neck's weights.

    Raises:
        CheckpointError: the file cannot be read, keys are missing or left over, shapes differ, or
            the periods of the rotation are others.
    """
    weights = dict(read_weights(checkpoint, prefix))
    periods = weights.pop(PERIODS, None)
    rope = neck.image_encoder.rope
    number = rope.head_dim // 4
    ours = rope.theta ** (torch.arange(number) / number)  # [16]
    if periods is not None:
        has_shape = periods.shape == ours.shape
        if not has_shape or not torch.allclose(periods.float(), ours, rtol=0.01):
            raise CheckpointError(
                f'{checkpoint}: {PERIODS} must be 100 ** (k / 16) for k = 0 .. 15'
            )
    incompatible = compare_weights(neck.state_dict(), weights)
    if incompatible:
        raise CheckpointError(
            f'{checkpoint} does not fit FineFeatures:\n{incompatible}'
        )
    neck.load_state_dict(weights)
    print_log(
        f'FineFeatures: {len(weights)} tensors from {checkpoint}', logger='current'
    )


class WithImage(Backbone):
    """Appends the image to the maps of a backbone, for necks that need it.

    Everything else is as in the backbone itself: arguments, weights, windows, scaling.
    """

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return (*super().forward(image), image)


@MODELS.register_module()
class RoPEViTWithImage(WithImage, RoPEViT):
    """``RoPEViT`` that appends the image [B, 3, height, width] to its maps, for FineFeatures."""


@MODELS.register_module()
class RoPESwinWithImage(WithImage, RoPESwin):
    """``RoPESwin`` that appends the image [B, 3, height, width] to its maps, for FineFeatures."""


@MODELS.register_module()
class RoPENATWithImage(WithImage, RoPENAT):
    """``RoPENAT`` that appends the image [B, 3, height, width] to its maps, for FineFeatures."""
