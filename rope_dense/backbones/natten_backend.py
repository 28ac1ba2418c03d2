"""Neighbourhood attention by NATTEN's fused kernel ``na2d``, where NATTEN can be used."""

import logging
from functools import cache
from importlib.util import find_spec

from torch import Tensor, float64

from ..utils.sizes import Size

MISSING = 'NATTEN is not installed (pip install natten)'


def attend(
    qkv: Tensor, grid: Size, kernel_size: Size, dilation: int, scale: float
) -> Tensor:
    """Attention of each token to its neighbourhood, in one kernel without copies of keys.

    Args:
        qkv: [B, H', W', 3, h, D], with padding.
        grid: (H, W) without padding.
        kernel_size, dilation: of the neighbourhoods, see ``neighbour_plan``.
        scale: of the scores.

    Returns:
        [B, H W, C].
    """
    from natten import na2d

    q, k, v = qkv.unbind(3)  # [B, H', W', h, D] each
    out = na2d(q, k, v, kernel_size=kernel_size, dilation=dilation, scale=scale)
    return out[:, : grid[0], : grid[1]].flatten(3).flatten(1, 2)  # [B, H W, C]


def can_attend(qkv: Tensor) -> bool:
    """Return whether the kernel takes a projection [..., D]; a reason why not is logged once."""
    reason = why_not(qkv)
    if reason is not None:
        log_once(f'neighbourhood attention without NATTEN: {reason}')
    return reason is None


def why_not(qkv: Tensor) -> str | None:
    """Return why the kernel cannot take a projection [..., D]; None if it can."""
    if not qkv.is_cuda:
        return 'the tensors are not on a CUDA device'
    if find_spec('natten') is None:
        return MISSING
    import natten

    if not natten.HAS_LIBNATTEN:
        return 'NATTEN was installed without its CUDA library'
    if qkv.dtype == float64:
        return 'its kernels take float16, bfloat16 and float32'
    if qkv.shape[-1] % 8:
        return f'its kernels take heads of a multiple of 8 channels, these have {qkv.shape[-1]}'
    return None


@cache
def log_once(message: str) -> None:
    """Log a message the first time that it is given."""
    logging.getLogger(__name__).info(message)
