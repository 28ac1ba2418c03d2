"""Multi-head self-attention, global or in windows, with a rotary embedding.

Letters: B images, H x W token grid, R prefix tokens, N tokens of an image (R + H W, and the copies
of prefix tokens that windows have, see ``WindowPlan``), w windows of all images, n tokens of the
grid or of a window, m = R + n tokens that attend to each other, h heads, D channels of a head, C =
h D, P rotated channel pairs of a head.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..rope import Rotary, RotaryEmbedding, rotate
from ..rope.rotation import rotate_packed
from ..utils.memo import is_tracing
from ..utils.sizes import Size
from .archs import QkvBias
from .layers import build_norm, may_differ
from .windows import WindowPlan


@dataclass(frozen=True)
class Place:
    """The place of a block in its backbone, which a kind of attention may depend on.

    Attributes:
        grid: (H, W) tokens of the pre-training, of an image or of its windows.
        patch_size: pixels of a side of a patch.
        in_windows: whether the block attends within windows.
        global_prefix: whether prefix tokens of windows attend to all tokens.
        index, depth: of the block, and the number of blocks.
    """

    grid: Size
    patch_size: int = 16
    in_windows: bool = False
    global_prefix: bool = False
    index: int = 0
    depth: int = 1


class AttentionLayers(nn.Module):
    """The layers of self-attention: projections, rotary embedding and norm.

    A subclass defines ``forward(x, grid, plan, mask)``, tokens [B, N, C] to tokens.

    Args:
        embed_dims: C.
        num_heads: h.
        qkv_bias: whether the qkv projection has a bias; 'qv' for queries and values only, as
            EVA-02 and DINOv3. (Softmax takes out a bias of keys, but not of rotated ones.)
        rope: rotary embedding, or None.
        num_prefix_tokens: tokens before the grid's, which have no position: a class token,
            registers, the queries of EoMT.
        norm_cfg: of a norm before the output projection (EVA-02-CLIP), or None.
    """

    def __init__(
        self,
        embed_dims: int,
        num_heads: int,
        qkv_bias: QkvBias = True,
        rope: RotaryEmbedding | None = None,
        num_prefix_tokens: int = 0,
        norm_cfg: dict | None = None,
    ) -> None:
        super().__init__()
        self.num_heads, self.num_prefix_tokens = num_heads, num_prefix_tokens
        self.qkv: nn.Linear
        if qkv_bias == 'qv':
            self.qkv = QVBiasLinear(embed_dims)
        else:
            self.qkv = nn.Linear(embed_dims, 3 * embed_dims, bias=qkv_bias)
        self.rope = rope
        self.norm = build_norm(norm_cfg, embed_dims) if norm_cfg else nn.Identity()
        self.proj = nn.Linear(embed_dims, embed_dims)


class Attention(AttentionLayers):
    """Softmax attention among all tokens of an image, or of a window.

    The base class of all kinds that a config ``attention=dict(type=...)`` names; see "Add a kind of
    attention" in docs/extending.md.

    Args:
        place: where the block is; a kind that depends on it names it among its own arguments.
        qk_norm: of the D channels of each head's queries and keys, before the rotation, or None.
    """

    def __init__(
        self,
        *args: Any,
        place: Place | None = None,
        qk_norm: dict | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        head_dim = self.proj.in_features // self.num_heads
        self.q_norm = build_norm(qk_norm, head_dim) if qk_norm else None
        self.k_norm = build_norm(qk_norm, head_dim) if qk_norm else None

    def forward(
        self,
        x: Tensor,
        grid: Size,
        plan: WindowPlan | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Attend, globally or in windows.

        Args:
            x: [B, N, C].
            grid: (H, W) of the tokens after the prefix.
            plan: gathers the tokens into windows and back; None to attend globally.
            mask: [B, 1, N, N], false where a token (row) does not attend to another, such as in
                EoMT; None to attend to all. Of global attention only.

        Returns:
            [B, N, C].
        """
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))  # [B, N, 3, h, D]
        if self.q_norm is not None:
            qkv = self.normalized(qkv)
        # [B, N, C]
        return self.proj(self.norm(self.attend_tokens(x, qkv, grid, plan, mask)))

    def normalized(self, qkv: Tensor) -> Tensor:
        """Normalise queries and keys: [..., 3, h, D] to the same."""
        assert self.q_norm is not None and self.k_norm is not None
        q, k, v = qkv.unbind(-3)  # [..., h, D]
        return torch.stack(
            [self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype), v], -3
        )

    def attend_tokens(
        self,
        x: Tensor,
        qkv: Tensor,
        grid: Size,
        plan: WindowPlan | None,
        mask: Tensor | None,
    ) -> Tensor:
        """Attention output [B, N, C] before the output projection, of ``qkv`` [B, N, 3, h, D].

        Windows are cut after the projection, so that their padding need not be projected, but is
        what a zero token would become (``padding``).
        """
        assert plan is None or mask is None, 'windows have masks of their own'
        size = plan.window_size if plan is not None and plan.contiguous else None
        rope = self.rope
        rotary = None if rope is None else rope(x, grid, size)
        if plan is not None:
            qkv = plan.partition(qkv, self.padding(x, plan))  # [w, m, 3, h, D]
            if rotary is not None and (rotary.angles.ndim == 4 or not plan.contiguous):
                rotary = rotary_in_windows(rotary, plan)
        q, k, v = rotate(qkv, rotary, self.num_prefix_tokens)  # [B or w, h, m, D]
        # [B or w, m, C]
        out = self.attend(x, q, k, v, softmax_scale(q, rotary), grid, plan, mask)
        return out if plan is None else plan.unpartition(out)  # [B, N, C]

    def attend(
        self,
        x: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
        grid: Size,
        plan: WindowPlan | None,
        mask: Tensor | None,
    ) -> Tensor:
        """Attention output [B or w, m, C], in windows if there are any.

        Args:
            x, grid, plan, mask: see ``forward``.
            q, k, v: rotated queries and keys, and values, [B or w, h, m, D] each.
            scale: of the scores.
        """
        before = self.num_prefix_tokens
        bias = self.bias(q[:, :, before:], grid if plan is None else plan.window_size)
        if bias is not None and plan is not None and not plan.contiguous:
            raise ValueError(
                'a bias by offsets within a window needs windows of neighbours'
            )
        if bias is not None and before:
            bias = F.pad(bias, (before, 0, before, 0))  # [..., m, m]
        return softmax_attention(q, k, v, bias, scale, plan, mask)

    def padding(self, x: Tensor, plan: WindowPlan) -> Tensor | None:
        """Query, key and value [3, h, D] of a token of zeros, which fills padded windows.

        None if that is zero, or no window is padded.
        """
        if plan.is_padding is None:
            return None
        qkv = self.qkv
        if isinstance(qkv, QVBiasLinear):
            projected: Tensor | None = qkv.packed_bias()
        elif isinstance(qkv, nn.Linear):
            projected = qkv.bias
        else:  # a wrapper of another library
            projected = qkv(x.new_zeros(1, x.shape[-1]))[0]
        if projected is None and self.q_norm is not None:
            projected = x.new_zeros(3 * x.shape[-1])  # of which a norm makes its bias
        if projected is None:
            return None
        token = projected.unflatten(0, (3, self.num_heads, -1))
        return token if self.q_norm is None else self.normalized(token)

    def bias(self, q: Tensor, size: Size) -> Tensor | None:
        """Return the values added to the scaled scores between tokens of the grid, or None.

        Scores from and to prefix tokens have none.

        Args:
            q: rotated queries of the grid or of windows, [B or w, h, n, D].
            size: of the grid or window; n is the product of its sides.

        Returns:
            [h, n, n] or [B or w, h, n, n].
        """
        return None


