import pytest
import torch
import torch.nn.functional as F
from mmcv.cnn import ConvModule
from mmcv.ops import roi_align
from mmengine.registry import MODELS
from torch import Tensor, nn

from rope_dense.models.plain_vit_fpn import PlainViTFPN

STANDARD = dict(scale_factors=(4, 2, 1, 0.5), num_outs=5)


def layer_norm(x: Tensor, norm: nn.Module) -> Tensor:
    """Over channels, eps 1e-6, written out."""
    mean, var = x.mean(1, keepdim=True), x.var(1, keepdim=True, unbiased=False)
    weight, bias = norm.weight.view(1, -1, 1, 1), norm.bias.view(1, -1, 1, 1)
    return (x - mean) / (var + 1e-6).sqrt() * weight + bias


def doubled(x: Tensor, up: nn.Module) -> Tensor:
    return F.conv_transpose2d(x, up.weight, up.bias, stride=2)


def reference(neck: PlainViTFPN, x: Tensor) -> list[Tensor]:
    scaled = [x, F.max_pool2d(x, 2, 2)]
    *more, two = neck.branches[:-2]
    scaled.insert(0, doubled(x, two[0]))
    for first, norm, _, second in (branch[0] for branch in more):
        scaled.insert(0, doubled(F.gelu(layer_norm(doubled(x, first), norm)), second))
    outs = []
    for x, (_, lateral, norm, output, output_norm) in zip(
        scaled, neck.branches, strict=True
    ):
        x = layer_norm(F.conv2d(x, lateral.weight), norm)
        outs.append(layer_norm(F.conv2d(x, output.weight, padding=1), output_norm))
    while len(outs) < neck.num_outs:
        outs.append(outs[-1][:, :, ::2, ::2])
    return outs


@pytest.mark.parametrize(
    'pyramid', [{}, STANDARD, dict(num_outs=5)], ids=['8', '4', '8 to 128']
)
@pytest.mark.parametrize('height, width', [(8, 8), (5, 9), (50, 83), (2, 3)])
def test_equals_plain_operators_and_has_the_sizes(
    height: int, width: int, pyramid: dict
):
    neck = PlainViTFPN(16, 8, **pyramid)
    for parameter in neck.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(2, 16, height, width)
    outs = neck((x,))
    for actual, expected in zip(outs, reference(neck, x), strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
    sizes = [tuple(out.shape[2:]) for out in outs]
    expected = [(height * 2, width * 2), (height, width), (height // 2, width // 2)]
    if pyramid == STANDARD:
        expected.insert(0, (4 * height, 4 * width))
    while len(expected) < neck.num_outs:
        expected.append((-(-expected[-1][0] // 2), -(-expected[-1][1] // 2)))
    assert sizes == expected


@pytest.mark.parametrize(
    'pyramid, patch_size, strides',
    [
        ({}, 16, [8, 16, 32, 64]),
        (STANDARD, 16, [4, 8, 16, 32, 64]),
        ({}, 14, [7, 14, 28, 56]),
    ],
)
def test_strides_are_those_of_the_docstring(
    pyramid: dict, patch_size: int, strides: list[int]
):
    image = 8 * patch_size
    outs = PlainViTFPN(4, 4, **pyramid)((torch.zeros(1, 4, 8, 8),))
    assert [image / out.shape[-1] for out in outs] == strides


def test_detrex_sizes_of_an_800_x_1333_image():
    outs = PlainViTFPN(4, 4)((torch.zeros(1, 4, 800 // 16, 1333 // 16),))
    sizes = [tuple(out.shape[2:]) for out in outs]
    assert sizes == [(100, 166), (50, 83), (25, 41), (13, 21)]


RECIPE = {  # of DINO-ViTDet
    'branches.0.0.weight': (768, 384, 2, 2),
    'branches.0.1.weight': (256, 384, 1, 1),
    'branches.0.3.weight': (256, 256, 3, 3),
    'branches.1.1.weight': (256, 768, 1, 1),
    'branches.1.3.weight': (256, 256, 3, 3),
    'branches.2.1.weight': (256, 768, 1, 1),
    'branches.2.3.weight': (256, 256, 3, 3),
}
STANDARD_RECIPE = {  # of ViTDet's Mask R-CNN: one branch more
    'branches.0.0.0.weight': (768, 384, 2, 2),
    'branches.0.0.3.weight': (384, 192, 2, 2),
    'branches.0.1.weight': (256, 192, 1, 1),
    'branches.0.3.weight': (256, 256, 3, 3),
    **{
        key.replace(f's.{i}.', f's.{i + 1}.'): RECIPE[key]
        for key in RECIPE
        for i in [int(key[9])]
    },
}


# One bias in each transposed convolution, weight and bias in each norm.
@pytest.mark.parametrize(
    'pyramid, recipe, others',
    [({}, RECIPE, 1 + 12), (STANDARD, STANDARD_RECIPE, 3 + 18)],
)
def test_parameters_are_those_of_the_recipe(pyramid: dict, recipe: dict, others: int):
    neck = PlainViTFPN(768, 256, **pyramid)
    shapes = {name: tuple(p.shape) for name, p in neck.named_parameters()}
    assert {name: shape for name, shape in shapes.items() if len(shape) == 4} == recipe
    assert len(shapes) == len(recipe) + others


@pytest.mark.parametrize(
    'wrong, message',
    [
        (
            dict(scale_factors=(2, 0.5)),
            r'scale_factors must be neighbours.*got \(2, 0.5\)',
        ),
        (
            dict(scale_factors=(8, 4, 2)),
            r'scale_factors must be neighbours.*got \(8, 4, 2\)',
        ),
        (dict(num_outs=2), 'num_outs must be an integer from 3 up, got 2'),
    ],
)
def test_what_does_not_fit_is_an_error(wrong: dict, message: str):
    with pytest.raises(ValueError, match=message):
        PlainViTFPN(**dict(in_channels=8) | wrong)


def test_the_old_name_builds_the_same():
    assert type(MODELS.build(dict(type='SimpleFPN', in_channels=8))) is PlainViTFPN


def test_the_norm_is_one_of_mmcv_s():
    conv = ConvModule(4, 8, 3, norm_cfg=dict(type='ChannelLayerNorm', eps=1e-6))
    assert conv.norm.eps == 1e-6 and conv.conv.bias is None
    x = conv.conv(torch.randn(2, 4, 5, 6))
    torch.testing.assert_close(conv.norm(x), layer_norm(x, conv.norm))


@pytest.mark.parametrize('strides', [torch.contiguous_format, torch.channels_last])
def test_regions_of_its_maps_are_pooled(strides: torch.memory_format) -> None:
    """mmcv's operators read maps as if they were contiguous; the mean of a region is compared."""
    neck = PlainViTFPN(8, out_channels=6, **STANDARD)
    regions = torch.tensor([[1.0, 16, 32, 48, 64]])  # index of the image and pixels
    x = torch.rand(2, 8, 6, 7).to(memory_format=strides)
    for level, out in enumerate(neck((x,))[:3]):
        scale = 1 / 4 / 2**level
        pooled = roi_align(out, regions, 1, scale, 0, 'avg', True)[0, :, 0, 0]
        left, top, right, bottom = (int(side * scale) for side in regions[0, 1:])
        assert torch.allclose(
            pooled, out[1, :, top:bottom, left:right].mean((1, 2)), atol=1e-5
        )
