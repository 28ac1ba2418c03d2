"""Softmax attention whose position terms are written out pair by pair, in float64."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rope_dense.backbones.attention import Attention
from rope_dense.rope import rotate

# Head, token of the query [C], columns and rows from key to query -> value, and whether it is
# multiplied by D ** -0.5 as q . k is.
Term = Callable[[int, Tensor, int, int], float]


def attend_pairwise(
    attn: Attention, x: Tensor, size: tuple[int, int], term: Term, is_scaled: bool
) -> Tensor:
    """Output of attention [B, N, C] of tokens [B, N, C], prefix tokens first; a term for each pair.

    Pairs with a prefix token have no term.
    """
    heads = attn.num_heads
    qkv = attn.qkv(x).unflatten(-1, (3, heads, -1))
    rotary = None if attn.rope is None else attn.rope(x, size)
    q, k, v = rotate(qkv, rotary, attn.num_prefix_tokens)
    scale = q.shape[-1] ** -0.5
    scores = scale * q @ k.transpose(2, 3)
    number = size[0] * size[1]
    before = x.shape[1] - number
    terms = torch.zeros(len(x), heads, number, number, dtype=x.dtype)
    for image in range(len(x)):
        for head in range(heads):
            for query in range(number):
                token = x[image, before + query]
                for key in range(number):
                    rows, columns = (
                        a - b
                        for a, b in zip(
                            *(divmod(i, size[1]) for i in (query, key)), strict=True
                        )
                    )
                    terms[image, head, query, key] = term(head, token, columns, rows)
    scores[:, :, before:, before:] += scale * terms if is_scaled else terms
    out = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
    return attn.proj(out)