class GlobalPrefixAttention(Attention):
    """Attention in windows whose prefix tokens attend globally.

    A token of the grid attends to its window and to the prefix, a prefix token to all:
    global attention with a mask, with the positions of the whole grid; padding is masked. Checked
    in tests/backbones/test_prefix_windows.py against just that, token by token.
    """

    def attend_tokens(
        self,
        x: Tensor,
        qkv: Tensor,
        grid: Size,
        plan: WindowPlan | None,
        mask: Tensor | None,
    ) -> Tensor:
        """See ``Attention.attend_tokens``.

        ``plan`` is one of ``window_plan`` with ``num_shared``: no copies, and masks hide padding.
        """
        if plan is None:
            return super().attend_tokens(x, qkv, grid, plan, mask)
        rope = self.rope
        rotary = None if rope is None else rope(x, grid)
        qkv = rotate_packed(qkv, rotary, self.num_prefix_tokens)
        scale = softmax_scale(qkv, rotary)
        prefix = qkv[:, : self.num_prefix_tokens]
        tokens = qkv[:, self.num_prefix_tokens :]
        queries = plan.partition(tokens[:, :, 0])
        others = plan.partition(tokens[:, :, 1:])
        # [w, R, 2, h, D]
        shared = prefix[:, :, 1:].repeat(plan.num_windows, 1, 1, 1, 1)
        keys_values = torch.cat([shared, others], 1)  # [w, m, 2, h, D]
        windows = attend_packed(queries, keys_values, scale, plan)  # [w, n, C]
        prefix = attend_packed(prefix[:, :, 0], qkv[:, :, 1:], scale, None)  # [B, R, C]
        return torch.cat([prefix, plan.unpartition(windows)], 1)  # [B, N, C]


