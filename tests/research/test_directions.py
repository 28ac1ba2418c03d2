"""Fixed directions, and settings of other embeddings that public work names, against formulas."""

import math

import pytest
import torch
from kinds import DirectionRoPE
from torch import Tensor

from rope_dense.backbones import RoPEViT
from rope_dense.rope import AxialRoPE, GridRoPE

CPU = torch.device('cpu')
GOLDEN = (math.sqrt(5) - 1) / 2


def angles_of(rope: GridRoPE, grid: tuple[int, int]) -> Tensor:
    """[N, h or 1, P] in float64."""
    return rope(torch.empty(1, grid[0] * grid[1], 1, dtype=torch.float64), grid).angles


def test_golden_angles():
    """12 pairs of each of 3 heads, 3 of them still; corners at -1 and 1 on the longer side."""
    height, width, low, high = 3, 5, 0.2, 20.0
    angles = angles_of(DirectionRoPE(24, 3), (height, width))
    for head in range(3):
        for pair in range(12):
            speed = low * (high / low) ** ((pair - 3) / 8) if pair >= 3 else 0
            phi = (head * 12 + pair) * math.pi * GOLDEN
            for row in range(height):
                for column in range(width):
                    x, y = 2 * column / (width - 1) - 1, 2 * row / (width - 1) - 1
                    expected = speed * (math.cos(phi) * x + math.sin(phi) * y)
                    actual = angles[row * width + column, head, pair].item()
                    assert actual == pytest.approx(
                        expected, abs=2e-5
                    )  # float32 frequencies


def test_simplex_angles():
    """32 pairs: 10 scales of 3 directions, the two left over are still."""
    settings = dict(low=0.5, high=8.0, zeros=0.0, coordinates=dict(type='index'))
    rope = DirectionRoPE(64, 2, directions='simplex', **settings)
    angles = angles_of(rope, (3, 4))
    assert angles.shape == (12, 1, 32) and not angles[..., :2].any()
    for scale in range(10):
        for side in range(3):
            speed, phi = 0.5 * 16 ** (scale / 9), 2 * math.pi * side / 3
            for token in range(12):
                expected = speed * (
                    math.cos(phi) * (token % 4) + math.sin(phi) * (token // 4)
                )
                actual = angles[token, 0, 2 + 3 * scale + side].item()
                assert actual == pytest.approx(expected, abs=2e-5)


def test_random_directions_are_part_of_the_state():
    first, second = (DirectionRoPE(64, 3, 'random', zeros=0.5) for _ in range(2))
    freqs = first.frequencies(CPU)
    assert list(first.state_dict()) == ['freqs'] and not [*first.parameters()]
    assert not torch.equal(freqs, second.frequencies(CPU))
    second.load_state_dict(first.state_dict())
    assert torch.equal(freqs, second.bfloat16().frequencies(CPU))  # float32 still
    speeds = torch.tensor([0.0] * 16 + [0.2 * 100 ** (j / 15) for j in range(16)])
    torch.testing.assert_close(freqs.norm(dim=0), speeds.expand(3, -1))
    phi = torch.atan2(freqs[1, :, 16:], freqs[0, :, 16:])
    assert len(phi.unique()) == 48 and phi.min() < -2 and phi.max() > 2


def test_fixed_directions_have_no_state():
    for directions in ('golden', 'simplex'):
        rope = DirectionRoPE(64, 3, directions)
        assert not rope.state_dict()
        again = DirectionRoPE(64, 3, directions).frequency_source()
        assert rope.frequency_source() == again and hash(
            rope.frequency_source()
        ) == hash(again)


@pytest.mark.parametrize(
    'rope, ripples',
    [
        (AxialRoPE(8, 1), (0.010, 0.136, 0.528)),
        (DirectionRoPE(12, 1, 'simplex', zeros=0.0), (0.0001, 0.005, 0.046)),
        (DirectionRoPE(32, 1, 'golden', zeros=0.0), (0.011, 0.032, 0.058)),
    ],
)
def test_isotropy(rope: GridRoPE, ripples: tuple[float, ...]):
    """Largest less smallest mean cosine over directions, at equal frequencies: 16 golden ones are
    no more isotropic than two axes at short distances, and far more at longer ones."""
    x, y = freqs = rope.frequencies(CPU)[:, 0].double()
    units = freqs / torch.hypot(x, y)  # [2, P]
    around = torch.linspace(0, 2 * math.pi, 721, dtype=torch.float64)
    offsets = torch.stack([around.cos(), around.sin()], 1)  # [721, 2]
    for radius, ripple in zip((1, 2, 3), ripples, strict=True):
        kernel = (radius * offsets @ units).cos().mean(1)
        assert (kernel.max() - kernel.min()).item() == pytest.approx(ripple, abs=6e-4)


@pytest.mark.parametrize('directions', ['golden', 'simplex', 'random'])
def test_a_backbone_takes_every_kind(directions: str):
    rope = dict(type='DirectionRoPE', directions=directions)
    small = dict(embed_dims=32, depth=1, num_heads=2)
    model = RoPEViT(small, rope=rope, window_size=3, window_block_indexes=(0,))
    (out,) = model(torch.rand(2, 3, 80, 112))
    out.square().mean().backward()
    assert model.blocks[0].attn.qkv.weight.grad.any()


def test_scaling_needs_coordinates_that_grow():
    small = dict(embed_dims=32, depth=1, num_heads=2)
    linear = dict(type='linear')
    with pytest.raises(ValueError, match=r'rope_scaling: .* cover the same range'):
        RoPEViT(small, rope=dict(type='DirectionRoPE'), rope_scaling=linear)
    rope = dict(
        type='DirectionRoPE', low=0.01, high=1.0, coordinates=dict(type='index')
    )
    embedding = (
        RoPEViT(small, img_size=64, rope=rope, rope_scaling=linear).blocks[0].attn.rope
    )
    halved = embedding(torch.empty(1, 64, 32), (8, 8)).angles
    torch.testing.assert_close(
        2 * halved[1:2], embedding(torch.empty(1, 16, 32), (4, 4)).angles[1:2]
    )


@pytest.mark.parametrize(
    'arguments, message',
    [
        (dict(directions='axes'), "directions must be one of .* got 'axes'"),
        (dict(low=0.0), 'low must be a finite number, more than 0'),
        (dict(high=0.2), 'high must be a finite number, more than 0.2'),
        (dict(zeros=1.0), 'zeros must be a finite number, 0 or more, less than 1'),
        (dict(directions='simplex', zeros=0.9), 'zeros must be .* simplex pairs of 16'),
    ],
)
def test_bad_arguments_are_named(arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        DirectionRoPE(32, 2, **arguments)


@pytest.mark.parametrize('grid', [14, 32])
def test_rope_id_in_two_dimensions(grid: int):
    """docs/positions.md: half of the channels, the lowest frequency turns once across the grid."""
    n = 64 // (4 * 2)  # frequencies of an axis
    rope = AxialRoPE(64, 3, k_rope=2, theta=(grid / (2 * math.pi)) ** (n / (n - 1)))
    x, y = rope.frequencies(CPU)
    assert 2 * x.shape[1] == 32  # of 64 channels
    for axis in (x, y):
        speeds = axis[axis > 0]
        assert speeds.max() == 1 and len(speeds) == n
        assert speeds.min().item() * grid == pytest.approx(2 * math.pi, rel=1e-5)
