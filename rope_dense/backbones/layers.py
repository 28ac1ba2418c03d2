"""Small parts that the backbones share. Letters: B batch, N tokens, C channels, H x W token
grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from mmcv.cnn import build_norm_layer
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

PART = 2**20  # values in a part, see ``num_parts``: chosen by the time of Swin-T and ViT-B


class PatchEmbed(nn.Module):
    """Non-overlapping patches to tokens, [B, in_channels, height, width] to [B, H, W, C].

    The grid is the floor of the image size over the patch size: up to ``patch_size - 1`` pixels at
    the right and bottom edge are not seen, as in detectron2's ViT.
    """

    def __init__(
        self, in_channels: int, embed_dims: int, patch_size: int, bias: bool = True
    ) -> None:
        super().__init__()
        self.proj = nn.Conv2d(
            in_channels, embed_dims, kernel_size=patch_size, stride=patch_size, bias=bias
        )

    def forward(self, image: Tensor) -> Tensor:
        (height, width), (patch_size, _) = image.shape[-2:], self.proj.stride
        if min(height, width) < patch_size:
            raise ValueError(
                f'the image is {height} x {width} (height x width) pixels, less than one patch of '
                f'{patch_size} x {patch_size}: resize or pad it'
            )
        # The channels of a token side by side, as all that follows wants them, without a copy.
        image = image.contiguous(memory_format=torch.channels_last)
        return self.proj(image).permute(0, 2, 3, 1).contiguous()


def to_map(tokens: Tensor) -> Tensor:
    """Tokens [B, H, W, C] to a map [B, C, H, W], contiguous."""
    return ToMap.apply(tokens)


class ToMap(torch.autograd.Function):
    """``to_map``. The gradient of a permuted view would have the channels of a token far apart, and
    pass that on through every residual connection; here it is contiguous."""

    @staticmethod
    def forward(ctx: FunctionCtx, tokens: Tensor) -> Tensor:
        return tokens.permute(0, 3, 1, 2).contiguous()

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> Tensor:
        return grad.permute(0, 2, 3, 1).contiguous()


def num_parts(x: Tensor) -> int:
    """In how many parts to compute what is local in x: on a CPU so many that what is in between,
    such as the hidden channels of an MLP, stays in the cache, else one."""
    if x.device.type != 'cpu' or torch.compiler.is_compiling():
        return 1
    return max(1, -(-x.numel() // PART))


def in_parts(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``function(x)``, which treats each row of x alone and keeps its shape, see ``num_parts``."""
    return join([function(part) for part in x.chunk(num_parts(x))], 0)


def join(parts: Sequence[Tensor], dim: int) -> Tensor:
    """``torch.cat`` that does not copy a single part."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def build_norm(norm_cfg: dict, channels: int) -> nn.Module:
    """The norm layer that ``norm_cfg`` (mmcv's form) describes."""
    return build_norm_layer(norm_cfg, channels)[1]


def init_transformer(module: nn.Module) -> None:
    """For ``apply``: truncated normal weights (std 0.02) and zero biases for linear layers."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def add_branch(x: Tensor, branch: Tensor, scale: Tensor | None) -> Tensor:
    """``x + scale * branch``: a residual connection with LayerScale [C], or without (None)."""
    return x + branch if scale is None else torch.addcmul(x, branch, scale)


def resize_grid(table: Tensor, grid: tuple[int, int], new_grid: tuple[int, int]) -> Tensor:
    """A table [1, H * W, C] over a grid on another grid: bicubic, no antialiasing, as published."""
    if grid == new_grid:
        return table
    as_map = table.transpose(1, 2).unflatten(2, grid).float()
    resized = F.interpolate(as_map, size=new_grid, mode='bicubic', align_corners=False)
    return resized.flatten(2).transpose(1, 2).to(table.dtype)


def find_arch(archs: dict[str, dict], arch: str | dict) -> dict:
    """The sizes that ``arch`` names, or that it gives.

    Raises:
        ValueError: an unknown name, or a dict whose keys are not those of the named architectures.
    """
    keys = next(iter(archs.values())).keys()
    if isinstance(arch, str) and arch in archs:
        return archs[arch]
    if isinstance(arch, dict) and arch.keys() == keys:
        return arch
    raise ValueError(
        f'arch must be one of {", ".join(archs)} or a dict of {", ".join(keys)}; got {arch!r}'
    )


def block_indexes(name: str, indexes: Sequence[int], depth: int) -> list[int]:
    """``indexes`` sorted, negative ones counted from the end; ValueError if one is out of range."""
    outside = [index for index in indexes if not -depth <= index < depth]
    if outside:
        raise ValueError(f'{name} has {outside}, allowed are {-depth} to {depth - 1}')
    return sorted({index % depth for index in indexes})
