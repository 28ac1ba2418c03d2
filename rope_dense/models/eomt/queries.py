"""The Encoder-only Mask Transformer (EoMT): queries among the tokens of a ViT.

Letters: B images, Q queries, P prefix tokens of the backbone, H x W token grid, N = Q + P + H W
tokens, C channels, K classes, h x w mask of a query.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...backbones import RoPEViT
from ...backbones.layers import build_norm, to_map
from ...backbones.position_bias import DecomposedBiasAttention
from ...utils.sizes import Size
from ..plain_vit_fpn import LayerNorm2d

Prediction = tuple[Tensor, Tensor]  # class logits [B, Q, K + 1] and mask logits [B, Q, h, w]


class EoMT(nn.Module):
    """Queries among the tokens of the last blocks, and the classes and masks predicted from them.

    Kerssies et al., "Your ViT is Secretly an Image Segmentation Model" (CVPR 2025). The queries are
    prefix tokens without a position, in front of the backbone's; there is no decoder. In
    training a prediction is also made before each of these blocks, and its masks restrict the
    attention of the block: a query attends to a token of the grid only where its own mask is
    positive (and always to queries and prefix tokens). A query is restricted with the probability
    ``mask_probs`` of the block, which ``MaskAnnealingHook`` lowers from 1 to 0 during the training.
    In evaluation, attention is not restricted. Checked against transformers' ``EomtDinov3`` with
    the same random weights, and against attention token by token, in tests/models/test_eomt.py.

    Args:
        embed_dims: C.
        num_classes: K; one more logit stands for no object.
        num_queries: Q.
        num_blocks: how many blocks the queries pass.
        patch_size: of the backbone, in pixels. Each block of ``upscale`` doubles the grid, and
            there are log2(patch_size) - 2 of them, rounded down, one at least: a place of a mask
            has 4 pixels a side for patches of 16, and 7 for patches of 14.
        norm_cfg: of a norm before the predictions, in mmcv's form, for a backbone without a norm
            after its last block. None: the backbone has one.

    Attributes:
        mask_probs: [num_blocks], the probability of masking a query. Not part of a checkpoint.
    """

    mask_probs: Tensor

    def __init__(
        self,
        embed_dims: int,
        num_classes: int,
        num_queries: int,
        num_blocks: int = 4,
        patch_size: int = 16,
        norm_cfg: dict | None = None,
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
        self.upscale = nn.Sequential(*(UpscaleBlock(embed_dims) for _ in range(num_upscale)))
        self.norm = build_norm(norm_cfg, embed_dims) if norm_cfg else None
        self.register_buffer('mask_probs', torch.ones(num_blocks), persistent=False)

    def join(self, backbone: RoPEViT) -> None:
        """Make the last blocks of a backbone expect the queries; it no longer runs without them.

        Raises:
            ValueError: the queries do not fit the backbone.
        """
        check_backbone(backbone, self)
        for block in backbone.blocks[-self.num_blocks :]:
            block.attn.num_prefix_tokens += self.num_queries

    def forward(self, backbone: RoPEViT, image: Tensor) -> list[Prediction]:
        """Predictions for images [B, 3, height, width].

        In training before each of the last blocks and after them, in evaluation only after them.

        Args:
            backbone: has been given to ``join``.
        """
        dtype = next(backbone.patch_embed.parameters()).dtype  # half precision, if exported so
        image = image.to(dtype)
        x, grid = backbone.embed(image)
        plan = backbone.plan_windows(x.shape[0], grid, x.device)
        depth, predictions, mask = len(backbone.blocks), [], None
        for index in range(depth):
            step = index - (depth - self.num_blocks)
            if step == 0:
                queries = self.query.weight.to(x.dtype).expand(x.shape[0], -1, -1)
                x = torch.cat([queries, x], 1)  # [B, N, C]
            if step >= 0 and self.training:
                predictions.append(self.predict(backbone, x, grid))
                mask = self.attention_mask(predictions[-1][1], x.shape[1], grid, step)
            x = backbone.run_block(index, x, grid, plan, mask)
        return [*predictions, self.predict(backbone, x, grid)]

    def predict(self, backbone: RoPEViT, x: Tensor, grid: Size) -> Prediction:
        """Classes and masks from tokens [B, N, C]."""
        norm = backbone.norm if self.norm is None else self.norm
        assert norm is not None  # see check_backbone
        x = norm(x).to(self.query.weight.dtype)
        queries = x[:, : self.num_queries]
        tokens = x[:, self.num_queries + backbone.num_prefix_tokens :]
        features = self.upscale(to_map(tokens, grid))  # [B, C, h, w]
        masks = self.mask_head(queries) @ features.flatten(2)  # [B, Q, h w]
        return self.class_head(queries), masks.unflatten(2, features.shape[2:])

    @torch.no_grad()
    def attention_mask(self, masks: Tensor, num_tokens: int, grid: Size, step: int) -> Tensor:
        """[B, 1, N, N], false where a token does not attend to another.

        Args:
            masks: [B, Q, h, w], logits.
            num_tokens: N.
            step: which of the blocks it is for.
        """
        inside = F.interpolate(masks, grid, mode='bilinear', align_corners=False) > 0
        free = torch.rand(masks.shape[:2], device=masks.device) >= self.mask_probs[step]  # [B, Q]
        mask = inside.new_ones(masks.shape[0], num_tokens, num_tokens)
        mask[:, : self.num_queries, -grid[0] * grid[1] :] = inside.flatten(2) | free[..., None]
        return mask[:, None]


class UpscaleBlock(nn.Sequential):
    """A map [B, C, H, W] at twice its size."""

    def __init__(self, channels: int) -> None:
        super().__init__(
            nn.ConvTranspose2d(channels, channels, kernel_size=2, stride=2),
            nn.GELU(),
            nn.Conv2d(channels, channels, kernel_size=3, padding=1, groups=channels, bias=False),
            LayerNorm2d(channels),
        )


def check_backbone(backbone: RoPEViT, eomt: EoMT) -> None:
    """Raise ValueError unless queries can join the last blocks of a backbone."""
    depth, channels = len(backbone.blocks), backbone.arch.embed_dims
    first = depth - eomt.num_blocks
    if first < 0:
        raise ValueError(f'num_blocks={eomt.num_blocks}: the backbone has {depth}')
    given = dict(in_channels=eomt.query.embedding_dim, patch_size=eomt.patch_size)
    needed = dict(in_channels=channels, patch_size=backbone.patch_embed.patch_size)
    if given != needed:
        raise ValueError(f'EoMT has {given}, the backbone needs {needed}')
    if any(index >= first for index in backbone.window_blocks):
        raise ValueError(
            f'window_block_indexes={backbone.window_blocks}: queries join the blocks from {first} '
            'on, which must attend globally'
        )
    if backbone.frozen_stages > first and backbone.lora is None:
        raise ValueError(
            f'frozen_stages={backbone.frozen_stages}: queries join the blocks from {first} on, '
            'which must train'
        )
    if isinstance(backbone.blocks[-1].attn, DecomposedBiasAttention):
        raise ValueError('use_rel_pos=True: queries have no relative position')
    if (backbone.norm is None) == (eomt.norm is None):
        raise ValueError(
            'EoMT predicts from normalised tokens: set final_norm=True in the backbone, or '
            'norm_cfg in the head if its weights have no such norm, and not both'
        )
