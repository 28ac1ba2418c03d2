import pytest
import torch
from reference import rotated

from rope_dense.rope import AxialRoPE, MixedRoPE, RotaryEmbedding, Rotation, rotate, rotate_qkv

CPU = torch.device('cpu')
HEIGHT, WIDTH, HEADS, HEAD_DIM = 4, 6, 3, 8
EMBEDDINGS = {
    'mixed': lambda: MixedRoPE(HEAD_DIM, HEADS, 1),
    'axial': lambda: AxialRoPE(HEAD_DIM, HEADS, 1),
    'learned axial': lambda: AxialRoPE(HEAD_DIM, HEADS, 1, learned=True),
    'mixed, split': lambda: MixedRoPE(HEAD_DIM, HEADS, 1, pair_layout='split'),
}


@pytest.fixture(params=EMBEDDINGS)
def rope(request: pytest.FixtureRequest) -> RotaryEmbedding:
    return EMBEDDINGS[request.param]().double()


def make(rope: RotaryEmbedding, height: int = HEIGHT, width: int = WIDTH, prefix: int = 0):
    return rope([0], height=height, width=width, device=CPU, num_prefix_tokens=prefix)[0]


def random_tokens(rotation: Rotation) -> torch.Tensor:
    return torch.randn(2, rotation.num_tokens, HEADS, HEAD_DIM, dtype=torch.float64)


def test_the_first_token_does_not_turn(rope: RotaryEmbedding):
    rotation = make(rope)
    x = random_tokens(rotation)
    torch.testing.assert_close(rotate(x, rotation)[:, 0], x[:, 0])


def test_norms_are_kept(rope: RotaryEmbedding):
    rotation = make(rope)
    x = random_tokens(rotation)
    torch.testing.assert_close(rotate(x, rotation).norm(dim=-1), x.norm(dim=-1))


def test_scores_depend_on_the_offset_only(rope: RotaryEmbedding):
    rotation = make(rope)
    q = torch.randn(1, 1, HEADS, HEAD_DIM, dtype=torch.float64).expand(1, HEIGHT * WIDTH, -1, -1)
    k = torch.randn(1, 1, HEADS, HEAD_DIM, dtype=torch.float64).expand(1, HEIGHT * WIDTH, -1, -1)
    q, k = rotate(q, rotation)[0], rotate(k, rotation)[0]
    scores = torch.einsum('ihd,jhd->hij', q, k).reshape(HEADS, HEIGHT, WIDTH, HEIGHT, WIDTH)
    one_right_one_down = [
        scores[:, y, x, y + 1, x + 1] for y in range(HEIGHT - 1) for x in range(WIDTH - 1)
    ]
    for score in one_right_one_down[1:]:
        torch.testing.assert_close(score, one_right_one_down[0], atol=1e-6, rtol=0)
    assert (scores[:, 0, 0, 1, 1] - scores[:, 0, 0, 1, 2]).abs().max() > 1e-3
    assert (scores[:, 0, 0, 0, 1] - scores[:, 0, 0, 1, 0]).abs().max() > 1e-3


def test_a_transposed_grid_swaps_the_axes(rope: RotaryEmbedding):
    rotation = make(rope)
    x = random_tokens(rotation)
    transposed = x.unflatten(1, (HEIGHT, WIDTH)).transpose(1, 2).flatten(1, 2)
    swapped = make(rope, WIDTH, HEIGHT)
    swapped = Rotation(
        swapped.freqs.flip(0), swapped.x, swapped.y, swapped.columns, swapped.rows, swapped.layout
    )
    back = rotate(transposed, swapped).unflatten(1, (WIDTH, HEIGHT)).transpose(1, 2).flatten(1, 2)
    torch.testing.assert_close(back, rotate(x, rotation))


def test_equals_complex_multiplication():
    rotation = make(MixedRoPE(HEAD_DIM, HEADS, 1).double())
    x = random_tokens(rotation)
    positions = [(column, row) for row in range(HEIGHT) for column in range(WIDTH)]
    for image in range(2):
        expected = rotated(x[image], rotation.freqs, positions)
        torch.testing.assert_close(rotate(x, rotation)[image], expected, atol=1e-12, rtol=0)


def test_split_pairs_are_adjacent_pairs_in_another_order():
    split = MixedRoPE(HEAD_DIM, HEADS, 1, pair_layout='split').double()
    adjacent = MixedRoPE(HEAD_DIM, HEADS, 1).double()
    adjacent.load_state_dict(split.state_dict())
    x = random_tokens(make(split))
    order = torch.arange(HEAD_DIM).view(2, -1).T.flatten()  # 0 4 1 5 ...: a0 b0 a1 b1 ...
    torch.testing.assert_close(
        rotate(x, make(split))[..., order], rotate(x[..., order], make(adjacent))
    )


def test_prefix_tokens_and_other_channels_pass(rope: RotaryEmbedding):
    rotation = make(rope, prefix=2)
    wide = torch.randn(2, rotation.num_tokens, HEADS, HEAD_DIM + 4, dtype=torch.float64)
    out = rotate(wide, rotation)
    assert torch.equal(out[:, :2], wide[:, :2])
    assert torch.equal(out[..., HEAD_DIM:], wide[..., HEAD_DIM:])
    inside = wide[:, 2:, :, :HEAD_DIM]
    assert torch.equal(out[:, 2:, :, :HEAD_DIM], rotate(inside, make(rope)))


def test_gradcheck(rope: RotaryEmbedding):
    rotation = make(rope, 2, 3)
    x = torch.randn(2, 6, HEADS, HEAD_DIM, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: rotate(x, rotation), (x,))


def test_no_rotation_unpacks():
    qkv = torch.randn(2, 5, 3, HEADS, HEAD_DIM)
    for index, part in enumerate(rotate_qkv(qkv, None)):
        assert torch.equal(part, qkv[:, :, index].transpose(1, 2))


@pytest.mark.parametrize(
    'shape, message',
    [
        ((1, 9, 3, HEADS, HEAD_DIM), 'grid of 4 x 6, the input has 9 tokens'),
        ((1, HEIGHT * WIDTH, 3, 2, HEAD_DIM), 'for 3 heads .*the input has 2 heads'),
        ((1, HEIGHT * WIDTH, 3, HEADS, 4), 'of 8 channels or more, the input has 3 heads of 4'),
    ],
)
def test_an_input_that_does_not_fit_is_an_error(shape: tuple[int, ...], message: str):
    with pytest.raises(ValueError, match=message):
        rotate_qkv(torch.randn(shape), make(MixedRoPE(HEAD_DIM, HEADS, 1)))
