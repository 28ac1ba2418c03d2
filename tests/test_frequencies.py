from types import ModuleType

import pytest
import torch

from rope_dense.rope import AxialRoPE, MixedRoPE, RotaryEmbedding

CPU = torch.device('cpu')


def only_rotation(rope: RotaryEmbedding, height: int, width: int):
    return rope([0], height=height, width=width, device=CPU)[0]


def test_axial_frequencies_are_the_published_series():
    rotation = only_rotation(AxialRoPE(64, 12, 1, theta=100.0), 2, 3)
    x, y = rotation.freqs  # [1, 32]
    assert rotation.freqs.shape == (2, 1, 32)
    expected = torch.tensor([100 ** (-4 * k / 64) for k in range(16)])
    torch.testing.assert_close(x[0, :16], expected)
    torch.testing.assert_close(y[0, 16:], expected)
    assert not x[0, 16:].any() and not y[0, :16].any()
    assert x[0, 0] == 1 and x[0, 15] == pytest.approx(0.0133, abs=1e-4)


def test_swin_axial_ends_at_the_published_frequency():
    x, _ = only_rotation(AxialRoPE(32, 3, 1, theta=50.0), 7, 7).freqs
    assert x[0, 7] == pytest.approx(0.0326, abs=1e-4)


def test_mixed_starts_with_orthogonal_halves_of_axial_length():
    rope = MixedRoPE(64, 12, 4, theta=10.0)
    assert rope.freqs.shape == (2, 4, 12, 32)
    length = rope.freqs.norm(dim=0)
    expected = torch.tensor([10 ** (-4 * k / 64) for k in range(16)])
    torch.testing.assert_close(length, expected.repeat(2).expand(4, 12, 32))
    first, second = rope.freqs.chunk(2, -1)
    torch.testing.assert_close((first * second).sum(0), torch.zeros(4, 12, 16), atol=1e-6, rtol=0)
    directions = torch.atan2(first[1, :, :, 0], first[0, :, :, 0]).flatten()
    assert len(directions.unique()) == 4 * 12  # one direction per block and head


def test_axial_learned_starts_as_axial_and_every_frequency_learns():
    fixed = only_rotation(AxialRoPE(16, 2, 1), 3, 5)
    rope = AxialRoPE(16, 2, 1, learned=True)
    learned = only_rotation(rope, 3, 5)
    torch.testing.assert_close(learned.angles(), fixed.angles().expand(-1, 2, -1))
    learned.angles().square().sum().backward()
    assert (rope.freqs.grad != 0).all()


def test_axial_has_no_state():
    assert not AxialRoPE(64, 12, 12).state_dict()


@pytest.mark.parametrize('height, width', [(4, 4), (3, 7)])
def test_mixed_angles_equal_timm(timm: ModuleType, height: int, width: int):
    from timm.layers.pos_embed_sincos import RotaryEmbeddingMixed

    theirs = RotaryEmbeddingMixed(dim=48, depth=2, num_heads=3, temperature=10.0, feat_shape=None)
    ours = MixedRoPE(16, 3, 2)
    ours.freqs.data.copy_(theirs.freqs.view_as(ours.freqs))
    sin, cos = theirs.get_embed((height, width))[1].chunk(2, -1)  # [h, N, D], pairs repeated
    angles = ours([0, 1], height=height, width=width, device=CPU)[1].angles()  # [N, h, P]
    torch.testing.assert_close(angles.sin(), sin[..., ::2].transpose(0, 1), atol=1e-5, rtol=0)
    torch.testing.assert_close(angles.cos(), cos[..., ::2].transpose(0, 1), atol=1e-5, rtol=0)


@pytest.mark.parametrize('rope', [MixedRoPE(8, 2, 3), AxialRoPE(8, 2, 3)])
def test_table_is_the_exponential_of_the_angles(rope: RotaryEmbedding):
    for rotation in rope([0, 2], height=5, width=4, device=CPU):
        expected = torch.polar(torch.ones(()), rotation.angles().detach())
        torch.testing.assert_close(rotation.table(), expected, atol=2e-6, rtol=0)


def test_blocks_that_turn_alike_share_one_table():
    first, second = AxialRoPE(8, 2, 3)([0, 2], height=3, width=4, device=CPU)
    alone = only_rotation(AxialRoPE(8, 2, 3), 3, 4)
    assert first.table() is second.table()
    assert torch.equal(first.table(), alone.table())
    torch.testing.assert_close(
        first.crop(height=2, width=3).table(), alone.crop(height=2, width=3).table()
    )


def test_blocks_are_those_asked_for():
    rope = MixedRoPE(8, 2, 3)
    second, first = rope([2, 0], height=2, width=2, device=CPU)
    assert torch.equal(second.freqs, rope.freqs[:, 2])
    assert torch.equal(first.freqs, rope.freqs[:, 0])
    assert rope([], height=2, width=2, device=CPU) == []


def test_crop_is_the_rotation_of_the_smaller_grid():
    rope = MixedRoPE(8, 2, 1)
    cropped = only_rotation(rope, 5, 6).crop(height=2, width=3)
    torch.testing.assert_close(cropped.angles(), only_rotation(rope, 2, 3).angles())
    torch.testing.assert_close(cropped.table(), only_rotation(rope, 2, 3).table())


def test_angles_stay_float32_in_a_half_precision_model():
    rotation = only_rotation(MixedRoPE(8, 2, 1).half(), 2, 2)
    assert rotation.angles().dtype == torch.float32
    assert rotation.table().dtype == torch.complex64


@pytest.mark.parametrize(
    'arguments, message',
    [
        (dict(head_dim=6), 'head_dim must be a multiple of 4.*got 6'),
        (dict(theta=0.0), 'theta must be positive, got 0.0'),
        (dict(pair_layout='halves'), "pair_layout must be one of.*got 'halves'"),
    ],
)
@pytest.mark.parametrize('cls', [AxialRoPE, MixedRoPE])
def test_bad_arguments_are_named(cls: type, arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        cls(**{'head_dim': 8, 'num_heads': 2, 'depth': 1, **arguments})


def test_an_empty_grid_is_an_error():
    with pytest.raises(ValueError, match='height=0, width=3'):
        only_rotation(AxialRoPE(8, 2, 1), 0, 3)
