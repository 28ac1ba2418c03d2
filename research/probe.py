"""Statistics of attention while a model runs, without a change to the model.

Letters: h heads, D channels of a head; G groups of tokens that attend to each other (images,
windows, or tiles of neighbourhoods), n queries and m keys of a group.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rope_dense.backbones.attention import AttentionLayers

from .tokens import Groups, token_groups

CHUNK = 2**20  # probabilities in memory at a time
EXACT = 'donot_use_mm_for_euclid_dist'  # products of coordinates would cancel


class AttentionProbe(TorchFunctionMode):
    """Sums the statistics of all attention that is computed within this context.

    Hooks on the attention modules, ``enter`` and ``leave``, give the block and its tokens.

    Attributes:
        sums: [blocks, 2] of the distances and of the entropies.
        weights: [blocks], the numbers of summands: heads times queries.
    """

    def __init__(self, num_blocks: int, chunk: int) -> None:
        super().__init__()
        self.sums = torch.zeros(num_blocks, 2, dtype=torch.float64)
        self.weights = torch.zeros(num_blocks, dtype=torch.float64)
        self.chunk, self.block = chunk, 0
        self.groups: Groups = []  # of the block, not attended yet

    def enter(self, block: int, attn: AttentionLayers, inputs: tuple) -> None:
        """A forward pre-hook of attention."""
        self.block, (x, grid, plan, *_) = block, inputs
        self.groups = token_groups(attn, x, grid, plan)

    def leave(self, attn: AttentionLayers, inputs: tuple, output: Tensor) -> None:
        """A forward hook of attention."""
        if self.groups:
            raise ValueError(
                f'block {self.block}: {type(attn).__name__} does not call '
                "scaled_dot_product_attention (linear attention; NATTEN's kernels, without them: "
                "backend='torch'), so it does not compute probabilities"
            )

    def __torch_function__(
        self,
        func: Callable,
        types: object,
        args: tuple = (),
        kwargs: dict | None = None,
    ) -> object:
        if func is F.scaled_dot_product_attention and self.groups:
            self.observe(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def observe(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        *,
        scale: float,
    ) -> None:
        """Add a call of attention: of the first of the groups that were not attended yet."""
        queries, keys = self.groups.pop(0)
        if len(q) < len(queries):
            self.groups.insert(0, (queries[len(q) :], keys[len(q) :]))
            queries, keys = queries[: len(q)], keys[: len(q)]
        values = query_statistics(q, k, attn_mask, scale, queries, keys, self.chunk)
        weights = queries[:, None, :, 3].double()  # [G, 1, n]
        self.sums[self.block] += (values * weights[..., None]).sum((0, 1, 2)).cpu()
        self.weights[self.block] += (weights.sum() * q.shape[1]).cpu()


def query_statistics(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    scale: float,
    queries: Tensor,
    keys: Tensor,
    chunk: int,
) -> Tensor:
    """Distance and entropy of each query, [G, h, n, 2].

    Args:
        q, k: [G, h, n, D] and [G, h, m, D].
        mask: boolean or additive; see ``scaled_dot_product_attention``.
        scale: factor of the scores.
        queries, keys: see ``token_table``, [G, n, 4] and [G, m, 4].
        chunk: about so many probabilities are in memory at a time.
    """
    dtype = torch.promote_types(q.dtype, torch.float32)
    q, k, queries, keys = (x.to(dtype) for x in (q, k, queries, keys))
    if mask is not None:
        mask = mask.expand(*q.shape[:3], k.shape[2])
    rows = max(1, chunk // (q.shape[0] * q.shape[1] * k.shape[2]))
    out = []
    for start in range(0, q.shape[2], rows):
        now = slice(start, start + rows)
        scores = scale * q[:, :, now] @ k.transpose(2, 3)  # [G, h, rows, m]
        if mask is not None and mask.dtype == torch.bool:
            scores.masked_fill_(~mask[:, :, now], -torch.inf)
        elif mask is not None:
            scores += mask[:, :, now]
        probabilities = scores.softmax(-1)
        distances = torch.cdist(queries[:, now, :2], keys[..., :2], compute_mode=EXACT)
        distances *= queries[:, now, 2:3] * keys[:, None, :, 2]  # [G, rows, m]
        expected = torch.einsum('ghnm,gnm->ghn', probabilities, distances)
        entropy = torch.special.entr(probabilities).sum(-1)
        out.append(torch.stack([expected, entropy], -1))
    return torch.cat(out, 2)
