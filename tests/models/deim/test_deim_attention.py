"""Attention of DEIM against torch's and transformers', and point by point."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.deim import close
from rope_dense.models.deim.layers import DeformableAttention, SelfAttention


@pytest.mark.parametrize('masked', [False, True])
def test_self_attention_is_that_of_torch(masked: bool) -> None:
    reference = nn.MultiheadAttention(16, 4, batch_first=True)
    nn.init.normal_(reference.in_proj_bias)
    attention = SelfAttention(16, 4)
    weights = {
        'in_proj.weight': reference.in_proj_weight,
        'in_proj.bias': reference.in_proj_bias,
        'out_proj.weight': reference.out_proj.weight,
        'out_proj.bias': reference.out_proj.bias,
    }
    attention.load_state_dict(weights)
    x, positions = torch.randn(2, 7, 16), torch.randn(1, 7, 16)
    mask = (torch.rand(7, 7) > 0.5) | torch.eye(7, dtype=torch.bool) if masked else None
    query = x + positions
    hidden = None if mask is None else ~mask
    expected, _ = reference(query, query, x, attn_mask=hidden)
    assert close(attention(x, positions, mask), expected)


def test_self_attention_starts_as_that_of_torch() -> None:
    ours, theirs = SelfAttention(64, 4), nn.MultiheadAttention(64, 4)
    assert ours.in_proj.weight.std().item() == pytest.approx(
        theirs.in_proj_weight.std().item(), rel=0.05
    )
    assert ours.out_proj.weight.std().item() == pytest.approx(
        theirs.out_proj.weight.std().item(), rel=0.05
    )


def test_deformable_attention_point_by_point() -> None:
    heads, points = 2, (2, 3)
    attention = DeformableAttention(8, heads, points).double()
    for param in attention.parameters():
        nn.init.normal_(param, std=0.5)
    maps = [torch.randn(1, 8, 5, 7).double(), torch.randn(1, 8, 3, 4).double()]
    query, boxes = torch.randn(1, 3, 8).double(), torch.rand(1, 3, 4).double()
    values = [x.unflatten(1, (heads, -1)).flatten(0, 1) for x in maps]
    out = attention(query, boxes, values)
    offsets = attention.sampling_offsets(query).view(3, heads, 5, 2)
    weights = attention.attention_weights(query).view(3, heads, 5).softmax(-1)
    for q in range(3):
        for head in range(heads):
            total = torch.zeros(4).double()
            for point in range(5):
                level = int(point >= 2)
                place = (
                    boxes[0, q, :2]
                    + offsets[q, head, point] * 0.5 / points[level] * boxes[0, q, 2:]
                )
                value = maps[level].view(1, heads, 4, *maps[level].shape[2:])[:, head]
                sample = F.grid_sample(
                    value, (2 * place - 1).view(1, 1, 1, 2), align_corners=False
                )
                total += weights[q, head, point] * sample.flatten()
            assert torch.allclose(out[0, q].view(heads, 4)[head], total)


def test_points_start_as_in_transformers() -> None:
    """Heads in all directions, further and further from the centre of the box."""
    offsets = DeformableAttention(8, 4, (2, 1)).sampling_offsets.bias.view(4, 3, 2)
    expected = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    assert torch.allclose(offsets[:, 0], expected, atol=1e-6)
    assert torch.allclose(offsets[:, 1], 2 * expected, atol=1e-6)
    assert torch.allclose(offsets[:, 2], expected, atol=1e-6)
