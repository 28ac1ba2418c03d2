"""The window as a setting of a backbone, which weights do not depend on."""

import pytest
import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from helpers.pairwise import pairwise
from helpers.reference import relative_error
from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.backbones.windows import fitting_side

MIXED = dict(type='MixedRoPE')
AXIAL = dict(type='AxialRoPE', theta=50.0)
VIT = dict(
    type='RoPEViT',
    arch=dict(embed_dims=32, depth=3, num_heads=2),
    patch_size=4,
    img_size=16,
    with_cls_token=False,
    window_block_indexes=(0, 1),
)
SWIN = dict(
    type='RoPESwin',
    arch=dict(embed_dims=16, depths=(2, 2), num_heads=(1, 2)),
    patch_size=2,
    pretrain_window_size=4,
    out_indices=(0, 1),
)
BACKBONES = {
    'ViT mixed': dict(VIT, rope=MIXED),
    'ViT axial + APE': dict(VIT, rope=AXIAL, use_ape=True),
    'ViT learned': dict(VIT, rope=dict(AXIAL, learned=True)),
    'ViT relative + APE': dict(
        VIT, rope=None, attention=dict(type='DecomposedBias', img_size=32), use_ape=True
    ),
    'Swin mixed': dict(SWIN, rope=MIXED),
    'Swin axial + RPB': dict(SWIN, rope=AXIAL, attention=dict(type='TableBias')),
    'Swin RPB': dict(SWIN, rope=None, attention=dict(type='TableBias')),
}
WINDOWS = [4, 7, (3, 5), 'auto', None]


def build(cfg: dict, **options: object) -> nn.Module:
    """A backbone far from its initial values, where every part counts."""
    torch.manual_seed(0)
    model = MODELS.build(dict(cfg, **options))
    for name, parameter in model.named_parameters():
        if not name.endswith('freqs'):
            nn.init.normal_(parameter, std=0.4)
    return model.eval()


@torch.no_grad()
def maps(model: nn.Module, image: Tensor) -> tuple[Tensor, ...]:
    return model(image)


@pytest.mark.parametrize(
    'size, reference, side',
    [
        (64, 14, 16),  # ViTDet at 1024 pixels: the divisor nearest to 14
        (56, 14, 14),
        (50, 14, 10),  # 800 pixels: 10 is nearer than 25
        (83, 14, 14),  # a prime: 84 = 6 x 14 pads one token
        (20, 14, 10),
        (5, 14, 5),  # less than half a window: one window
        (1, 14, 1),
        (3, 1, 1),
    ],
)
def test_fitting_sides(size: int, reference: int, side: int):
    assert fitting_side(size, reference) == side


def test_fitting_sides_pad_less_than_the_reference():
    for size in range(1, 200):
        side = fitting_side(size, 14)
        assert -size % side <= -size % 14 and 1 <= side <= 28
        assert side == size if size < 7 else side >= 7


@pytest.mark.parametrize('cfg', BACKBONES.values(), ids=BACKBONES)
@pytest.mark.parametrize('window_size', WINDOWS)
def test_a_changed_window_is_a_built_one_and_goes_back(cfg: dict, window_size: object):
    image = torch.randn(1, 3, 41, 54)
    model = build(cfg, window_size=5)
    before = maps(model, image)
    model.set_window_size(window_size)
    changed = maps(model, image)
    built = build(cfg, window_size=window_size)
    built.load_state_dict(
        model.state_dict()
    )  # strict: weights do not depend on the window
    assert all(map(torch.equal, changed, maps(built, image)))
    assert max(map(relative_error, changed, before)) > 1e-4
    model.set_window_size(5)
    assert all(map(torch.equal, maps(model, image), before))