class QVBiasLinear(nn.Linear):
    """A qkv projection, [..., C] to [..., 3 C], with a bias for queries and values only."""

    def __init__(self, embed_dims: int) -> None:
        super().__init__(embed_dims, 3 * embed_dims, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(embed_dims))
        self.v_bias = nn.Parameter(torch.zeros(embed_dims))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.packed_bias())

    def packed_bias(self) -> Tensor:
        """[3 C], zero for the keys."""
        return torch.cat([self.q_bias, torch.zeros_like(self.q_bias), self.v_bias])


def softmax_scale(q: Tensor, rotary: Rotary | None) -> float:
    """The factor of the scores of queries [..., D]."""
    return q.shape[-1] ** -0.5 * (1.0 if rotary is None else rotary.attention_scale)


def rotary_in_windows(rotary: Rotary, plan: WindowPlan) -> Rotary:
    """Gather the angles of images [B or none, H W, h or 1, P] into windows like their tokens."""
    angles = rotary.angles.expand(plan.shape[0], -1, -1, -1)
    if plan.num_copies:  # zeros for the copies in front, which are cut off again
        angles = F.pad(angles, (0, 0, 0, 0, plan.shape[1] - angles.shape[1], 0))
    angles = plan.partition(angles)[:, plan.num_copies :]  # [w, n, h or 1, P]
    return replace(rotary, angles=angles)


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    scale: float,
    plan: WindowPlan | None,
    mask: Tensor | None = None,
) -> Tensor:
    """Softmax attention of n queries to m tokens; returns [B or w, n, h D].

    Args:
        q: queries [B or w, h, n, D].
        k, v: keys and values [B or w, h, m, D].
        bias: [h, n, m] or [B or w, h, n, m], added to the scaled scores, or None.
        scale: of the scores.
        plan: of the windows, some of which may need a mask, or None.
        mask: see ``Attention.forward``.
    """
    shared_bias = bias is None or bias.ndim == 3
    if bias is not None:
        # Four axes, which fused kernels need; traced, an axis of 1 would fix the batch.
        bias = (bias[None] if shared_bias and not is_tracing() else bias).to(q.dtype)
    if plan is None or plan.mask is None:
        bias = masked_bias(bias, mask)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)
        return out.transpose(1, 2).flatten(2)
    sizes = [plan.num_unmasked, plan.mask.shape[0]]  # windows without a mask are first
    biases = [bias, bias] if bias is None or shared_bias else bias.split(sizes)
    masks = [biases[0], masked_bias(biases[1], plan.mask)]
    groups = [*zip(q.split(sizes), k.split(sizes), v.split(sizes), masks, strict=True)]
    if not may_differ(plan.num_unmasked, 0):
        groups = groups[1:]  # all windows have a mask
    outs = [
        F.scaled_dot_product_attention(*group, scale=scale).transpose(1, 2)
        for group in groups
    ]
    return torch.cat(outs).flatten(2)


def masked_bias(bias: Tensor | None, mask: Tensor | None) -> Tensor | None:
    """The bias with -inf where a mask is false; or a mask alone, for torch."""
    if mask is None:
        return bias
    if bias is None:
        return mask
    return bias.masked_fill(~mask, -torch.inf)


def attend_packed(
    queries: Tensor, keys_values: Tensor, scale: float, plan: WindowPlan | None
) -> Tensor:
    """From queries [B, n, h, D] to keys and values [B, m, 2, h, D]; returns [B, n, C]."""
    q, k, v = (x.transpose(1, 2) for x in (queries, *keys_values.unbind(2)))
    return softmax_attention(q, k, v, None, scale, plan)
