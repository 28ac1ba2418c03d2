"""The rotation of queries and keys: its properties, by each implementation."""

import pytest
import torch
from torch import Tensor

from helpers.reference import rotated
from rope_dense.rope import (
    AxialRoPE,
    MixedRoPE,
    Rotary,
    RotaryEmbedding,
    rotate,
    rotate_definition,
    rotation,
)

HEIGHT, WIDTH, HEADS, HEAD_DIM = 4, 6, 3, 8
LAYOUTS = ('interleaved', 'half')
EMBEDDINGS = {
    'mixed': lambda: MixedRoPE(HEAD_DIM, HEADS),
    'axial': lambda: AxialRoPE(HEAD_DIM, HEADS),
    'learned axial': lambda: AxialRoPE(HEAD_DIM, HEADS, learned=True),
    'mixed, half': lambda: MixedRoPE(HEAD_DIM, HEADS, pair_layout='half'),
    'axial, half': lambda: AxialRoPE(HEAD_DIM, HEADS, pair_layout='half', axes='yx'),
}
ANGLES = {  # shapes for 2 images, 6 tokens, HEADS heads and 2 pairs
    'shared': (6, 1, 2),
    'of each head': (6, HEADS, 2),
    'of each image': (2, 6, HEADS, 2),
    'of each image, shared': (2, 6, 1, 2),
}


