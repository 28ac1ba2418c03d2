import math
from copy import deepcopy
from functools import partial
from types import ModuleType

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from rope_dense.rope import AxialRoPE, MixedRoPE, RopeScaling, RotaryEmbedding, rotate
from rope_dense.rope.frequencies import KEPT
from rope_dense.rope.grid import Coordinates

CPU = torch.device('cpu')
DINOV3 = dict(series='periods', axes='yx', pair_layout='split')


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


# Ours, timm's class and its arguments: EVA-02, Perception Encoder, RoPE-ViT, pixel bands, DINOv3.
PUBLISHED = [
    (
        dict(theta=1e4, axes='yx', coordinates=dict(reference=16)),
        'RotaryEmbeddingCat',
        dict(in_pixels=False, temperature=1e4, ref_feat_shape=(16, 16)),
    ),
    (
        dict(theta=1e4, coordinates=dict(offset=1.0, reference=(14, 12))),
        'RotaryEmbeddingCat',
        dict(
            in_pixels=False,
            temperature=1e4,
            ref_feat_shape=(14, 12),
            grid_offset=1.0,
            grid_indexing='xy',
        ),
    ),
    (
        dict(),
        'RotaryEmbeddingCat',
        dict(in_pixels=False, temperature=100.0, grid_indexing='xy'),
    ),
    (
        dict(theta=224.0, series='bands', axes='yx', coordinates=dict(type='corners')),
        'RotaryEmbeddingCat',
        dict(in_pixels=True, max_res=224, linear_bands=True),
    ),
    *(
        (
            dict(DINOV3, coordinates=dict(type='centres', normalize=normalize)),
            'RotaryEmbeddingDinoV3',
            dict(normalize_coords=normalize),
        )
        for normalize in ('separate', 'min', 'max')
    ),
]


@pytest.mark.parametrize('height, width', [(4, 4), (16, 16), (3, 7), (33, 20)])
@pytest.mark.parametrize('ours, name, theirs', PUBLISHED)
def test_fixed_angles_equal_timm(
    timm: ModuleType, ours: dict, name: str, theirs: dict, height: int, width: int
):
    from timm.layers import pos_embed_sincos

    module = getattr(pos_embed_sincos, name)(dim=16, feat_shape=None, **theirs)
    rope = AxialRoPE(16, 2, 1, **ours)
    angles = only_rotation(rope, height, width).angles()[:, 0]  # [N, P]
    sin, cos = module.get_embed([height, width]).chunk(2, -1)  # [N, D], pairs repeated
    pairs = slice(None, 8) if rope.pair_layout == 'split' else slice(None, None, 2)
    # Bands reach 352 radians, where a rounding of the position is worth 4e-5.
    atol = 2e-4 if rope.series == 'bands' else 1e-5
    torch.testing.assert_close(angles.sin(), sin[:, pairs], atol=atol, rtol=0)
    torch.testing.assert_close(angles.cos(), cos[:, pairs], atol=atol, rtol=0)


@pytest.mark.parametrize(
    'arguments, x, y',
    [
        (dict(), [0, 1, 2, 3], [0, 1]),
        (dict(offset=1.0), [1, 2, 3, 4], [1, 2]),
        (dict(reference=8), [0, 2, 4, 6], [0, 4]),
        (dict(offset=1.0, reference=(2, 8)), [2, 4, 6, 8], [1, 2]),
        (dict(type='centres'), [-0.75, -0.25, 0.25, 0.75], [-0.5, 0.5]),
        (dict(type='centres', normalize='max'), [-0.75, -0.25, 0.25, 0.75], [-0.75, -0.25]),
        (dict(type='centres', normalize='min'), [-0.5, 0.5, 1.5, 2.5], [-0.5, 0.5]),
        (dict(type='corners'), [-1, -1 / 3, 1 / 3, 1], [-1, 1]),
    ],
)
def test_coordinates_of_a_small_grid(arguments: dict, x: list[float], y: list[float]):
    actual = Coordinates(**arguments).positions(height=2, width=4, device=CPU)
    expected = tuple(torch.tensor(positions, dtype=torch.float32) for positions in (x, y))
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize('arguments', [dict(reference=4), dict(type='centres')])
def test_scores_depend_on_offsets_and_where_coordinates_fit_the_grid_on_its_size(arguments: dict):
    q, k = torch.randn(2, 8, dtype=torch.float64)

    def score(coordinates: dict, size: int, query: tuple[int, int], key: tuple[int, int]) -> float:
        """Of a query and a key, each at a (row, column) of a square grid."""
        rope = AxialRoPE(8, 1, 1, theta=10.0, learned=True, coordinates=coordinates).double()
        rotation = only_rotation(rope, size, size)
        tokens = torch.stack([q, k])[:, None, None].expand(2, size * size, 1, 8)
        turned_q, turned_k = rotate(tokens, rotation)[:, :, 0].unflatten(1, (size, size))
        return (turned_q[query] @ turned_k[key]).item()

    index = dict(type='index')
    for coordinates in (arguments, index):
        near = score(coordinates, 6, (0, 1), (2, 0))
        assert score(coordinates, 6, (3, 5), (5, 4)) == pytest.approx(near, abs=1e-12)
        assert score(coordinates, 6, (2, 0), (0, 1)) != pytest.approx(near, abs=1e-3)
    same = score(index, 9, (4, 4), (6, 3))
    assert same == pytest.approx(score(index, 6, (0, 1), (2, 0)), abs=1e-12)
    other = score(arguments, 9, (4, 4), (6, 3))
    assert other != pytest.approx(score(arguments, 6, (0, 1), (2, 0)), abs=1e-3)


