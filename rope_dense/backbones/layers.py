"""Small parts that the backbones share.

Letters: B images, H x W token grid, N tokens, C channels.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Literal, TypeVar, cast

import torch
import torch.nn.functional as F
from mmcv.cnn import ConvModule, build_norm_layer
from mmengine.registry import MODELS
from torch import Tensor, nn

from ..rope import Coordinates
from ..rope.frequencies import axis_frequencies
from ..utils.memo import is_tracing
from ..utils.sizes import Size, larger

TableResize = Literal['bicubic', 'zeros']
Part = TypeVar('Part', bound=nn.Module)


class PatchEmbed(nn.Module):
    """Non-overlapping patches to tokens.

    Args:
        in_channels: of the image.
        embed_dims: C.
        patch_size: pixels of a side of a patch.
        bias: whether the projection has a bias.
        pad: zero-pad the image at the bottom and right to whole patches (Swin). Otherwise up to
            ``patch_size - 1`` pixels there are not seen, as in detectron2's ViT.
        norm_cfg: of a norm of the tokens, or None.
    """

    def __init__(
        self,
        in_channels: int,
        embed_dims: int,
        patch_size: int,
        bias: bool = True,
        pad: bool = False,
        norm_cfg: dict | None = None,
    ) -> None:
        super().__init__()
        self.in_channels, self.patch_size, self.pad = in_channels, patch_size, pad
        self.proj: nn.Module = nn.Conv2d(
            in_channels, embed_dims, patch_size, patch_size, bias=bias
        )
        self.norm = build_norm(norm_cfg, embed_dims) if norm_cfg else nn.Identity()

    def forward(self, image: Tensor) -> tuple[Tensor, Size]:
        """[B, in_channels, height, width] to tokens [B, H W, C] and (H, W); else ValueError."""
        expected = f'[batch, {self.in_channels}, height, width]'
        if image.ndim != 4 or image.shape[1] != self.in_channels:
            raise ValueError(f'images must be {expected}, got {list(image.shape)}')
        if not image.is_floating_point():
            raise ValueError(
                f'images must be floating point, got {image.dtype}: normalise them first, as the '
                'data preprocessors of mmdet and mmseg do'
            )
        least = 1 if self.pad else self.patch_size
        if not is_tracing() and min(image.shape[2:]) < least:
            height, width = image.shape[2:]
            raise ValueError(
                f'the image is {height} x {width} (height x width) pixels, less than one patch of '
                f'{self.patch_size} x {self.patch_size}: resize or pad it'
            )
        x = self.project(image)  # [B, C, H, W]
        height, width = x.shape[2:]
        return self.norm(x.flatten(2).transpose(1, 2).contiguous()), (height, width)

    def project(self, image: Tensor) -> Tensor:
        """Images to a map [B, C, H, W]."""
        if self.pad:
            sides = (round_up(side, self.patch_size) - side for side in image.shape[2:])
            image = pad_bottom_right(image, 2, *sides)
        return self.proj(image)

    def grid(self, height: int, width: int) -> Size:
        """(H, W) of an image of that size."""
        more = self.patch_size - 1 if self.pad else 0
        return (height + more) // self.patch_size, (width + more) // self.patch_size


class ConvPatchEmbed(PatchEmbed):
    """Four 3 x 3 convolutions of stride 2: a token for each 16 x 16 pixels, which overlap.

    The first three have C / 8, C / 4 and C / 2 channels, batch norm and ReLU. An image whose sides
    are no multiples of 16 has tokens for the rest of it, too. Source: ECViT of
    Intellindust-AI-Lab/EdgeCrafter, ecdetseg/engine/edgecrafter/ecvit.py at 706d037; checked
    against its formula, and against that code, in tests/backbones/test_realtime_archs.py.

    Args:
        in_channels: of the image.
        embed_dims: C, a multiple of 8.
    """

    def __init__(self, in_channels: int, embed_dims: int) -> None:
        super().__init__(in_channels, embed_dims, patch_size=16, pad=True)
        channels = [in_channels, embed_dims // 8, embed_dims // 4, embed_dims // 2]
        self.convs = nn.Sequential(
            *(
                ConvModule(
                    *pair,
                    3,
                    stride=2,
                    padding=1,
                    norm_cfg=dict(type='BN'),
                    inplace=False,
                )
                for pair in pairwise(channels)
            )
        )
        self.proj = nn.Conv2d(channels[-1], embed_dims, 3, stride=2, padding=1)

    def project(self, image: Tensor) -> Tensor:
        # They round sides up themselves: no padding here.
        return self.proj(self.convs(image))


class PositionConv(nn.Conv2d):
    """A depth-wise 3 x 3 convolution, which tells positions by the zeros around a map."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 3, padding=1, groups=channels)


