"""Properties of the frequencies of a rotary embedding.

Letters: P rotated channel pairs of a head, D channels of a head, h heads. Frequencies [2, P] are in
radians a patch, x first; angles of an offset (x, y) are F[0] x + F[1] y.
"""

import torch
from torch import Tensor, nn

from rope_dense.backbones.base import Backbone
from rope_dense.rope import AxialRoPE, LogAxialRoPE, Rotary
from rope_dense.rope.embeddings import linear_angles
from rope_dense.rope.frequencies import axis_frequencies
from rope_dense.utils.sizes import Size

# Of figure 1 of Heo et al., as the author gave them: github.com/naver-ai/rope-vit/issues/24.
POINT_SETS = (
    ((1, 1),),
    ((0, 1), (1, 1), (-1, 1)),
    ((3, 3), (-2, 2)),
)  # (x, y), patches


@torch.no_grad()
def patch_frequencies(backbone: Backbone, block: int, image_size: Size) -> Tensor:
    """The frequencies of the angles in a block, [2, h or 1, P], in radians a patch.

    They include scaling and the unit of the coordinates.

    Args:
        backbone: in evaluation mode.
        block: index in ``ordered_blocks``.
        image_size: (height, width) in pixels, on which scalings and coordinates may depend.

    Raises:
        ValueError: the block has no rotary embedding, fewer than 2 x 2 tokens, or angles that are
            not linear in the position.
    """
    rope = backbone.ordered_blocks[block].attn.rope
    if rope is None:
        raise ValueError(f'block {block} has no rotary embedding')
    seen = []

    def see(module: nn.Module, inputs: tuple, rotary: Rotary) -> None:
        seen.append((inputs, rotary.angles))

    hook, device = rope.register_forward_hook(see), next(backbone.parameters()).device
    try:
        backbone(
            torch.zeros(1, backbone.patch_embed.in_channels, *image_size, device=device)
        )
    finally:
        hook.remove()
    (_, grid, *window), angles = seen[0]
    if angles.ndim != 3:
        raise ValueError(
            f'block {block}: the angles of {rope} differ from image to image'
        )
    height, width = window[0] if window and window[0] else grid
    if min(height, width) < 2:
        raise ValueError(
            f'block {block} rotates {height} x {width} tokens of images of {image_size[0]} x '
            f'{image_size[1]} pixels: give a larger size, so that there are 2 x 2'
        )
    freqs = torch.stack([angles[1] - angles[0], angles[width] - angles[0]])
    index = torch.arange(len(angles), device=device)
    positions = torch.stack([index % width, index // width], -1).to(angles.dtype)
    linear = angles[0] + linear_angles(positions, freqs)
    if not torch.allclose(angles, linear, atol=1e-5 * float(linear.abs().max())):
        raise ValueError(
            f'block {block}: the angles of {rope} are not linear in the position'
        )
    return freqs.cpu()


def axial_reference(head_dim: int = 64, theta: float = 100.0) -> Tensor:
    """Return the axial frequencies of the paper's ViTs, [2, D / 2]."""
    return AxialRoPE(head_dim, 1, theta).frequencies(torch.device('cpu'))[:, 0]


def cross_reference(head_dim: int = 64, theta: float = 100.0) -> Tensor:
    """Return "axial + cross", [2, D / 2]: half as many along x, y and both diagonals.

    Source: see ``POINT_SETS``.
    """
    base = theta ** -(torch.arange(0, head_dim, 8) / head_dim)
    directions = torch.tensor([[1.0, 0.0, 1.0, 1.0], [0.0, 1.0, 1.0, -1.0]])
    return (directions[..., None] * base).flatten(1)


def reconstruct(freqs: Tensor, points: Tensor, positions: Tensor) -> Tensor:
    """A picture of points, 1 there and 0 elsewhere, from its Fourier coefficients at ``freqs``.

    mean over t of Re(c_t exp(i F_t p)), c_t = sum over s of exp(-i F_t s): the inverse transform
    with no other frequencies, up to scale. One point alone has the value 1. Heo et al., figure 1.

    Args:
        freqs: [2, P].
        points: [S, 2], s.
        positions: [..., 2], p.

    Returns:
        [...].
    """
    coefficients = torch.exp(-1j * (points @ freqs)).sum(0)  # [P]
    return (torch.exp(1j * (positions @ freqs)) * coefficients).mean(-1).real


def partial_sums(freqs: Tensor, offsets: Tensor) -> Tensor:
    """``|S_j|`` of S_j = sum over i < j of exp(i F_i offset), j = 1 .. P.

    The score of a query and a key at this offset is the real part of the sum of h_i exp(i F_i
    offset), h_i the query's pair i as a complex number times the conjugate of the key's. It is at
    most P B max over i of ``|h_(i+1) - h_i|`` with h_P = 0, where B is the mean of the ``|S_j|``:
    Su, "Transformer Upgrade: 2" (2021). The last, ``|S_P|``, where all h_i are 1, is equation 3 of
    the fused-attention paper.

    Args:
        freqs: [A, P] along A axes.
        offsets: [..., A].

    Returns:
        [..., P].
    """
    return torch.exp(1j * (offsets @ freqs)).cumsum(-1).abs()


def sequence_frequencies(head_dim: int = 128, theta: float = 10000.0) -> Tensor:
    """Return the frequencies of one-dimensional RoPE, theta ** (-2 i / D), [1, D / 2]."""
    return axis_frequencies(2 * head_dim, theta)[None]


def series_of_dimensions(dims: int, head_dim: int = 32) -> dict[str, Tensor]:
    """Return the frequencies of one axis, all heads one after the other, [dims / 4] each.

    Figure 4 of the fused-attention paper. Log-axial frequencies of each head cover the whole range,
    so the series falls at each of the h - 1 steps to the next head.
    """
    heads = dims // head_dim
    log = (
        LogAxialRoPE(head_dim, heads, k_rope=1).frequency_source().of_axis()
    )  # [h, D / 4]
    return {
        'log-axial, per head (unit: half a side of the map)': log.flatten(),
        '2D RoPE (unit: a patch)': axis_frequencies(dims, 100.0),
    }
