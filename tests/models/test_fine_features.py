from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor

from helpers.naf import fine_features, naf, published_weights
from rope_dense.checkpoints.errors import CheckpointError
from rope_dense.export.graphs import graph_of
from rope_dense.models import window_attention
from rope_dense.models.fine_features import FineFeatures, load_fine_features

PERIODS = 'image_encoder.rope.periods'
ROUNDING = 3e-7  # in float64, with frequencies in float32 as in the published code


@pytest.fixture(scope='module')
def weights() -> dict[str, Tensor]:
    return published_weights()


def loaded(weights: dict[str, Tensor], scale_factor: float) -> FineFeatures:
    neck = FineFeatures(scale_factor).eval()
    neck.load_state_dict({key: x for key, x in weights.items() if key != PERIODS})
    return neck.requires_grad_(False)


def noise(
    grid: tuple[int, int], side: int = 3, channels: int = 8
) -> tuple[Tensor, Tensor]:
    """A map [2, C, h, w] and an image with ``side`` pixels for each of its rows."""
    height, width = (side * n for n in grid)
    return torch.randn(2, channels, *grid), torch.randn(2, 3, height, width)


# The formula


@pytest.mark.parametrize(
    'scale_factor, grid, size',
    [
        (2, (9, 11), (18, 22)),
        (1, (10, 9), (10, 9)),
        (1.5, (10, 13), (15, 19)),
        (2.5, (9, 10), (22, 25)),
        (3, (4, 10), (12, 30)),  # fewer rows than a window
        (2.5, (12, 3), (30, 7)),
        ('4/3', (9, 10), (12, 13)),
    ],
)
def test_equals_the_formula_position_by_position(
    weights: dict[str, Tensor],
    scale_factor: float,
    grid: tuple[int, int],
    size: tuple[int, int],
) -> None:
    features, image = noise(grid)
    expected = fine_features(weights, image, features, size)
    (out,) = loaded(weights, scale_factor).double()((features.double(), image.double()))
    assert out.shape == (2, 8, *size)
    torch.testing.assert_close(out, expected, rtol=0, atol=ROUNDING)
    (single,) = loaded(weights, scale_factor)((features, image))
    torch.testing.assert_close(single.double(), expected, rtol=0, atol=1e-4)


def test_large_images_are_resized_first(weights: dict[str, Tensor]) -> None:
    features, image = noise((9, 10), side=5)  # more than 4 pixels for each position
    neck = loaded(weights, 1).double()
    (out,) = neck((features.double(), image.double()))
    expected = fine_features(weights, image, features, (9, 10))
    torch.testing.assert_close(out, expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize('scale_factor, size', [(2, (18, 22)), (2.5, (22, 27))])
def test_equals_the_authors_code(
    weights: dict[str, Tensor], scale_factor: float, size: tuple[int, int]
) -> None:
    features, image = noise((9, 11))
    reference = naf()
    reference.load_state_dict(weights)  # strictly
    with torch.no_grad():
        expected = reference(image, features, size)
    (out,) = loaded(weights, scale_factor)((features, image))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)


def test_a_constant_map_stays_constant(weights: dict[str, Tensor]) -> None:
    _, image = noise((9, 10))
    (out,) = loaded(weights, 3)((torch.full((2, 4, 9, 10), 7.0), image))
    torch.testing.assert_close(out, torch.full((2, 4, 27, 30), 7.0))


def test_maps_share_their_windows(weights: dict[str, Tensor]) -> None:
    features, image = noise((9, 10))
    other = torch.randn(2, 12, 9, 10)
    neck = loaded(weights, 2)
    both = neck((features, other, image))
    for out, alone in zip(both, (features, other), strict=True):
        torch.testing.assert_close(out, neck((alone, image))[0])