@pytest.fixture(params=['complex', 'definition'], autouse=True)
def implementation(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> str:
    if request.param == 'definition':
        monkeypatch.setattr(rotation, 'implementation', lambda device, dtype: None)
    return request.param


@pytest.fixture(params=EMBEDDINGS)
def rope(request: pytest.FixtureRequest) -> RotaryEmbedding:
    return EMBEDDINGS[request.param]()


def angles_of(
    rope: RotaryEmbedding, height: int = HEIGHT, width: int = WIDTH
) -> Rotary:
    """In float64."""
    return rope(torch.empty(1, height * width, 1, dtype=torch.float64), (height, width))


def tokens(
    batch: int = 2, number: int = HEIGHT * WIDTH, head_dim: int = HEAD_DIM
) -> Tensor:
    """[B, N, 3, h, D]."""
    return torch.randn(batch, number, 3, HEADS, head_dim, dtype=torch.float64)


def test_the_first_token_is_not_rotated(rope: RotaryEmbedding):
    qkv = tokens()
    q, k, _ = rotate(qkv, angles_of(rope))
    torch.testing.assert_close(q[:, :, 0], qkv[:, 0, 0])
    torch.testing.assert_close(k[:, :, 0], qkv[:, 0, 1])


def test_angles_of_zero_change_nothing(rope: RotaryEmbedding):
    qkv = tokens()
    still = Rotary(torch.zeros_like(angles_of(rope).angles), rope.pair_layout)
    for part, expected in zip(rotate(qkv, still), rotate(qkv, None), strict=True):
        assert torch.equal(part, expected)


def test_norms_are_preserved(rope: RotaryEmbedding):
    qkv = tokens()
    for index, part in enumerate(rotate(qkv, angles_of(rope))):
        torch.testing.assert_close(
            part.norm(dim=-1), qkv[:, :, index].norm(dim=-1).transpose(1, 2)
        )


def test_queries_and_keys_are_rotated_and_values_are_not(rope: RotaryEmbedding):
    qkv = tokens()
    q, k, v = rotate(qkv, angles_of(rope))
    assert torch.equal(v, qkv[:, :, 2].transpose(1, 2))
    swapped_k, swapped_q, _ = rotate(qkv[:, :, [1, 0, 2]], angles_of(rope))
    assert torch.equal(q, swapped_q) and torch.equal(k, swapped_k)
    assert (q - qkv[:, :, 0].transpose(1, 2)).abs().max() > 0.1


def test_the_projection_is_not_changed(rope: RotaryEmbedding):
    qkv = tokens()
    before = qkv.clone()
    rotate(qkv, angles_of(rope))
    assert torch.equal(qkv, before)


def test_scores_depend_on_the_offset_only(rope: RotaryEmbedding):
    same = tokens(1, 1).expand(1, HEIGHT * WIDTH, -1, -1, -1)
    q, k, _ = (part[0] for part in rotate(same, angles_of(rope)))  # [h, N, D]
    scores = torch.einsum('hid,hjd->hij', q, k).reshape(
        HEADS, HEIGHT, WIDTH, HEIGHT, WIDTH
    )
    one_right_one_down = [
        scores[:, y, x, y + 1, x + 1]
        for y in range(HEIGHT - 1)
        for x in range(WIDTH - 1)
    ]
    for score in one_right_one_down[1:]:
        torch.testing.assert_close(score, one_right_one_down[0], atol=1e-12, rtol=0)
    assert (scores[:, 0, 0, 1, 1] - scores[:, 0, 0, 1, 2]).abs().max() > 1e-3
    assert (scores[:, 0, 0, 0, 1] - scores[:, 0, 0, 1, 0]).abs().max() > 1e-3


@pytest.mark.parametrize('layout', LAYOUTS)
def test_a_transposed_grid_swaps_the_axes(layout: str):
    rope = MixedRoPE(HEAD_DIM, HEADS, pair_layout=layout)
    swapped = MixedRoPE(HEAD_DIM, HEADS, pair_layout=layout)
    swapped.freqs.data = rope.freqs.data.flip(0)
    qkv = tokens()
    transposed = qkv.unflatten(1, (HEIGHT, WIDTH)).transpose(1, 2).flatten(1, 2)
    expected = rotate(qkv, angles_of(rope))
    found = rotate(transposed, angles_of(swapped, WIDTH, HEIGHT))
    for part, right in zip(found, expected, strict=True):
        back = part.unflatten(2, (WIDTH, HEIGHT)).transpose(2, 3).flatten(2, 3)
        torch.testing.assert_close(back, right, atol=1e-12, rtol=0)


@pytest.mark.parametrize('name', ['mixed', 'axial', 'learned axial'])
def test_equals_complex_multiplication(name: str):
    rope, qkv = EMBEDDINGS[name](), tokens()
    freqs = rope.frequencies(torch.device('cpu')).expand(-1, HEADS, -1)
    positions = [(column, row) for row in range(HEIGHT) for column in range(WIDTH)]
    q, k, _ = rotate(qkv, angles_of(rope))
    for image in range(2):
        for index, part in enumerate((q, k)):
            expected = rotated(qkv[image, :, index], freqs, positions).transpose(0, 1)
            torch.testing.assert_close(part[image], expected, atol=1e-12, rtol=0)


def test_half_is_interleaved_in_another_order_of_channels():
    half, interleaved = EMBEDDINGS['mixed, half'](), EMBEDDINGS['mixed']()
    interleaved.load_state_dict(half.state_dict())
    qkv = tokens()
    order = (
        torch.arange(HEAD_DIM).view(2, -1).T.flatten()
    )  # 0 4 1 5 ...: a0 b0 a1 b1 ...
    expected = rotate(qkv[..., order], angles_of(interleaved))
    for part, right in zip(rotate(qkv, angles_of(half)), expected, strict=True):
        torch.testing.assert_close(part[..., order], right)


def test_opposite_angles_rotate_back(rope: RotaryEmbedding):
    qkv, rotary = tokens(), angles_of(rope)
    there = torch.stack(rotate(qkv, rotary), 2).transpose(1, 3)  # [B, N, 3, h, D]
    back = rotate(there, Rotary(-rotary.angles, rotary.pair_layout))
    for part, expected in zip(back, rotate(qkv, None), strict=True):
        torch.testing.assert_close(part, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize('prefix', [1, 5])
def test_prefix_tokens_and_other_channels_are_not_rotated(
    rope: RotaryEmbedding, prefix: int
):
    rotary = angles_of(rope)
    wide = tokens(2, prefix + HEIGHT * WIDTH, HEAD_DIM + 4)
    inside = rotate(wide[:, prefix:, ..., :HEAD_DIM], rotary)
    for index, part in enumerate(rotate(wide, rotary, prefix)):
        before = wide[:, :, index].transpose(1, 2)
        assert torch.equal(part[:, :, :prefix], before[:, :, :prefix])
        assert torch.equal(part[..., HEAD_DIM:], before[..., HEAD_DIM:])
        assert torch.equal(part[:, :, prefix:, :HEAD_DIM], inside[index])


def test_angles_of_each_image_are_those_of_each_image_alone():
    qkv, angles = (
        tokens(),
        torch.randn(2, HEIGHT * WIDTH, HEADS, 3, dtype=torch.float64),
    )
    both = rotate(qkv, Rotary(angles))
    for image in range(2):
        alone = rotate(qkv[image, None], Rotary(angles[image]))
        for part, right in zip(both, alone, strict=True):
            assert torch.equal(part[image], right[0])


def test_no_embedding_unpacks():
    qkv = tokens()
    for index, part in enumerate(rotate(qkv, None)):
        assert torch.equal(part, qkv[:, :, index].transpose(1, 2))


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize('shape', ANGLES.values(), ids=ANGLES)
@pytest.mark.parametrize('prefix, more_channels', [(1, 0), (0, 1), (2, 2)])
def test_gradients_of_both_orders(
    layout: str, shape: tuple[int, ...], prefix: int, more_channels: int
):
    qkv = tokens(2, 6 + prefix, 4 + more_channels).requires_grad_()
    angles = torch.randn(shape, dtype=torch.float64, requires_grad=True)

    def function(qkv: Tensor, angles: Tensor) -> tuple[Tensor, ...]:
        return rotate(qkv, Rotary(angles, layout), prefix)

    # A random direction in the space of inputs; every entry on its own takes a minute.
    assert torch.autograd.gradcheck(function, (qkv, angles), fast_mode=True)
    assert torch.autograd.gradgradcheck(function, (qkv, angles), fast_mode=True)


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize('shape', ANGLES.values(), ids=ANGLES)
def test_gradients_with_a_graph_are_those_without(layout: str, shape: tuple[int, ...]):
    """Another way through backward, of which gradgradcheck tests the derivative alone."""
    qkv = tokens(2, 7, 6).requires_grad_()
    angles = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    rotary, weights = (
        Rotary(angles, layout),
        torch.randn(3, 2, HEADS, 7, 6, dtype=torch.float64),
    )
    loss = (torch.stack(rotate(qkv, rotary, 1)).pow(3) * weights).sum()
    plain = torch.autograd.grad(loss, [qkv, angles], retain_graph=True)
    found = torch.autograd.grad(loss, [qkv, angles], create_graph=True)
    second = torch.autograd.grad(
        sum(grad.pow(2).sum() for grad in found), [qkv, angles]
    )
    parts = rotate_definition(qkv, rotary, 1).permute(2, 0, 3, 1, 4)
    loss = (parts.pow(3) * weights).sum()
    right = torch.autograd.grad(loss, [qkv, angles], create_graph=True)
    second_right = torch.autograd.grad(
        sum(grad.pow(2).sum() for grad in right), [qkv, angles]
    )
    for grads, expected in ((plain, right), (found, right), (second, second_right)):
        for grad, of_definition in zip(grads, expected, strict=True):
            torch.testing.assert_close(grad, of_definition)


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize('needs_grad', [(True, True), (True, False), (False, True)])
def test_gradients_of_every_entry(layout: str, needs_grad: tuple[bool, bool]):
    qkv = torch.randn(2, 2, 3, 1, 5, dtype=torch.float64, requires_grad=needs_grad[0])
    angles = torch.randn(1, 1, 2, dtype=torch.float64, requires_grad=needs_grad[1])

    def function(qkv: Tensor, angles: Tensor) -> tuple[Tensor, ...]:
        return rotate(qkv, Rotary(angles, layout), 1)

    assert torch.autograd.gradcheck(function, (qkv, angles))
    assert torch.autograd.gradgradcheck(function, (qkv, angles))


def test_gradients_of_frequencies_reach_the_parameter():
    rope = MixedRoPE(4, 1).double()
    qkv = torch.randn(1, 4, 3, 1, 4, dtype=torch.float64, requires_grad=True)

    def function(qkv: Tensor, freqs: Tensor) -> tuple[Tensor, ...]:
        return rotate(qkv, rope(qkv, (2, 2)))

    assert torch.autograd.gradcheck(function, (qkv, rope.freqs))
    assert torch.autograd.gradgradcheck(function, (qkv, rope.freqs))


def test_cosines_and_sines_are_those_of_the_angles(rope: RotaryEmbedding):
    rotary = angles_of(rope)
    cos, sin = rotary.cos_sin.unbind(-1)
    assert torch.equal(cos, rotary.angles.cos()) and torch.equal(
        sin, rotary.angles.sin()
    )
    assert rotary.cos_sin is rotary.cos_sin and not rotary.cos_sin.requires_grad
    with torch.inference_mode():
        assert not angles_of(rope).cos_sin.is_inference()


@pytest.mark.parametrize(
    'shape, prefix, message',
    [
        (
            (1, 9, 3, HEADS, HEAD_DIM),
            0,
            'for 24 tokens after 0 prefix .* input has 9 tokens of 1',
        ),
        (
            (1, 25, 3, HEADS, HEAD_DIM),
            2,
            'for 24 tokens after 2 prefix .* input has 25 tokens',
        ),
        (
            (1, 24, 3, 2, HEAD_DIM),
            0,
            r'for 3 heads \(1 = any\).*the input has 2 heads of 8',
        ),
        ((1, 24, 3, HEADS, 6), 0, 'of 8 channels or more, the input has 3 heads of 6'),
    ],
)
def test_angles_that_do_not_fit_are_an_error(
    shape: tuple[int, ...], prefix: int, message: str
):
    with pytest.raises(ValueError, match=message):
        rotate(torch.randn(shape), angles_of(MixedRoPE(HEAD_DIM, HEADS)), prefix)


def test_angles_of_one_token_are_not_spread_over_all():
    with pytest.raises(ValueError, match='for 1 tokens'):
        rotate(torch.randn(1, 6, 3, 2, 4), Rotary(torch.zeros(1, 1, 2)))


def test_angles_of_other_images_are_an_error():
    with pytest.raises(
        ValueError, match=r'for 6 tokens of 3 images .* the input has 6 tokens of 2'
    ):
        rotate(torch.randn(2, 6, 3, 2, 4), Rotary(torch.zeros(3, 6, 2, 2)))