@pytest.mark.parametrize(
    'theirs, ours',
    [
        (dict(rescale_coords=2.0), dict(rescale=2.0)),
        (dict(jitter_coords=1.5), dict(jitter=1.5)),
        (dict(shift_coords=0.3), dict(shift=0.3)),
        (
            dict(shift_coords=0.3, jitter_coords=1.5, rescale_coords=2.0),
            dict(shift=0.3, jitter=1.5, rescale=2.0),
        ),
    ],
)
def test_augmented_angles_equal_timm_with_the_same_seed(timm: ModuleType, theirs: dict, ours: dict):
    from timm.layers.pos_embed_sincos import RotaryEmbeddingDinoV3

    module = RotaryEmbeddingDinoV3(dim=16, **theirs)
    rope = AxialRoPE(16, 2, 1, coordinates=dict(type='centres', **ours), **DINOV3)
    torch.manual_seed(1)
    sin = module.get_embed([3, 5])[:, :8]
    torch.manual_seed(1)
    angles = only_rotation(rope, 3, 5).angles()[:, 0]
    torch.testing.assert_close(angles.sin(), sin, atol=1e-5, rtol=0)


def test_augmentation_is_one_draw_in_training_and_none_in_evaluation():
    settings = dict(shift=0.5, jitter=1.5, rescale=2.0)
    rope = AxialRoPE(8, 2, 3, coordinates=dict(settings, type='centres'))
    plain = only_rotation(AxialRoPE(8, 2, 3, coordinates=dict(type='centres')), 3, 4).angles()
    first, second = rope([0, 2], height=3, width=4, device=CPU)
    assert torch.equal(first.angles(), second.angles())
    assert not torch.equal(first.angles(), only_rotation(rope, 3, 4).angles())
    assert not torch.equal(first.angles(), plain)
    assert torch.equal(only_rotation(rope.eval(), 3, 4).angles(), plain)


def test_augmentation_is_uniform_and_log_uniform_within_its_bounds():
    def draws(**settings: float) -> torch.Tensor:
        """Positions [1000, 4] of two columns and two rows; unaugmented they are 1 and 2."""
        coordinates = Coordinates(offset=1.0, **settings)
        return torch.stack(
            [
                torch.cat(coordinates.positions(height=2, width=2, device=CPU, augment=True))
                for _ in range(1000)
            ]
        )

    def check_uniform(samples: torch.Tensor, bound: float) -> None:
        assert samples.abs().max() <= bound * (1 + 1e-5)
        for quarter in (-0.5, 0.0, 0.5):  # the share below; three standard errors are 0.048
            share = (samples < quarter * bound).float().mean()
            assert float(share) == pytest.approx((quarter + 1) / 2, abs=0.05)

    def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
        return float(torch.corrcoef(torch.stack([a, b]))[0, 1])

    shifted = draws(shift=0.5) - torch.tensor([1.0, 2.0, 1.0, 2.0])
    torch.testing.assert_close(shifted[:, 0], shifted[:, 1])
    check_uniform(shifted[:, 0], 0.5), check_uniform(shifted[:, 2], 0.5)
    assert abs(correlation(shifted[:, 0], shifted[:, 2])) < 0.1

    jittered = draws(jitter=3.0).log()[:, ::2]
    check_uniform(jittered[:, 0], math.log(3)), check_uniform(jittered[:, 1], math.log(3))
    assert abs(correlation(*jittered.T)) < 0.1

    rescaled = draws(rescale=2.0).log()[:, ::2]
    check_uniform(rescaled[:, 0], math.log(2))
    torch.testing.assert_close(rescaled[:, 0], rescaled[:, 1])