@pairwise(cfg=BACKBONES, window_size=WINDOWS, mask_padding=[False, True])
def test_any_image_size(cfg: dict, window_size: object, mask_padding: bool):
    patch = cfg['patch_size']
    model = build(cfg, window_size=window_size, mask_padding=mask_padding)
    for height, width in ((patch, patch), (patch, 61), (35, 22)):
        outs = maps(model, torch.randn(2, 3, height, width))
        sizes = [(height // patch, width // patch)]
        if cfg['type'] == 'RoPESwin':
            first = -(-height // patch), -(-width // patch)
            sizes = [first, (-(-first[0] // 2), -(-first[1] // 2))]
        assert [tuple(out.shape[-2:]) for out in outs] == sizes
        assert all(out.isfinite().all() for out in outs)


@pytest.mark.parametrize('cfg', BACKBONES.values(), ids=BACKBONES)
def test_hidden_padding_changes_nothing_where_there_is_none(cfg: dict):
    image = torch.randn(1, 3, 32, 32)
    shown, hidden = (
        build(cfg, window_size=4, mask_padding=mask) for mask in (False, True)
    )
    assert all(map(torch.equal, maps(shown, image), maps(hidden, image)))
    image = torch.randn(1, 3, 40, 40)  # ViT 10 tokens, Swin 20 and 10
    assert relative_error(maps(shown, image)[-1], maps(hidden, image)[-1]) > 1e-4


@pytest.mark.parametrize('rope', [MIXED, AXIAL])
def test_one_window_over_everything_is_global_attention(rope: dict):
    image = torch.randn(1, 3, 24, 20)
    one, whole = (build(VIT, rope=rope, window_size=size) for size in ((6, 5), None))
    assert max(map(relative_error, maps(one, image), maps(whole, image))) < 1e-5
    settings = dict(SWIN, rope=rope, shift_single_window=False)
    one, whole = (build(settings, window_size=size) for size in ((12, 10), None))
    assert relative_error(maps(one, image)[0], maps(whole, image)[0]) < 1e-5


def test_a_single_window_is_shifted_by_option_only():
    image = torch.randn(1, 3, 16, 16)  # 8 x 8, then 4 x 4 tokens
    settings = dict(SWIN, window_size=4, attention=dict(type='TableBias'))
    models = [build(settings, shift_single_window=shift) for shift in (True, False)]
    (first, last), (same, other) = (maps(model, image) for model in models)
    assert torch.equal(first, same) and relative_error(last, other) > 1e-4


def test_auto_of_swin_is_the_grid_of_the_last_stage():
    model = RoPESwin('tiny', window_size='auto')
    for size, window in (
        ((224, 224), (7, 7)),
        ((384, 96), (12, 3)),
        ((225, 1), (8, 1)),
    ):
        plan = model.block_plans(
            0, torch.empty(1, 1, 1), (9, 9), torch.empty(1, 3, *size)
        )[0]
        assert plan.window_size == window


def test_auto_of_vit_pads_nothing_at_1024():
    model = RoPEViT(
        'tiny', with_cls_token=False, window_size='auto', window_block_indexes=(0,)
    )
    for grid, window in (((64, 64), (16, 16)), ((50, 83), (10, 14))):
        assert model.plan_windows(1, grid, torch.device('cpu')).window_size == window


@pytest.mark.parametrize('backbone', [dict(VIT, rope=MIXED), dict(SWIN, rope=MIXED)])
def test_large_images_in_windows(backbone: dict):
    """2048 pixels: a model whose blocks all have windows, against windows one at a time."""
    if backbone['type'] == 'RoPEViT':
        backbone = dict(
            backbone, patch_size=16, window_block_indexes=(0, 1, 2), img_size=64
        )
        model, image = build(backbone, window_size=16), torch.randn(1, 3, 2048, 2048)
        (out,) = maps(model, image)
        assert out.shape == (1, 32, 128, 128)
        (part,) = maps(model, image[..., 512:768, 1024:1280])
        assert relative_error(out[..., 32:48, 64:80], part) < 1e-5
    else:
        model = build(dict(backbone, patch_size=16), window_size=8)
        outs = maps(model, torch.randn(1, 3, 2048, 2048))
        assert [tuple(out.shape[-2:]) for out in outs] == [(128, 128), (64, 64)]
        assert all(out.isfinite().all() for out in outs)


@pytest.mark.parametrize('cfg', BACKBONES.values(), ids=BACKBONES)
def test_inference_mode_leaves_nothing_that_training_could_meet(cfg: dict):
    model, image = build(cfg, window_size=5), torch.randn(1, 3, 41, 54)
    expected = maps(model, image)
    with torch.inference_mode():
        outs = model(image)
    assert all(map(torch.equal, outs, expected))
    sum(out.square().mean() for out in model.train()(image)).backward()


def test_windows_leave_no_trace_in_the_weights():
    for cfg in BACKBONES.values():
        shapes = [
            {
                key: value.shape
                for key, value in build(cfg, window_size=size).state_dict().items()
            }
            for size in WINDOWS
        ]
        assert all(shape == shapes[0] for shape in shapes)


@pytest.mark.parametrize('window_size', [0, -3, (4, 0), (1, 2, 3), 'automatic', 2.5])
@pytest.mark.parametrize('cfg', [VIT, SWIN], ids=['ViT', 'Swin'])
def test_bad_windows_are_errors(cfg: dict, window_size: object):
    with pytest.raises(ValueError, match=r'window_size must be .*got'):
        MODELS.build(dict(cfg, window_size=window_size))
    model = MODELS.build(cfg)
    before = model.window_size
    with pytest.raises(ValueError, match='window_size must be'):
        model.set_window_size(window_size)
    assert model.window_size == before
