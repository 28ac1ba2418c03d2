"""Backbones to compare: ours, timm's, mmdet's, and computations of other projects written anew.

Every builder gives a module from images [B, 3, height, width] to maps or tokens, without stochastic
depth, weights random.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from unittest.mock import MagicMock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_dense.backbones.attention import Attention
from rope_dense.backbones.position_bias import DecomposedBiasAttention
from rope_dense.backbones.swin import RoPESwin
from rope_dense.backbones.vit import RoPEViT
from rope_dense.backbones.windows import WindowPlan

Builder = Callable[[], nn.Module]
MIXED, AXIAL = dict(type='MixedRoPE', theta=10.0), dict(type='AxialRoPE', theta=100.0)
SWIN_AXIAL = dict(type='AxialRoPE', theta=50.0)
GLOBAL_BLOCKS = (2, 5, 8, 11)  # of ViTDet-B
WINDOWED = tuple(index for index in range(12) if index not in GLOBAL_BLOCKS)


def vit(arch: str = 'base', **arguments: object) -> nn.Module:
    """RoPEViT as published, with class token and LayerScale, all blocks global."""
    return RoPEViT(arch, **arguments)


def vitdet(arch: str = 'base', window_size: int = 14, **arguments: object) -> nn.Module:
    """The backbone of ViTDet: 8 of 12 blocks in windows, no class token, no LayerScale."""
    return vit(
        arch,
        with_cls_token=False,
        layer_scale_init_value=None,
        window_size=window_size,
        window_block_indexes=WINDOWED,
        **arguments,
    )


def swin(arch: str = 'tiny', **arguments: object) -> nn.Module:
    return RoPESwin(arch, drop_path_rate=0.0, **arguments)


def vit_peers(size: str) -> dict[str, Builder]:
    """ViT with global attention. The first is the limit: the same model without position."""
    return {
        'rope_dense, no position': partial(vit, size, rope=None),
        'rope_dense, mixed': partial(vit, size, rope=MIXED),
        'rope_dense, axial': partial(vit, size, rope=AXIAL),
        'timm, deit3 (no rope)': partial(timm_vit, f'deit3_{size}_patch16_224'),
        'timm, mixed': partial(timm_vit, f'vit_{size}_patch16_rope_mixed_224'),
        'timm, axial': partial(timm_vit, f'vit_{size}_patch16_rope_224'),
        'rope-vit form, mixed': partial(rope_vit_form, size, MIXED),
        'rope-vit form, axial': partial(rope_vit_form, size, AXIAL),
    }


def dinov3_peers(size: str) -> dict[str, Builder]:
    """DINOv3's ViT, whose own frequencies are axial."""
    return {
        'rope_dense, no position': partial(vit, f'dinov3_{size}', rope=None),
        'rope_dense, axial': partial(vit, f'dinov3_{size}'),
        'timm, axial': partial(timm_vit, f'vit_{size}_patch16_dinov3'),
    }


def vitdet_peers(size: str) -> dict[str, Builder]:
    """ViTDet backbones; the detectron2 form comes first, as what is to be beaten."""
    return {
        'detectron2 / SAM form, window 14': partial(detectron2_form, size),
        'rope_dense, relative position, window 14': partial(
            vitdet, size, rope=None, attention=dict(type='DecomposedBias')
        ),
        'rope_dense, no position, window 14': partial(vitdet, size, rope=None),
        'rope_dense, mixed, window 14': partial(vitdet, size, rope=MIXED),
        'rope_dense, mixed, window 16': partial(
            vitdet, size, window_size=16, rope=MIXED
        ),
        'rope_dense, axial, window 16': partial(
            vitdet, size, window_size=16, rope=AXIAL
        ),
    }


def swin_peers(size: str) -> dict[str, Builder]:
    """Swin backbones; mmdet's comes first, as what is to be beaten."""
    return {
        'mmdet': partial(mmdet_swin, size),
        'rope_dense, no position': partial(swin, size, rope=None),
        'rope_dense, bias': partial(
            swin, size, rope=None, attention=dict(type='TableBias')
        ),
        'rope_dense, mixed': partial(swin, size, rope=MIXED),
        'rope_dense, axial': partial(swin, size, rope=SWIN_AXIAL),
    }


@cache
def why_not(name: str) -> str | None:
    """A reason why a model of another project cannot be built here, or None."""
    imports = dict(timm=import_timm, mmdet=import_mmdet_swin)
    project = name.split(',')[0]
    try:
        imports.get(project, lambda: None)()
    except Exception as error:  # what a broken installation raises is not known
        return f'{project} cannot be imported: {type(error).__name__}: {error}'
    return None


def import_with_stand_ins(name: str, missing: dict[str, object]) -> ModuleType:
    """A module, with stand-ins for what it imports, unless the first of these is installed. The
    models compared here use nothing of it."""
    first = next(iter(missing))
    stand_ins = missing if name not in sys.modules and find_spec(first) is None else {}
    sys.modules.update(stand_ins)
    try:
        return import_module(name)
    finally:
        for stand_in in stand_ins:
            del sys.modules[stand_in]


# ------------------------------------------------------------------------- timm


def timm_vit(name: str) -> nn.Module:
    """A model of timm that takes any image size, without its head."""
    return import_timm().create_model(
        name, pretrained=False, num_classes=0, global_pool='', dynamic_img_size=True
    )