def test_angles_of_any_coordinates_follow_the_precision_of_the_parameters():
    for coordinates in (dict(reference=8), dict(type='centres', rescale=2.0), dict(type='corners')):
        rope = MixedRoPE(8, 2, 1, coordinates=coordinates)
        assert only_rotation(rope.half(), 2, 3).angles().dtype == torch.float32
        assert only_rotation(rope.double(), 2, 3).angles().dtype == torch.float64


@pytest.mark.parametrize(
    'coordinates, message',
    [
        (dict(type='pixel'), "type must be one of .*'centres'.* got 'pixel'"),
        (dict(type='centres', normalize='mean'), "normalize must be one of .* got 'mean'"),
        (dict(normalize='min'), "normalize='min' belongs to type 'centres', got 'index'"),
        (dict(type='corners', offset=1.0), "belong to type 'index', got 'corners'"),
        (dict(type='centres', reference=16), "belong to type 'index', got 'centres'"),
        (dict(reference=0), 'reference must be a number of patches, .* got 0'),
        (dict(reference=(16, 16, 16)), r'reference must be .* got \(16, 16, 16\)'),
        (dict(shift=-1.0), 'shift must be 0 or more, got -1.0'),
        (dict(jitter=0.5), 'jitter must be 1 or more, got 0.5'),
        (dict(rescale=float('nan')), 'rescale must be 1 or more, got nan'),
        (dict(scale=2.0), r"has \['scale'\], allowed are .*'rescale'"),
    ],
)
def test_bad_coordinates_are_named(coordinates: dict, message: str):
    with pytest.raises(ValueError, match=f'coordinates.*{message}'):
        AxialRoPE(8, 2, 1, coordinates=coordinates)


@pytest.mark.parametrize(
    'arguments, message',
    [
        (dict(series='pixels'), "series must be one of.*got 'pixels'"),
        (dict(axes='ij'), "axes must be one of.*got 'ij'"),
    ],
)
def test_bad_choices_of_axial_are_named(arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        AxialRoPE(8, 2, 1, **arguments)


def test_learned_axial_starts_from_any_series_in_any_order_of_the_axes():
    fixed = AxialRoPE(16, 2, 1, **DINOV3)
    learned = AxialRoPE(16, 2, 1, learned=True, **DINOV3)
    torch.testing.assert_close(
        only_rotation(learned, 3, 5).angles(), only_rotation(fixed, 3, 5).angles().expand(-1, 2, -1)
    )


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


def test_fixed_rotations_are_kept_from_call_to_call():
    rope = AxialRoPE(8, 2, 3)
    make = partial(rope, [0, 1], height=3, width=4, device=CPU)
    with torch.inference_mode():
        first = make()[0]
        first.table()
    assert make()[0] is first and make(num_prefix_tokens=1)[0] is not first
    assert not any(part.is_inference() for part in (first.freqs, first.x, first.table()))
    scaled = make(scaling=RopeScaling([1, 1], 'linear', factor=[2.0, 2.0]))[0]
    torch.testing.assert_close(scaled.freqs, first.freqs / 2)
    for height in range(4, 20):
        assert rope([0], height=height, width=4, device=CPU)[0].num_tokens == 4 * height
    assert len(rope.kept) == KEPT and make()[0] is not first
    assert torch.equal(make()[0].table(), first.table())


def test_what_may_change_is_not_kept():
    for rope in (
        MixedRoPE(8, 2, 1),
        AxialRoPE(8, 2, 1, learned=True),
        AxialRoPE(8, 2, 1, coordinates=dict(shift=0.5)).train(),
    ):
        assert only_rotation(rope, 2, 3) is not only_rotation(rope, 2, 3) and not rope.kept
    rope.eval()
    assert only_rotation(rope, 2, 3) is only_rotation(rope, 2, 3)
    rope = AxialRoPE(8, 2, 1)
    with FakeTensorMode():
        only_rotation(rope, 2, 3)
    assert not rope.kept


def test_what_is_kept_is_no_state_and_copies():
    rope = AxialRoPE(8, 2, 1)
    rotation = only_rotation(rope, 2, 3)
    assert not rope.state_dict()
    copied = only_rotation(deepcopy(rope), 2, 3)
    assert torch.equal(copied.table(), rotation.table())


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