def test_rows_at_a_time_change_nothing(
    weights: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    features, image = noise((11, 9))
    neck = loaded(weights, 2)
    at_once = neck((features.requires_grad_(), image))[0].detach()
    monkeypatch.setattr(window_attention, 'MAX_BYTES', 450_000)  # two rows of the map
    with torch.no_grad():
        (by_rows,) = neck((features, image))
    torch.testing.assert_close(by_rows, at_once)


@pytest.mark.parametrize('step', [1, 2])
def test_gradients_of_attention(step: int) -> None:
    queries = torch.randn(1, 8, 4, 6, dtype=torch.float64, requires_grad=True)
    values = torch.randn(1, 4, 1, 2, 3, dtype=torch.float64, requires_grad=True)
    function = window_attention.window_attention
    assert torch.autograd.gradcheck(
        lambda q, v: function(q, v, step), (queries, values)
    )


@pytest.mark.parametrize(
    'dtype, tolerance', [(torch.float16, 0.01), (torch.bfloat16, 0.08)]
)
def test_half_precision(
    weights: dict[str, Tensor], dtype: torch.dtype, tolerance: float
) -> None:
    features, image = noise((9, 10))
    neck = loaded(weights, 2)
    (expected,) = neck((features, image))
    (half,) = neck.to(dtype)((features.to(dtype), image))
    assert half.dtype == dtype
    assert (
        half.float() - expected
    ).square().mean().sqrt() <= tolerance * expected.std()


def test_bilinear_is_the_baseline() -> None:
    features, image = noise((5, 7))
    ignored = dict(
        type='Pretrained', checkpoint='naf_release.pth'
    )  # of the other method
    neck = FineFeatures(3, method='bilinear', frozen=True, init_cfg=ignored)
    neck.init_weights()
    (out,) = neck((features, image))
    assert not list(neck.parameters())
    expected = F.interpolate(features, (15, 21), mode='bilinear', align_corners=False)
    assert torch.equal(out, expected)


# Weights and training


def test_has_the_published_number_of_parameters() -> None:
    assert sum(x.numel() for x in FineFeatures(2).parameters()) == 662_528


@pytest.mark.parametrize('prefix', [None, 'neck.'])
def test_loads_the_published_file(
    weights: dict[str, Tensor], prefix: str | None, tmp_path: Path
) -> None:
    path = tmp_path / 'naf_release.pth'
    torch.save({f'{prefix or ""}{key}': x for key, x in weights.items()}, path)
    init_cfg = dict(type='Pretrained', checkpoint=str(path), prefix=prefix)
    neck = MODELS.build(
        dict(type='FineFeatures', scale_factor=4, frozen=True, init_cfg=init_cfg)
    )
    neck.init_weights()
    assert neck.state_dict().keys() == weights.keys() - {PERIODS}
    assert all(torch.equal(x, weights[key]) for key, x in neck.state_dict().items())


@pytest.mark.parametrize(
    'change, message',
    [
        ({'image_encoder.encoder.0.bias': None}, 'missing.*encoder.0.bias'),
        ({'image_encoder.extra.weight': torch.ones(1)}, 'left over.*extra.weight'),
        (
            {'image_encoder.encoder.0.weight': torch.ones(64, 3, 1, 1)},
            'shape.*encoder.0.weight',
        ),
        ({PERIODS: 10 ** (torch.arange(16) / 16)}, 'rope.periods'),
    ],
    ids=['missing', 'left over', 'shape', 'periods'],
)
def test_loading_is_strict(
    weights: dict[str, Tensor], change: dict, message: str, tmp_path: Path
) -> None:
    changed = {key: x for key, x in (weights | change).items() if x is not None}
    torch.save(changed, tmp_path / 'naf.pth')
    neck = FineFeatures(2)
    before = {key: x.clone() for key, x in neck.state_dict().items()}
    with pytest.raises(CheckpointError, match=f'(?s){message}'):
        load_fine_features(neck, str(tmp_path / 'naf.pth'))
    assert all(torch.equal(x, before[key]) for key, x in neck.state_dict().items())


def test_trains_with_rescaled_coordinates_unless_frozen() -> None:
    features, image = noise((9, 9))
    neck, frozen = FineFeatures(2).train(), FineFeatures(2, frozen=True).train()
    first, second = (neck((features, image))[0] for _ in range(2))
    assert not torch.allclose(first, second)
    first.square().mean().backward()
    assert all(x.grad.abs().sum() > 0 for x in neck.parameters() if x.ndim > 1)
    assert not any(x.requires_grad for x in frozen.parameters())
    assert torch.equal(*(frozen((features, image))[0] for _ in range(2)))


def test_gradients_reach_the_backbone_through_a_frozen_neck(
    weights: dict[str, Tensor],
) -> None:
    features, image = noise((9, 9))
    loaded(weights, 2)((features.requires_grad_(), image))[0].square().sum().backward()
    assert (features.grad != 0).all()


# In models


@pytest.mark.parametrize(
    'backbone',
    [
        dict(type='RoPEViTWithImage', arch=dict(embed_dims=16, depth=1, num_heads=1)),
        dict(
            type='RoPESwinWithImage',
            arch=dict(embed_dims=8, depths=(1, 1), num_heads=(1, 1)),
            out_indices=(1,),
        ),
        dict(
            type='RoPENATWithImage',
            arch=dict(embed_dims=8, depths=(1, 1), num_heads=(1, 1)),
            out_indices=(1,),
        ),
    ],
    ids=lambda backbone: backbone['type'],
)
def test_any_backbone_appends_the_image(backbone: dict) -> None:
    model = MODELS.build(backbone).eval()
    plain = MODELS.build(
        dict(backbone, type=backbone['type'].removesuffix('WithImage'))
    ).eval()
    plain.load_state_dict(model.state_dict())
    image = torch.randn(1, 3, 96, 112)
    features, appended = model(image)
    assert appended is image
    assert torch.equal(features, plain(image)[0])
    graph = graph_of(model)  # whose file names its maps alone
    assert len(graph(image)) == len(graph.outputs) == 1
    (fine,) = FineFeatures(2)(model(image))
    assert fine.shape[2:] == (2 * features.shape[2], 2 * features.shape[3])


def test_another_neck_may_follow() -> None:
    backbone = MODELS.build(
        dict(type='RoPEViTWithImage', arch=dict(embed_dims=16, depth=1, num_heads=1))
    )
    pyramid = dict(type='PlainViTFPN', in_channels=16, out_channels=8)
    neck = MODELS.build([dict(type='FineFeatures', scale_factor=2), pyramid])
    maps = neck(backbone(torch.randn(1, 3, 96, 128)))
    assert [tuple(x.shape[1:]) for x in maps][:3] == [
        (8, 24, 32),
        (8, 12, 16),
        (8, 6, 8),
    ]


def test_a_segmentor_of_mmseg_trains() -> None:
    pytest.importorskip('mmseg')
    config = dict(
        type='EncoderDecoder',
        backbone=dict(
            type='RoPEViTWithImage',
            arch=dict(embed_dims=16, depth=1, num_heads=1),
            frozen_stages='all',
        ),
        neck=dict(type='FineFeatures', scale_factor=4, frozen=True),
        decode_head=dict(
            type='LinearHead',
            in_channels=16,
            num_classes=3,
            norm_cfg=dict(type='BN'),
            align_corners=False,
        ),
    )
    with MODELS.switch_scope_and_registry('mmseg') as models:
        model = models.build(config).train()
    logits = model(torch.randn(2, 3, 64, 96), mode='tensor')
    assert logits.shape == (2, 3, 16, 24)
    logits.square().mean().backward()
    trained = {name for name, x in model.named_parameters() if x.grad is not None}
    assert trained == {
        name for name, _ in model.named_parameters() if name.startswith('decode')
    }


@pytest.mark.slow
def test_compiles_without_a_graph_break(weights: dict[str, Tensor]) -> None:
    neck = loaded(weights, 2)
    compiled = torch.compile(neck, backend='eager', fullgraph=True, dynamic=True)
    for grid in ((10, 12), (5, 9)):
        features, image = noise(grid)
        (expected,) = neck((features, image))
        torch.testing.assert_close(
            compiled((features, image))[0], expected, rtol=0, atol=1e-4
        )


@pytest.mark.parametrize(
    'shapes, message',
    [
        ([(1, 8, 9, 9)], 'RoPEViTWithImage'),
        ([(1, 8, 9, 9), (1, 8, 36, 36)], 'RoPEViTWithImage'),
        ([(1, 8, 9, 9), (1, 8, 5, 5), (1, 3, 36, 36)], 'one size'),
        ([(1, 6, 9, 9), (1, 3, 36, 36)], 'multiples of 4'),
    ],
    ids=['one map', 'two maps', 'sizes', 'channels'],
)
def test_what_is_no_input_is_an_error(
    shapes: list[tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        FineFeatures(2)([torch.zeros(shape) for shape in shapes])


@pytest.mark.parametrize(
    'wrong, name',
    [
        (dict(scale_factor=0.5), 'scale_factor must be .* such as 2.5, .* got 0.5'),
        (
            dict(scale_factor=1.3333),
            "scale_factor must be .* text such as '4/3', got 1.3333",
        ),
        (dict(scale_factor='four'), "scale_factor must be .* got 'four'"),
        (dict(scale_factor='1/2'), "scale_factor must be .* got '1/2'"),
        (dict(scale_factor=2, method='nearest'), 'method'),
    ],
)
def test_arguments_are_checked(wrong: dict, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        FineFeatures(**wrong)