class SineEmbed(nn.Module):
    """Sinusoidal position embedding of C channels, a multiple of 4, without parameters.

    The sine and cosine of 10000 ** (-4 t / C) times the column, then of the same times the row, for
    t = 0 .. C / 4 - 1.

    Heo et al., "Rotary Position Embedding for Vision Transformer" (ECCV 2024), equation 2.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, grid: Size, device: torch.device) -> Tensor:
        """[H W, C], float32."""
        positions = Coordinates().positions(*grid, device=device)
        return sines_and_cosines(positions, self.channels).transpose(1, 2).flatten(1)


class SineConvEmbed(nn.Module):
    """ResFormer's global position embedding: sinusoidal, then a depth-wise convolution.

    Positions go up to 2 pi; half of the C channels, a multiple of 4, are for the row and half for
    the column.

    Tian et al., "ResFormer: Scaling ViTs with Multi-Resolution Training" (CVPR 2023).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = PositionConv(channels)

    def forward(self, grid: Size, device: torch.device) -> Tensor:
        """[H W, C]."""
        # (n + 1) / N of each column and row.
        shares = Coordinates(offset=1, reference=1).positions(*grid, device=device)
        table = sines_and_cosines(
            2 * math.pi * shares.flip(-1), self.conv.in_channels
        ).flatten(1)
        table = table.to(self.conv.weight.dtype)
        # Contiguous, since torch traces the other layout of a map for more than one row and column.
        return self.conv(table.T.contiguous().unflatten(1, grid)).flatten(1).T


def sines_and_cosines(positions: Tensor, channels: int) -> Tensor:
    """Return sine and cosine of positions [N, 2] times each frequency: [N, 2, C / 4, 2]."""
    angles = positions[..., None] * axis_frequencies(
        channels, 10000.0, device=positions.device
    )
    return torch.stack([angles.sin(), angles.cos()], -1)


def add_branch(x: Tensor, branch: Tensor, scale: Tensor | None) -> Tensor:
    """``x + scale * branch``: a residual connection with LayerScale [C], or without (None)."""
    if scale is None:
        return x + branch
    return x + scale * branch if is_tracing() else AddScaled.apply(x, branch, scale)


class AddScaled(torch.autograd.Function):
    """``torch.addcmul(x, branch, scale)`` with two launches less in backward.

    The backward of torch multiplies ``branch`` and ``scale`` by ``value=1`` first.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, branch: Tensor, scale: Tensor) -> Tensor:
        ctx.save_for_backward(branch, scale)
        return torch.addcmul(x, branch, scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        branch, scale = ctx.saved_tensors
        of_scale = ctx.needs_input_grad[2]
        return (
            grad,
            grad * scale,
            (grad * branch).sum_to_size(scale.shape) if of_scale else None,
        )


def round_up(side: int, divisor: int) -> int:
    """The next multiple of ``divisor``, or ``side`` itself."""
    # side + -side % divisor is the same, but torch.export cannot reason about it.
    return (side + divisor - 1) // divisor * divisor


def pad_bottom_right(x: Tensor, dim: int, bottom: int, right: int) -> Tensor:
    """Pad a grid with zeros; its rows are dimension ``dim`` of x, its columns the next."""
    if not may_differ((bottom, right), (0, 0)):
        return x
    return F.pad(x, (0, 0) * (x.ndim - dim - 2) + (0, right, 0, bottom))


def may_differ(size: int | Size, other: int | Size) -> bool:
    """Return whether two sizes differ; while tracing, a comparison would fix them."""
    return is_tracing() or size != other


def module_list(modules: Iterable[Part]) -> Sequence[Part]:
    """Make an ``nn.ModuleList`` that has the type of its modules."""
    return cast('Sequence[Part]', nn.ModuleList(modules))


def to_map(tokens: Tensor, grid: Size) -> Tensor:
    """Tokens [B, H W, C] to a contiguous map [B, C, H, W]."""
    return tokens.transpose(1, 2).unflatten(2, grid).contiguous()


@MODELS.register_module()
class RMSNorm(nn.RMSNorm):
    """PyTorch's, in the precision of its weights under autocast too, as its LayerNorm is."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype))


