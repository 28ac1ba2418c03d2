"""Attention whose time and memory are linear in the number of tokens.

Letters: see docs/architecture.md. Checked in tests/research/test_linear_attention.py against sums
over all keys.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor

from rope_dense.backbones.attention import Attention
from rope_dense.backbones.windows import WindowPlan
from rope_dense.rope import rotate
from rope_dense.utils.sizes import Size
from rope_dense.utils.validation import check_choice

LinearKernel = Literal['elu', 'cosine']


@MODELS.register_module()
class LinearAttention(Attention):
    """A kernel in place of the softmax, with rotary embedding in two forms. Experimental.

    With R the rotation of a token, weights of keys j for a query i are, up to their sum over j:

    ==========  ====================================================================================
    kernel      weight
    ==========  ====================================================================================
    ``elu``     (R_i f(q_i)) . (R_j f(k_j)), f = elu + 1; the sum is without R, so it is positive
    ``cosine``  1 + (R_i q_i) . (R_j k_j), both of length 1
    ==========  ====================================================================================

    Su, "Transformer Upgrade: 2, Rotary Position Embedding with Diverse Strengths" (2021, in
    Chinese), which leaves f open. Blocks with windows keep the softmax. A temperature of
    ``rope_scaling`` has no effect.

    Args:
        kernel: see above.
        others: see ``Attention``.

    Raises:
        ValueError: another kernel.
    """

    def __init__(self, *args: Any, kernel: LinearKernel, **kwargs: Any) -> None:
        check_choice('attention: kernel', kernel, get_args(LinearKernel))
        super().__init__(*args, **kwargs)
        self.kernel = kernel

    def attend_tokens(
        self,
        x: Tensor,
        qkv: Tensor,
        grid: Size,
        plan: WindowPlan | None,
        mask: Tensor | None,
    ) -> Tensor:
        """See ``Attention.attend_tokens``.

        Raises:
            ValueError: a mask.
        """
        if plan is not None:
            return super().attend_tokens(x, qkv, grid, plan, mask)
        if mask is not None:
            raise ValueError(
                'mask must be None: linear attention has no scores to mask'
            )
        rotary = None if self.rope is None else self.rope(x, grid)
        features, values = qkv[:, :, :2], qkv[:, :, 2:]
        if self.kernel == 'elu':
            features = F.elu(features) + 1
        else:
            features = F.normalize(features, dim=-1, eps=1e-6)
        features = torch.cat([features, values], 2)
        q, k, v = rotate(features, rotary, self.num_prefix_tokens)  # [B, h, N, D]
        out = q @ (k.transpose(2, 3) @ v / k.shape[2])  # means, as sums may overflow
        if self.kernel == 'elu':
            q, k, _ = rotate(features, None)  # unrotated
            out = out / (q * k.mean(2, True)).sum(-1, True)
        else:
            out = (out + v.mean(2, True)) / (1 + (q * k.mean(2, True)).sum(-1, True))
        return out.transpose(1, 2).flatten(2)
