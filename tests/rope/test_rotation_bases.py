"""A fixed orthogonal basis of queries and keys makes no new attention: projections absorb it.

STRING, ComRoPE with blocks of more than two channels and "Rethinking RoPE" rotate in such a basis,
see docs/positions.md.
"""

import torch
from torch import Tensor

from rope_dense.backbones.attention import Attention
from rope_dense.rope import MixedRoPE

C, HEADS, GRID, BLOCK = 16, 2, (3, 4), 4
D = C // HEADS


def comrope_rotations(blocks: Tensor, factors: Tensor) -> Tensor:
    """exp(A_x x + A_y y), A_axis = m_axis (P - P^T): [N, h, D, D], block-diagonal.

    Args:
        blocks: P of each head and block of channels, [h, D / 4, 4, 4].
        factors: m of each axis and block, [2, D / 4].
    """
    skew = blocks - blocks.mT
    rotations = []
    for row in range(GRID[0]):
        for column in range(GRID[1]):
            along = factors[0] * column + factors[1] * row  # [D / 4]
            of_blocks = torch.linalg.matrix_exp(skew * along[:, None, None])
            rotations.append(
                torch.stack([torch.block_diag(*head) for head in of_blocks])
            )
    return torch.stack(rotations)


def pair_basis(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Orthogonal Z [h, D, D] and frequencies [h, D / 2] with (P - P^T) = Z rotations Z^T.

    Columns 2 t and 2 t + 1 of Z span a plane that P - P^T turns by the t-th frequency.
    """
    bases, speeds = [], []
    for head in blocks - blocks.mT:
        planes = []
        for skew in head:
            values, vectors = torch.linalg.eigh(
                1j * skew
            )  # real eigenvalues, in pairs of signs
            for index in range(BLOCK // 2, BLOCK):
                speeds.append(values[index])
                vector = vectors[:, index] * 2**0.5
                planes.append(torch.stack([vector.real, vector.imag], 1))
        by_block = [torch.cat(planes[i : i + 2], 1) for i in range(0, len(planes), 2)]
        bases.append(torch.block_diag(*by_block))
    return torch.stack(bases), torch.stack(speeds).view(HEADS, -1)


def test_comrope_with_larger_blocks_is_mixed_rope_with_other_projections():
    torch.manual_seed(0)
    blocks = torch.randn(HEADS, D // BLOCK, BLOCK, BLOCK, dtype=torch.float64)
    factors = torch.randn(2, D // BLOCK, dtype=torch.float64)
    attn = Attention(C, HEADS).double()
    x = torch.randn(2, GRID[0] * GRID[1], C, dtype=torch.float64)

    q, k, v = attn.qkv(x).unflatten(-1, (3, HEADS, D)).unbind(2)  # [B, N, h, D]
    rotations = comrope_rotations(blocks, factors)
    q, k = (torch.einsum('nhij,bnhj->bhni', rotations, y) for y in (q, k))
    scores = (q @ k.mT / D**0.5).softmax(-1)
    expected = attn.proj((scores @ v.transpose(1, 2)).transpose(1, 2).flatten(2))

    basis, speeds = pair_basis(blocks)
    rope = MixedRoPE(D, HEADS).double()
    folded = Attention(C, HEADS, rope=rope).double()
    folded.load_state_dict(attn.state_dict(), strict=False)
    with torch.no_grad():
        rope.freqs.copy_(speeds * factors.repeat_interleave(BLOCK // 2, 1)[:, None])
        for parameter in folded.qkv.parameters():  # rows of queries and keys, by head
            by_head = parameter[: 2 * C].view(2, HEADS, D, -1)
            parameter[: 2 * C] = (
                (basis.mT @ by_head).view(2 * C, -1).view_as(parameter[: 2 * C])
            )
    torch.testing.assert_close(folded(x, GRID), expected, atol=1e-12, rtol=0)
    assert not torch.allclose(attn(x, GRID), expected, atol=1e-3)  # positions do matter