def build_norm(norm_cfg: dict, channels: int) -> nn.Module:
    """Build the norm layer that ``norm_cfg`` (mmcv's form) describes."""
    return build_norm_layer(norm_cfg, channels)[1]


def init_transformer(module: nn.Module) -> None:
    """For ``apply``: normal weights (std 0.02) and zero biases for linear layers.

    Published code cuts the distribution off at 2, which is 100 standard deviations. (torch's
    ``trunc_normal_`` depends on values, which fake tensors do not have.)
    """
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def resize_grid(table: Tensor, grid: Size, new_grid: Size) -> Tensor:
    """Resize a table [1, H W, C] over a grid: bicubic, no antialiasing, as published."""
    if not may_differ(grid, new_grid):
        return table
    as_map = table.transpose(1, 2).unflatten(2, grid).float()
    resized = F.interpolate(as_map, size=new_grid, mode='bicubic', align_corners=False)
    return resized.flatten(2).transpose(1, 2).to(table.dtype)


def resize_aligned(table: Tensor, grid: Size, new_grid: Size) -> Tensor:
    """Resize a table [1, H W, C] over a grid: bilinear, corners on corners, as in Qwen3-VL.

    As ``torch.nn.functional.interpolate`` with ``align_corners=True``, which cannot be exported for
    grids that may have one row or column: of these it has the first.
    """
    if not may_differ(grid, new_grid):
        return table
    as_map = table.unflatten(1, grid).float()  # [1, H, W, C]
    for dim, side in enumerate(new_grid, start=1):
        as_map = resize_axis(as_map, dim, side)
    return as_map.flatten(1, 2).to(table.dtype)


def resize_axis(x: Tensor, dim: int, new: int) -> Tensor:
    """Interpolate linearly along an axis to ``new`` entries, the first and last on the ends."""
    old, step = x.shape[dim], larger(new - 1, 1)
    # In entries, times step: exact.
    places = torch.arange(new, device=x.device) * (old - 1)
    first = places // step
    second = (first + 1).clamp(max=old - 1)
    share = ((places - first * step) / step).view(-1, *[1] * (x.ndim - dim - 1))
    return torch.lerp(x.index_select(dim, first), x.index_select(dim, second), share)


def pad_grid(table: Tensor, grid: Size, new_grid: Size) -> Tensor:
    """Pad a table [1, H W, C] over a grid with zeros, or crop it, about its centre."""
    rows, columns = ((new - old) // 2 for new, old in zip(new_grid, grid, strict=True))
    padded = F.pad(table.unflatten(1, grid), (0, 0, columns, columns, rows, rows))
    return padded.flatten(1, 2)


def tile_grid(table: Tensor, grid: Size, new_grid: Size) -> Tensor:
    """Repeat a table [1, H W, C] over a grid to the right and down over another, as in SAM3."""
    rows, columns = (
        torch.arange(new, device=table.device) % old
        for new, old in zip(new_grid, grid, strict=True)
    )
    return table.unflatten(1, grid)[:, rows[:, None], columns].flatten(1, 2)


def linear_rates(rate: float, number: int) -> list[float]:
    """Return ``number`` rates that grow linearly from 0 to ``rate``."""
    return [rate * index / max(number - 1, 1) for index in range(number)]
