import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rope_dense.necks import SimpleFPN


def layer_norm(x: Tensor, norm: nn.Module) -> Tensor:
    """Over channels, eps 1e-6, written out."""
    mean, var = x.mean(1, keepdim=True), x.var(1, keepdim=True, unbiased=False)
    weight, bias = norm.weight.view(1, -1, 1, 1), norm.bias.view(1, -1, 1, 1)
    return (x - mean) / (var + 1e-6).sqrt() * weight + bias


def reference(neck: SimpleFPN, x: Tensor) -> list[Tensor]:
    up = neck.branches[0][0]
    scaled = [
        F.conv_transpose2d(x, up.weight, up.bias, stride=2),
        x,
        F.max_pool2d(x, 2, 2),
    ]
    outs = []
    for x, (_, lateral, norm, output, output_norm) in zip(scaled, neck.branches, strict=True):
        x = layer_norm(F.conv2d(x, lateral.weight), norm)
        outs.append(layer_norm(F.conv2d(x, output.weight, padding=1), output_norm))
    return [*outs, outs[-1][:, :, ::2, ::2]]


@pytest.mark.parametrize('height, width', [(8, 8), (5, 9), (50, 83), (2, 3)])
def test_equals_plain_operators_and_has_the_strides(height: int, width: int):
    neck = SimpleFPN(16, 8)
    for parameter in neck.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(2, 16, height, width)
    outs = neck((x,))
    for actual, expected in zip(outs, reference(neck, x), strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
    half = height // 2, width // 2
    quarter = -(-half[0] // 2), -(-half[1] // 2)
    sizes = [tuple(out.shape[2:]) for out in outs]
    assert sizes == [(2 * height, 2 * width), (height, width), half, quarter]


def test_declared_strides_are_those_of_the_maps():
    outs = SimpleFPN(4, 4)((torch.zeros(1, 4, 8, 8),))  # of an image of 128 x 128
    assert SimpleFPN.out_strides == tuple(128 // out.shape[-1] for out in outs)


def test_detrex_sizes_of_an_800_x_1333_image():
    outs = SimpleFPN(4, 4)((torch.zeros(1, 4, 800 // 16, 1333 // 16),))
    sizes = [tuple(out.shape[2:]) for out in outs]
    assert sizes == [(100, 166), (50, 83), (25, 41), (13, 21)]


def test_parameters_are_those_of_the_recipe():
    shapes = {name: tuple(p.shape) for name, p in SimpleFPN(768, 256).named_parameters()}
    weights = {name: shape for name, shape in shapes.items() if len(shape) == 4}
    assert weights == {
        'branches.0.0.weight': (768, 384, 2, 2),
        'branches.0.1.weight': (256, 384, 1, 1),
        'branches.0.3.weight': (256, 256, 3, 3),
        'branches.1.1.weight': (256, 768, 1, 1),
        'branches.1.3.weight': (256, 256, 3, 3),
        'branches.2.1.weight': (256, 768, 1, 1),
        'branches.2.3.weight': (256, 256, 3, 3),
    }
    # one bias in the transposed convolution, weight and bias in each of six norms
    assert len(shapes) == 7 + 1 + 12


def test_several_or_tiny_maps_are_errors():
    neck = SimpleFPN(4, 4)
    x = torch.zeros(1, 4, 8, 8)
    with pytest.raises(ValueError, match=r'takes one map, got 2.*out_indices'):
        neck((x, x))
    with pytest.raises(ValueError, match='2 x 2 tokens or more, got 1 x 8'):
        neck((x[:, :, :1],))
