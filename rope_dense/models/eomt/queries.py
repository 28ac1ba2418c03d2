"""Queries among the tokens of a ViT, and the Encoder-only Mask Transformer (EoMT).

Letters: B images, Q queries, R prefix tokens of the backbone, H x W token grid, N = Q + R + H W
tokens, C channels, K classes, h x w mask of a query.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...backbones import RoPEViT
from ...backbones.block import recompute
from ...backbones.layers import build_norm, to_map
from ...backbones.position_bias import DecomposedBiasAttention
from ...utils.sizes import Size
from ..plain_vit_fpn import LayerNorm2d

Prediction = tuple[Tensor, Tensor]  # logits: classes [B, Q, K + 1], masks [B, Q, h, w]
RunBlock = Callable[[Tensor, Size, None, Tensor | None], Tensor]  # as Block.forward


class MaskQueries(nn.Module):
    """Queries among tokens, the blocks that they pass, and the classes and masks of the queries.

    Queries are prefix tokens without a position, in front of the others. In training a prediction
    is also made before each of the blocks, and its masks restrict the attention of the block: a
    query attends to a token of the grid only where its own mask is positive (and always to queries
    and prefix tokens). A query is restricted with the probability ``mask_probs`` of the block,
    which ``MaskAnnealingHook`` lowers from 1 to 0 during the training. In evaluation, attention is
    not restricted.

    Args:
        embed_dims: C.
        num_classes: K; one more logit stands for no object.
        num_queries: Q.
        num_blocks: how many blocks the queries pass.
        patch_size: of the backbone, in pixels. Each block of ``upscale`` doubles the grid, and
            there are log2(patch_size) - 2 of them, rounded down, one at least: a place of a mask
            has 4 pixels a side for patches of 16, and 7 for patches of 14.

    Attributes:
        mask_probs: of each block, the probability of masking a query. Not part of a checkpoint.
    """

    norm: nn.Module | None

    def __init__(
        self,
        embed_dims: int,
        num_classes: int,
        num_queries: int,
        num_blocks: int,
        patch_size: int,
    ) -> None:
        super().__init__()
        self.num_queries = num_queries
        self.num_blocks = num_blocks
        self.patch_size = patch_size
        self.query = nn.Embedding(num_queries, embed_dims)
        self.class_head = nn.Linear(embed_dims, num_classes + 1)
        self.mask_head = nn.Sequential(
            nn.Linear(embed_dims, embed_dims),
            nn.GELU(),
            nn.Linear(embed_dims, embed_dims),
            nn.GELU(),
            nn.Linear(embed_dims, embed_dims),
        )
        num_upscale = max(1, int(math.log2(patch_size)) - 2)
        self.upscale = nn.Sequential(
            *(UpscaleBlock(embed_dims) for _ in range(num_upscale))
        )
        # No tensor: the host would wait for its upload.
        self.mask_probs = [1.0] * num_blocks

    def join(self, backbone: RoPEViT) -> None:
        """Fit the queries to a backbone, once; ValueError if they do not fit it."""
        given = dict(in_channels=self.query.embedding_dim, patch_size=self.patch_size)
        needed = dict(
            in_channels=backbone.arch.embed_dims,
            patch_size=backbone.patch_embed.patch_size,
        )
        if given != needed:
            raise ValueError(f'the head has {given}, the backbone needs {needed}')

    @abstractmethod
    def forward(self, backbone: RoPEViT, image: Tensor) -> list[Prediction]:
        """Predictions for images [B, 3, height, width] by a backbone that ``join`` was given.

        In training before each of the blocks and after them, in evaluation only after them.
        """

    def decode(
        self,
        x: Tensor,
        grid: Size,
        number: int,
        blocks: Sequence[RunBlock],
        norm: nn.Module,
    ) -> list[Prediction]:
        """Predictions from tokens [B, N - Q, C], R and a grid (H, W), that the queries join.

        The queries pass ``blocks``; ``norm`` is before each prediction.
        """
        queries = self.query.weight.to(x.dtype).expand(x.shape[0], -1, -1)
        x = torch.cat([queries, x], 1)  # [B, N, C]
        predictions = []
        for step, block in enumerate(blocks):
            mask = None  # also where it would be all true, so that flash attention is possible
            if self.training:
                predictions.append(self.predict(norm(x), grid, number))
                if self.mask_probs[step] > 0:
                    _, masks = predictions[-1]
                    mask = self.attention_mask(masks, x.shape[1], grid, step)
            x = block(x, grid, None, mask)
        predictions.append(self.predict(norm(x), grid, number))
        return predictions

    def predict(
        self,
        x: Tensor,
        grid: Size,
        num_prefix_tokens: int,
    ) -> Prediction:
        """Classes and masks from normalised tokens [B, N, C]."""
        x = x.to(self.query.weight.dtype)
        queries = x[:, : self.num_queries]
        tokens = x[:, self.num_queries + num_prefix_tokens :]
        features = self.upscale(to_map(tokens, grid))  # [B, C, h, w]
        masks = self.mask_head(queries) @ features.flatten(2)  # [B, Q, h w]
        return self.class_head(queries), masks.unflatten(2, features.shape[2:])

    @torch.no_grad()
    def attention_mask(
        self,
        masks: Tensor,
        num_tokens: int,
        grid: Size,
        step: int,
    ) -> Tensor:
        """[B, 1, N, N], false where a token does not attend to another in the block of a step.

        It is made of logits ``masks`` [B, Q, h, w].
        """
        inside = F.interpolate(masks, grid, mode='bilinear', align_corners=False) > 0
        drawn = torch.rand(masks.shape[:2], device=masks.device)  # [B, Q]
        is_free = drawn >= self.mask_probs[step]
        mask = inside.new_ones(masks.shape[0], num_tokens, num_tokens)
        to_grid = mask[:, : self.num_queries, -grid[0] * grid[1] :]  # [B, Q, H W]
        to_grid[:] = inside.flatten(2) | is_free[..., None]
        return mask[:, None]


class EoMT(MaskQueries):
    """Queries among the tokens of the last blocks of a backbone.

    Kerssies et al., "Your ViT is Secretly an Image Segmentation Model" (CVPR 2025); there is no
    decoder. Checked against transformers' ``EomtDinov3`` with the same random weights, and against
    attention token by token, in tests/models/test_eomt.py.

    Args:
        norm_cfg: of a norm before the predictions, in mmcv's form, for a backbone without a norm
            after its last block. None: the backbone has one.
    """

    def __init__(
        self,
        embed_dims: int,
        num_classes: int,
        num_queries: int,
        num_blocks: int = 4,
        patch_size: int = 16,
        norm_cfg: dict | None = None,
    ) -> None:
        super().__init__(embed_dims, num_classes, num_queries, num_blocks, patch_size)
        self.norm = build_norm(norm_cfg, embed_dims) if norm_cfg else None

    def join(self, backbone: RoPEViT) -> None:
        """Let the last blocks expect the queries, for good; ValueError if they do not fit."""
        check_backbone(backbone, self)
        super().join(backbone)
        for block in backbone.blocks[-self.num_blocks :]:
            block.attn.num_prefix_tokens += self.num_queries

    def forward(self, backbone: RoPEViT, image: Tensor) -> list[Prediction]:
        """See ``MaskQueries``."""
        # Half precision, if exported so.
        dtype = next(backbone.patch_embed.parameters()).dtype
        first = len(backbone.blocks) - self.num_blocks
        (x,), grid = backbone.block_tokens(image.to(dtype), [first - 1])
        norm = backbone.norm if self.norm is None else self.norm
        assert norm is not None  # see check_backbone
        blocks: list[RunBlock] = list(backbone.blocks[first:])
        if backbone.with_cp:
            blocks = [partial(recompute, block) for block in backbone.blocks[first:]]
        return self.decode(x, grid, backbone.num_prefix_tokens, blocks, norm)


class UpscaleBlock(nn.Sequential):
    """A map [B, C, H, W] at twice its size."""

    def __init__(self, channels: int) -> None:
        super().__init__(
            nn.ConvTranspose2d(channels, channels, kernel_size=2, stride=2),
            nn.GELU(),
            nn.Conv2d(
                channels,
                channels,
                kernel_size=3,
                padding=1,
                groups=channels,
                bias=False,
            ),
            LayerNorm2d(channels),
        )


def check_backbone(backbone: RoPEViT, eomt: EoMT) -> None:
    """Raise ValueError unless queries can join the last blocks of a backbone."""
    depth = len(backbone.blocks)
    first = depth - eomt.num_blocks
    if first < 0:
        raise ValueError(f'num_blocks={eomt.num_blocks}: the backbone has {depth}')
    if any(index >= first for index in backbone.window_blocks):
        raise ValueError(
            f'window_block_indexes={backbone.window_blocks}: queries join the blocks from {first} '
            'on, which must attend globally'
        )
    if isinstance(backbone.blocks[-1].attn, DecomposedBiasAttention):
        raise ValueError('attention DecomposedBias: queries have no relative position')
    if (backbone.norm is None) == (eomt.norm is None):
        raise ValueError(
            'EoMT predicts from normalised tokens: set final_norm=True in the backbone, or '
            'norm_cfg in the head if its weights have no such norm, and not both'
        )