def import_timm() -> ModuleType:
    """timm, which imports torchvision."""
    stand_ins = {name: MagicMock(name=name) for name in TORCHVISION}
    # timm asks whether layers are of this class.
    stand_ins['torchvision.ops.misc'].FrozenBatchNorm2d = type('Norm', (nn.Module,), {})
    return import_with_stand_ins('timm', stand_ins)


TORCHVISION = (
    'torchvision',
    'torchvision.datasets',
    'torchvision.models',
    'torchvision.models.feature_extraction',
    'torchvision.ops',
    'torchvision.ops.misc',
    'torchvision.transforms',
    'torchvision.transforms.functional',
)

# ------------------------------------------------------------------------ mmdet


def mmdet_swin(size: str) -> nn.Module:
    """mmdet's SwinTransformer."""
    return import_mmdet_swin().SwinTransformer(
        **RoPESwin.ARCHS[size], drop_path_rate=0.0
    )


def import_mmdet_swin() -> ModuleType:
    """Its module in mmdet, which imports mmcv's compiled operators for other models."""
    return import_with_stand_ins(
        'mmdet.models.backbones.swin', {'mmcv._ext': MagicMock()}
    )


# --------------------------------------------------------- forms, from formulas


def with_attention(
    model: nn.Module, form: Callable[[Attention], nn.Module]
) -> nn.Module:
    """The model with another computation in the place of each of its attentions."""
    for block in model.blocks:
        block.attn = form(block.attn)
    return model


def rope_vit_form(size: str, rope: dict) -> nn.Module:
    """The computation of naver's rope-vit: see ``RopeVitForm``. (Its own code assigns the rotated
    tokens in place, with which mixed frequencies cannot be trained; here they are joined.)"""
    return with_attention(vit(size, rope=rope), RopeVitForm)


class RopeVitForm(nn.Module):
    """Rotation as a complex product with a table of all tokens, made in each call from the sines of
    all tokens, behind a permutation of q, k, v; softmax(q k^T) v as plain products."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.num_heads = attention.num_heads
        self.num_prefix_tokens = attention.num_prefix_tokens
        self.qkv, self.rope, self.proj = attention.qkv, attention.rope, attention.proj

    def forward(
        self, x: Tensor, grid: tuple[int, int], plan: None = None, mask: None = None
    ) -> Tensor:
        q, k, v = (
            self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        )
        angles = self.rope(x, grid).angles.transpose(0, 1)  # [h or 1, N, P]
        table = torch.polar(torch.ones_like(angles), angles)
        q, k = (self.rotate(x, table) for x in (q, k))
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    def rotate(self, x: Tensor, table: Tensor) -> Tensor:
        prefix, tokens = (
            x[:, :, : self.num_prefix_tokens],
            x[:, :, self.num_prefix_tokens :],
        )
        pairs = torch.view_as_complex(
            tokens.float().unflatten(-1, (-1, 2)).contiguous()
        )
        return torch.cat(
            [prefix, torch.view_as_real(pairs * table).flatten(-2).type_as(x)], 2
        )


def detectron2_form(size: str) -> nn.Module:
    """The computation of detectron2's and SAM's ViTDet: see ``Detectron2Form``."""
    return with_attention(
        vitdet(size, rope=None, attention=dict(type='DecomposedBias')), Detectron2Form
    )


class Detectron2Form(nn.Module):
    """softmax(q k^T + row bias + column bias) v as plain products, [h, N, N] scores in memory. For
    windows the grid is padded first, and padding is projected as tokens are."""

    def __init__(self, attention: DecomposedBiasAttention) -> None:
        super().__init__()
        self.num_heads, self.rope = attention.num_heads, None
        self.qkv, self.proj = attention.qkv, attention.proj
        self.rel_pos_h, self.rel_pos_w = attention.rel_pos_h, attention.rel_pos_w

    def forward(
        self,
        x: Tensor,
        grid: tuple[int, int],
        plan: WindowPlan | None = None,
        mask: None = None,
    ) -> Tensor:
        if plan is None:
            return self.attend(x, grid)
        (height, width), size = grid, plan.window_size
        x = F.pad(
            x.unflatten(1, grid), (0, 0, 0, -width % size[1], 0, -height % size[0])
        )
        x = x.unflatten(2, (-1, size[1])).unflatten(1, (-1, size[0]))
        windows = x.transpose(2, 3).contiguous()  # [B, rows, columns, h, w, C]
        out = self.attend(windows.flatten(3, 4).flatten(0, 2), size).view(windows.shape)
        out = out.transpose(2, 3).flatten(3, 4).flatten(1, 2)
        return out[:, :height, :width].flatten(1, 2)

    def attend(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """[B, N, C] to [B, N, C], all tokens of a grid."""
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, h, N, D] each
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        q = q.unflatten(2, grid)  # [B, h, H, W, D]
        rows = torch.einsum('bnhwd,hkd->bnhwk', q, by_offset(self.rel_pos_h, grid[0]))
        columns = torch.einsum(
            'bnhwd,wkd->bnhwk', q, by_offset(self.rel_pos_w, grid[1])
        )
        scores = scores.unflatten(3, grid).unflatten(2, grid)  # [B, h, H, W, H, W]
        scores = (
            (scores + rows[..., :, None] + columns[..., None, :])
            .flatten(4)
            .flatten(2, 3)
        )
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


def by_offset(table: Tensor, size: int) -> Tensor:
    """[size, size, D] of a table over offsets, resized linearly where it is of another size."""
    if len(table) != 2 * size - 1:
        table = F.interpolate(table.T[None], size=2 * size - 1, mode='linear')[0].T
    index = torch.arange(size, device=table.device)
    return table[index[:, None] - index + size - 1]
