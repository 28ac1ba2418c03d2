import pytest
import torch
from mmengine.registry import MODELS
from reference import relative_error
from torch import Tensor, nn

from rope_dense.backbones import RoPESwin, RoPEViT
from rope_dense.backbones.windows import (
    attend_in_windows,
    fitting_side,
    strips,
)
from rope_dense.rope import cut_windows, window_padding
from rope_dense.rope.windows import spans

MIXED = dict(type='MixedRoPE')
AXIAL = dict(type='AxialRoPE', theta=50.0)
VIT = dict(
    type='RoPEViT',
    arch=dict(embed_dims=32, depth=3, num_heads=2),
    patch_size=4,
    img_size=16,
    rel_pos_img_size=32,
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
    'ViT relative + APE': dict(VIT, rope=None, use_rel_pos=True, use_ape=True),
    'Swin mixed': dict(SWIN, rope=MIXED),
    'Swin axial + RPB': dict(SWIN, rope=AXIAL, use_rpb=True),
    'Swin RPB': dict(SWIN, rope=None, use_rpb=True),
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


# ---------------------------------------------------------------- the parts


@pytest.mark.parametrize(
    'total, window, shift, padding, expected',
    [
        (12, 4, 0, 0, [(0, 3, 4, 4)]),
        (12, 4, 2, 0, [(0, 1, 2, 2), (2, 2, 4, 4), (10, 1, 2, 2)]),
        (14, 4, 0, 0, [(0, 3, 4, 4), (12, 1, 2, 2)]),
        (14, 4, 0, 2, [(0, 3, 4, 4), (12, 1, 4, 2)]),
        (15, 4, 2, 0, [(0, 1, 2, 2), (2, 3, 4, 4), (14, 1, 1, 1)]),
        (15, 4, 2, 1, [(0, 1, 2, 2), (2, 3, 4, 4), (14, 1, 2, 1)]),
        (13, 4, 2, 3, [(0, 1, 2, 2), (2, 2, 4, 4), (10, 1, 4, 3)]),  # and one of padding alone
        (3, 4, 0, 0, [(0, 1, 3, 3)]),
        (3, 4, 0, 1, [(0, 1, 4, 3)]),
        (1, 4, 2, 0, [(0, 1, 1, 1)]),
        (1, 4, 2, 3, [(0, 1, 2, 1)]),
        (4, 4, 2, 0, [(0, 1, 2, 2), (2, 1, 2, 2)]),
    ],
)
def test_spans(total: int, window: int, shift: int, padding: int, expected: list[tuple[int, ...]]):
    """(start, number, size, inside) of windows along one axis."""
    assert spans(total, window, shift, padding) == expected


CUTS = {
    'whole windows': ((2, 6, 8), (3, 4), {}),
    'incomplete windows': ((2, 7, 9), (3, 4), {}),
    'padded': ((2, 7, 9), (3, 4), dict(padding=(2, 3))),
    'shifted': ((2, 6, 8), (3, 4), dict(shift=(1, 2))),
    'shifted and padded': ((2, 7, 9), (3, 4), dict(shift=(1, 2), padding=(2, 3))),
    'smaller than a window': ((1, 1, 2), (3, 4), dict(shift=(1, 2), padding=(2, 2))),
    'one window': ((3, 3, 4), (3, 4), {}),
}


@pytest.mark.parametrize('shape, window_size, options', CUTS.values(), ids=CUTS)
def test_windows_hold_what_lies_together(
    shape: tuple[int, int, int], window_size: tuple[int, int], options: dict
):
    """Each token tells its image, row and column; padding tells -1."""
    images, height, width = shape
    sides = [torch.arange(side) for side in shape]
    grid = torch.stack(torch.meshgrid(*sides, indexing='ij'), -1)
    partition = cut_windows(shape, window_size, **options)
    seen = torch.zeros(shape, dtype=torch.int)
    down, right = options.get('shift', (0, 0))
    for (rows, columns), tokens in zip(
        partition.sizes, partition.cut(grid, torch.tensor([-1, -1, -1])), strict=True
    ):
        assert tokens.shape == (partition.sizes[rows, columns], rows * columns, 3)
        for window in tokens.unflatten(1, (rows, columns)):
            image, top, left = window[0, 0].tolist()
            assert top == 0 or (top - down) % window_size[0] == 0
            assert left == 0 or (left - right) % window_size[1] == 0
            for row in range(rows):
                for column in range(columns):
                    place = image, top + row, left + column
                    if top + row < height and left + column < width:
                        assert window[row, column].tolist() == list(place)
                        seen[place] += 1
                    else:
                        assert window[row, column].tolist() == [-1, -1, -1]
    assert (seen == 1).all()
    assert sum(n * h * w for (h, w), n in partition.sizes.items()) == partition.num_tokens
    if 'padding' not in options:
        assert partition.num_tokens == images * height * width


@pytest.mark.parametrize('shape, window_size, options', CUTS.values(), ids=CUTS)
def test_merging_is_the_inverse_of_cutting(
    shape: tuple[int, int, int], window_size: tuple[int, int], options: dict
):
    partition = cut_windows(shape, window_size, **options)
    x = torch.randn(*shape, 3, dtype=torch.float64, requires_grad=True)
    of_sizes = partition.cut(x)
    assert torch.equal(partition.merge(of_sizes), x)
    assert torch.autograd.gradcheck(lambda x: partition.merge(partition.cut(x)), (x,))
    weight = torch.randn_like(x)
    grads = torch.autograd.grad((partition.merge(of_sizes) * weight).sum(), of_sizes)
    assert all(map(torch.equal, grads, partition.cut(weight)))  # none for padding


def test_grids_of_any_size_compile():
    """Sizes that change from call to call, which the compiler would not know as numbers."""

    def there_and_back(x: Tensor) -> Tensor:
        padding = window_padding(x.shape[1:3], (3, 4))
        partition = cut_windows(x.shape[:3], (3, 4), shift=(1, 2), padding=padding)
        return partition.merge([part * 2 for part in partition.cut(x)])

    compiled = torch.compile(there_and_back, fullgraph=True, backend='eager')
    for shape in ((1, 6, 8, 2), (1, 7, 9, 2), (2, 10, 5, 2)):
        x = torch.randn(shape)
        assert torch.equal(compiled(x), 2 * x)


@pytest.mark.parametrize('mask_padding, filled', [(False, 8), (True, 5)])
def test_padding_is_seen_or_not(mask_padding: bool, filled: int):
    """Each token counts the tokens that it sees; padding counts for 1, too."""

    def count(q: Tensor, k: Tensor, v: Tensor, size: tuple[int, int]) -> Tensor:
        assert q.shape == k.shape == v.shape == (1, 1, filled, 2) and size == (1, filled)
        return torch.full((1, filled, 2), v[..., 0].sum())

    padding = (0, 0) if mask_padding else window_padding((1, 5), (1, 8))
    partition = cut_windows((1, 1, 5), (1, 8), padding=padding)
    ones = torch.ones(1, 1, 5, 3, 1, 2)
    seen = attend_in_windows(ones, partition, None, count, ones[0, 0, 0])
    assert seen.shape == (1, 1, 5, 2) and seen.unique().tolist() == [filled]


@pytest.mark.parametrize('height, shift, padding', [(21, 0, 0), (21, 3, 0), (20, 3, 1), (2, 3, 5)])
@pytest.mark.parametrize('number', [1, 2, 3, 50])
def test_strips_end_where_windows_do(height: int, shift: int, padding: int, number: int):
    x = torch.randn(1, height, 9, 2)
    parts = strips(x, 7, shift, padding, number)
    assert torch.equal(torch.cat([part for part, _, _ in parts], 1), x)
    assert len(parts) <= max(1, -(-height // 7))
    assert [down for _, down, _ in parts] == [shift] + [0] * (len(parts) - 1)
    assert [bottom for _, _, bottom in parts] == [0] * (len(parts) - 1) + [padding]
    if len(parts) > 1:
        first, *between, _ = (part.shape[1] for part, _, _ in parts)
        assert (first - shift) % 7 == 0 and all(rows % 7 == 0 for rows in between)
    assert number == 1 or height < 7 + shift or len(parts) > 1


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


@pytest.mark.parametrize('size', range(1, 200))
def test_fitting_sides_pad_less_than_the_reference(size: int):
    side = fitting_side(size, 14)
    assert -size % side <= -size % 14 and 1 <= side <= 28
    assert side == size if size < 7 else side >= 7


# ---------------------------------------------------------------- a property of the run


@pytest.mark.parametrize('cfg', BACKBONES.values(), ids=BACKBONES)
@pytest.mark.parametrize('window_size', WINDOWS)
def test_a_changed_window_is_a_built_one_and_goes_back(cfg: dict, window_size: object):
    image = torch.randn(1, 3, 41, 54)
    model = build(cfg, window_size=5)
    before = maps(model, image)
    model.set_window_size(window_size)
    changed = maps(model, image)
    built = build(cfg, window_size=window_size)
    built.load_state_dict(model.state_dict())  # strict: weights do not depend on the window
    assert all(map(torch.equal, changed, maps(built, image)))
    assert max(map(relative_error, changed, before)) > 1e-4
    model.set_window_size(5)
    assert all(map(torch.equal, maps(model, image), before))


@pytest.mark.parametrize('cfg', BACKBONES.values(), ids=BACKBONES)
@pytest.mark.parametrize('window_size', WINDOWS)
@pytest.mark.parametrize('mask_padding', [False, True])
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
    shown, hidden = (build(cfg, window_size=4, mask_padding=mask) for mask in (False, True))
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
    settings = dict(SWIN, window_size=4, use_rpb=True)
    models = [build(settings, shift_single_window=shift) for shift in (True, False)]
    (first, last), (same, other) = (maps(model, image) for model in models)
    assert torch.equal(first, same) and relative_error(last, other) > 1e-4


def test_auto_of_swin_is_the_grid_of_the_last_stage():
    model = RoPESwin('tiny', window_size='auto')
    assert model.window_of(torch.zeros(1, 3, 224, 224)) == (7, 7)
    assert model.window_of(torch.zeros(1, 3, 384, 96)) == (12, 3)
    assert model.window_of(torch.zeros(1, 3, 225, 1)) == (8, 1)


def test_auto_of_vit_pads_nothing_at_1024():
    model = RoPEViT('tiny', with_cls_token=False, window_size='auto', window_block_indexes=(0,))
    assert model.window_of((64, 64)) == (16, 16)
    assert model.window_of((50, 83)) == (10, 14)


@pytest.mark.parametrize('backbone', [dict(VIT, rope=MIXED), dict(SWIN, rope=MIXED)])
def test_large_images_in_windows(backbone: dict):
    """2048 pixels: a model whose blocks all have windows, against windows one at a time."""
    if backbone['type'] == 'RoPEViT':
        backbone = dict(backbone, patch_size=16, window_block_indexes=(0, 1, 2), img_size=64)
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
            {key: value.shape for key, value in build(cfg, window_size=size).state_dict().items()}
            for size in WINDOWS
        ]
        assert all(shape == shapes[0] for shape in shapes)


@pytest.mark.parametrize('window_size', [0, -3, (4, 0), (1, 2, 3), 'automatic', 2.5])
@pytest.mark.parametrize('cfg', [VIT, SWIN], ids=['ViT', 'Swin'])
def test_bad_windows_are_errors(cfg: dict, window_size: object):
    with pytest.raises(ValueError, match=r'window_size must be a number of tokens.*got'):
        MODELS.build(dict(cfg, window_size=window_size))
    model = MODELS.build(cfg)
    before = model.window_size
    with pytest.raises(ValueError, match='window_size must be'):
        model.set_window_size(window_size)
    assert model.window_size == before
