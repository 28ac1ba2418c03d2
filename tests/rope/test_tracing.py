"""torch.jit.trace, in which sizes are tensors: a traced model follows the size of its input."""

import pytest
import torch
from torch import Tensor, nn

from rope_dense.backbones import RoPEViT
from rope_dense.rope import (
    AxialRoPE,
    GridRoPE,
    LogAxialRoPE,
    MixedRoPE,
    RopeScaling,
    VideoRoPE,
)
from rope_dense.utils.sizes import larger, smaller

pytestmark = pytest.mark.filterwarnings('ignore::torch.jit.TracerWarning')
OTHERS = (7, 4), (4, 12), (1, 1)


class Angles(nn.Module):
    """The angles of an embedding for a map [1, C, H, W], or for its windows."""

    def __init__(
        self, rope: nn.Module, window_size: tuple[int, int] | None = None
    ) -> None:
        super().__init__()
        self.rope, self.window_size = rope, window_size

    def forward(self, image: Tensor) -> Tensor:
        grid = image.shape[2], image.shape[3]
        return self.rope(
            image.flatten(2).transpose(1, 2), grid, self.window_size
        ).angles


def assert_traced(module: nn.Module, dtype: torch.dtype = torch.float32) -> None:
    """A trace at one size gives what the module gives at others."""
    module.eval()
    traced = torch.jit.trace(module, torch.zeros(1, 4, 5, 8, dtype=dtype))
    for height, width in ((5, 8), *OTHERS):
        image = torch.zeros(1, 4, height, width, dtype=dtype)
        torch.testing.assert_close(traced(image), module(image), atol=1e-5, rtol=1e-5)


COORDINATES = [
    dict(offset=1.0),
    dict(reference=(3, 6)),
    *(
        dict(type=type, normalize=normalize)
        for type in ('centres', 'corners')
        for normalize in ('separate', 'min', 'max')
    ),
]


@pytest.mark.parametrize('settings', COORDINATES, ids=str)
@pytest.mark.parametrize('cls', [AxialRoPE, MixedRoPE])
def test_coordinates(cls: type[GridRoPE], settings: dict):
    assert_traced(Angles(cls(8, 2, coordinates=settings)))


@pytest.mark.parametrize('rope', [LogAxialRoPE(8, 2), VideoRoPE(12, 2)], ids=repr)
def test_other_embeddings(rope: nn.Module):
    assert_traced(Angles(rope))
    assert_traced(Angles(rope, window_size=(3, 2)))
    assert_traced(Angles(rope), torch.float64)


@pytest.mark.parametrize('type', ['none', 'linear', 'ntk', 'by_parts'])
@pytest.mark.parametrize('factor', [None, 2.0])
def test_scaling(type: str, factor: float | None):
    for rope in (AxialRoPE(8, 2), MixedRoPE(8, 2)):
        if type == 'ntk' and not rope.supports_ntk:
            continue
        rope.set_scaling(RopeScaling((3, 6), type, factor))
        assert_traced(Angles(rope))


@pytest.mark.parametrize('temperature', ['log', 'yarn'])
def test_the_temperature_is_that_of_the_traced_size(temperature: str):
    rope = AxialRoPE(8, 2)
    rope.set_scaling(RopeScaling((3, 6), 'none', temperature=temperature))

    def scaled(image: Tensor) -> Tensor:
        rotary = rope(
            image.flatten(2).transpose(1, 2), (image.shape[2], image.shape[3])
        )
        return torch.ones(()) * rotary.attention_scale

    image = torch.zeros(1, 4, 5, 8)
    traced = torch.jit.trace(scaled, image)
    torch.testing.assert_close(traced(image), scaled(image))
    assert traced(torch.zeros(1, 4, 9, 9)) == traced(image) > 1


@pytest.mark.parametrize(
    'options',
    [
        dict(rope=dict(type='LogAxialRoPE')),
        dict(
            rope=dict(
                type='AxialRoPE', coordinates=dict(type='corners', normalize='max')
            )
        ),
        dict(rope=dict(type='MixedRoPE'), rope_scaling=dict(type='by_parts')),
    ],
    ids=str,
)
def test_a_backbone(options: dict):
    small = dict(embed_dims=16, depth=2, num_heads=2)
    model = RoPEViT(small, patch_size=8, **options).eval()
    with torch.no_grad():
        traced = torch.jit.trace(model, torch.rand(1, 3, 32, 40))
        for height, width in ((32, 40), (128, 24), (16, 136)):
            image = torch.rand(1, 3, height, width)
            for actual, expected in zip(traced(image), model(image), strict=True):
                torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)


def test_the_larger_of_numbers_and_tensors():
    assert (larger(2, 3), smaller(2, 3), larger(2.5, 1.0)) == (3, 2, 2.5)
    sides = torch.tensor(4), 7
    assert [
        int(f(*order)) for f in (larger, smaller) for order in (sides, sides[::-1])
    ] == [
        7,
        7,
        4,
        4,
    ]
