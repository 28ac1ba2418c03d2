"""RoPESwin: the baseline against mmdet, and the model."""

import pytest
import torch
from mmdet.models.backbones.swin import SwinTransformer, swin_converter
from mmengine.registry import MODELS
from torch import Tensor, nn

from rope_dense.backbones import RoPESwin

MIXED = dict(type='MixedRoPE', theta=10.0)
AXIAL = dict(type='AxialRoPE', theta=50.0)
COLUMNS = {
    'rpb': dict(rope=None, attention=dict(type='TableBias')),
    'axial': dict(rope=AXIAL),
    'mixed': dict(rope=MIXED),
    'axial+rpb': dict(rope=AXIAL, attention=dict(type='TableBias')),
    'mixed+rpb': dict(rope=MIXED, attention=dict(type='TableBias')),
}
SMALL = dict(
    arch=dict(embed_dims=16, depths=(2, 2, 1), num_heads=(1, 2, 4)),
    window_size=4,
    pretrain_window_size=4,
    out_indices=(0, 1, 2),
)


def randomise(model: nn.Module) -> None:
    """Draw all parameters far from their initial values, norms included."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return ((found - expected).norm() / expected.norm()).item()


# The baseline against mmdet.


def with_weights_of(ours: RoPESwin, **settings: object) -> SwinTransformer:
    """mmdet's Swin with our weights, renamed and reordered by its converter of official ones."""
    theirs = SwinTransformer(**settings)
    converted = swin_converter(ours.state_dict())
    weights = {
        name.removeprefix('backbone.'): value for name, value in converted.items()
    }
    loaded = theirs.load_state_dict(weights, strict=False)
    assert {name.rpartition('.')[2] for name in loaded.missing_keys} == {
        'relative_position_index'
    }
    assert not loaded.unexpected_keys
    theirs.eval()
    return theirs


@pytest.fixture(scope='module')
def tiny_pair() -> tuple[RoPESwin, SwinTransformer]:
    torch.manual_seed(0)
    ours = RoPESwin(rope=None, attention=dict(type='TableBias')).eval()
    randomise(ours)
    return ours, with_weights_of(ours)


@pytest.mark.parametrize('size', [(224, 224), (384, 384), (200, 317), (30, 9), (1, 1)])
def test_baseline_equals_mmdet(
    tiny_pair: tuple[RoPESwin, SwinTransformer], size: tuple[int, int]
) -> None:
    ours, theirs = tiny_pair
    image = torch.randn(1, 3, *size)
    with torch.no_grad():
        outs, expected = ours(image), theirs(image)
    assert [out.shape for out in outs] == [out.shape for out in expected]
    assert max(map(relative_error, outs, expected)) < 1e-5


def test_baseline_with_other_settings_equals_mmdet() -> None:
    settings = dict(
        window_size=6,
        patch_size=2,
        in_channels=4,
        mlp_ratio=2,
        qkv_bias=False,
        patch_norm=False,
    )
    arch = dict(embed_dims=16, depths=(2, 3), num_heads=(2, 2))
    ours = RoPESwin(
        arch,
        rope=None,
        attention=dict(type='TableBias'),
        pretrain_window_size=6,
        out_indices=(-1,),
        **settings,
    ).eval()
    randomise(ours)
    theirs = with_weights_of(ours, **arch, strides=(2, 2), out_indices=(1,), **settings)
    image = torch.randn(2, 4, 45, 58)
    with torch.no_grad():
        (out,), (expected,) = ours(image), theirs(image)
    assert relative_error(out, expected) < 1e-5


@pytest.mark.parametrize('frozen_stages', [-1, 0, 2, 3])
def test_frozen_stages_are_those_of_mmdet(frozen_stages: int) -> None:
    ours = RoPESwin(
        rope=None,
        attention=dict(type='TableBias'),
        frozen_stages=frozen_stages,
        **SMALL,
    ).train()
    arch = SMALL['arch']
    theirs = SwinTransformer(
        **arch,
        strides=(4, 2, 2),
        window_size=4,
        out_indices=(0, 1, 2),
        frozen_stages=frozen_stages,
    )
    theirs.train()
    marks = {
        name: torch.full_like(parameter, parameter.requires_grad)
        for name, parameter in ours.named_parameters()
    }
    trained = {name: bool(mark.all()) for name, mark in swin_converter(marks).items()}
    expected = theirs.named_parameters(prefix='backbone')
    assert trained == {name: parameter.requires_grad for name, parameter in expected}


# Models.


@pytest.mark.parametrize('settings', COLUMNS.values(), ids=COLUMNS)
def test_every_parameter_has_a_gradient(settings: dict) -> None:
    model = RoPESwin(**settings, **SMALL)
    outs = model(torch.randn(2, 3, 70, 44))
    sum((out * torch.randn_like(out)).sum() for out in outs).backward()
    without = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None or not parameter.grad.any()
    ]
    assert not without
    learned = {name.rpartition('.')[2] for name, _ in model.named_parameters()}
    assert ('freqs' in learned) == (settings['rope'] is MIXED)
    assert ('relative_position_bias_table' in learned) == ('attention' in settings)


@pytest.mark.parametrize('size', [(64, 64), (66, 97), (131, 40), (3, 5)])
def test_declared_strides_and_channels(size: tuple[int, int]) -> None:
    model = MODELS.build(dict(SMALL, type='RoPESwin', out_indices=(-1, 0))).eval()
    assert (model.out_channels, model.out_strides) == ([16, 64], [4, 16])
    with torch.no_grad():
        outs = model(torch.randn(1, 3, *size))
    for out, channels, stride in zip(
        outs, model.out_channels, model.out_strides, strict=True
    ):
        assert out.shape == (1, channels, *(-(-side // stride) for side in size))
        assert out.is_contiguous()


@pytest.mark.parametrize(
    'arch, published, last, tables',
    [
        ('tiny', 28_288_354, 768, 2 * 3 + 2 * 6 + 6 * 12 + 2 * 24),
        ('small', 49_606_258, 768, 2 * 3 + 2 * 6 + 18 * 12 + 2 * 24),
        ('base', 87_768_224, 1024, 2 * 4 + 2 * 8 + 18 * 16 + 2 * 32),
    ],
)
def test_published_parameter_counts(
    arch: str, published: int, last: int, tables: int
) -> None:
    """The published models are baselines with a norm and 1000 classes behind the last stage.

    ``tables`` is the number of heads of all blocks.
    """
    head = 2 * last + 1000 * last + 1000
    norms = 2 * (last + last // 2 + last // 4 + last // 8)
    expected = {
        'rpb': published - head + norms,
        'mixed': published - head + norms - 13**2 * tables + 2 * 16 * tables,
        'axial': published - head + norms - 13**2 * tables,
    }
    for column, count in expected.items():
        with torch.device('meta'):
            model = RoPESwin(arch, **COLUMNS[column])
        assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize('rope', [MIXED, AXIAL], ids=['mixed', 'axial'])
def test_weights_fit_any_window(rope: dict) -> None:
    model = RoPESwin(rope=rope, **SMALL)
    image = torch.randn(1, 3, 70, 90)
    for window_size in (7, (3, 5)):
        other = RoPESwin(rope=rope, **dict(SMALL, window_size=window_size))
        other.load_state_dict(model.state_dict())
        assert all(torch.isfinite(out).all() for out in other(image))


def test_frequencies_belong_to_their_block() -> None:
    with torch.device('meta'):
        model = RoPESwin('tiny')
    freqs = {
        name: tuple(p.shape) for name, p in model.named_parameters() if 'freqs' in name
    }
    depths_and_heads = ((2, 3), (2, 6), (6, 12), (2, 24))
    assert freqs == {
        f'layers.{stage}.blocks.{block}.attn.rope.freqs': (2, heads, 16)
        for stage, (depth, heads) in enumerate(depths_and_heads)
        for block in range(depth)
    }
    assert not [name for name in model.state_dict() if 'index' in name]


def test_frozen_stages_neither_train_nor_keep_activations() -> None:
    model = RoPESwin(frozen_stages=1, drop_path_rate=0.5, **SMALL).train()
    frozen = [model.patch_embed, model.layers[0], model.norm0]
    assert not any(part.training for module in frozen for part in module.modules())
    assert model.layers[1].training and model.norm1.training
    outs = model(torch.randn(1, 3, 40, 40))
    assert [out.requires_grad for out in outs] == [False, True, True]
    sum(out.square().sum() for out in outs).backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None}
    assert trained == {n for n, p in model.named_parameters() if p.requires_grad}
    assert not any(name.startswith('layers.0.') for name in trained)
    assert 'layers.1.blocks.0.attn.rope.freqs' in trained


def test_everything_is_frozen() -> None:
    """Two passes in training mode are equal, and nothing is kept for a backward."""
    rope = dict(MIXED, coordinates=dict(shift=0.5))
    model = RoPESwin(
        rope=rope, frozen_stages='all', drop_path_rate=0.5, **SMALL
    ).train()
    assert not any(parameter.requires_grad for parameter in model.parameters())
    image = torch.randn(1, 3, 40, 40)
    for out, again in zip(model(image), model(image), strict=True):
        assert torch.equal(out, again) and not out.requires_grad


def test_checkpointing_changes_nothing() -> None:
    plain = RoPESwin(attention=dict(type='TableBias'), drop_path_rate=0.3, **SMALL)
    frugal = RoPESwin(
        attention=dict(type='TableBias'), drop_path_rate=0.3, with_cp=True, **SMALL
    )
    frugal.load_state_dict(plain.state_dict())
    image = torch.randn(2, 3, 50, 70)
    results = []
    for model in (plain, frugal):
        torch.manual_seed(1)
        outs = model(image)
        sum(out.square().sum() for out in outs).backward()
        results.append([*outs, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(results[1], results[0])


def test_drop_path_grows_over_all_blocks() -> None:
    with torch.device('meta'):
        model = RoPESwin('tiny', drop_path_rate=0.22)
    rates = [
        getattr(block.drop_path, 'drop_prob', 0.0) for block in model.ordered_blocks
    ]
    assert rates == pytest.approx([0.02 * index for index in range(12)])


def test_autocast_trains_and_stays_close() -> None:
    model = RoPESwin(attention=dict(type='TableBias'), drop_path_rate=0.0, **SMALL)
    image = torch.randn(1, 3, 64, 48)
    expected = model(image)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        outs = model(image)
    sum(out.float().square().sum() for out in outs).backward()
    assert torch.isfinite(model.layers[0].blocks[0].attn.rope.freqs.grad).all()
    assert max(map(relative_error, outs, expected)) < 0.03


def test_compiles_without_a_graph_break() -> None:
    arch = dict(embed_dims=8, depths=(2,), num_heads=(2,))
    model = RoPESwin(
        arch, attention=dict(type='TableBias'), window_size=4, out_indices=(0,)
    ).eval()
    image = torch.randn(1, 3, 40, 56)
    compiled = torch.compile(model, fullgraph=True, backend='eager')
    with torch.no_grad():
        torch.testing.assert_close(compiled(image), model(image))


@pytest.mark.parametrize(
    'settings, message',
    [
        (
            dict(arch='huge'),
            "arch must be one of tiny, small, base, or a dict .*, got 'huge'",
        ),
        (
            dict(arch=dict(embed_dims=8, depths=(1,))),
            r"arch must have embed_dims, depths, num_heads; .*\['num_heads'\], got",
        ),
        (
            dict(arch=dict(embed_dims=8, depths=(1,), num_heads=(3,))),
            'stage 0 has 8 channels',
        ),
        (
            dict(arch=dict(embed_dims=8, depths=(1,), num_heads=(1, 2))),
            'must be of one length',
        ),
        (
            dict(arch=dict(embed_dims=8, depths=(0,), num_heads=(1,))),
            'arch: .* must be an integer from 1 up, got 0',
        ),
        (
            dict(arch=dict(embed_dims=8, depths=1, num_heads=(1,))),
            'depths must be .* got 1',
        ),
        (
            dict(arch=dict(embed_dims=0, depths=(1,), num_heads=(1,))),
            'arch: .* must be an integer from 1 up, got 0',
        ),
        (dict(window_size=(7, 0)), r'window_size must be .* got \(7, 0\)'),
        (dict(pretrain_window_size=0), 'pretrain_window_size must be .* got 0'),
        (
            dict(frozen_stages=5),
            "frozen_stages must be 'all' or an integer from -1 to 4, got 5",
        ),
        (dict(frozen_stages=1.5), 'frozen_stages must be .* got 1.5'),
        (
            dict(out_indices=(0, 4)),
            r'out_indices must be .* from -4 to 3, got \(0, 4\)',
        ),
        (dict(out_indices=3), 'out_indices must be a sequence of integers .* got 3'),
        (dict(drop_path_rate=1.0), 'drop_path_rate must be .* less than 1, got 1.0'),
        (dict(drop_path_rate=float('nan')), 'drop_path_rate must be .* got nan'),
        (dict(patch_size=0), 'patch_size must be an integer from 1 up, got 0'),
        (dict(in_channels='3'), "in_channels must be .* got '3'"),
        (dict(mlp_ratio=-1), 'mlp_ratio must be .* more than 0, got -1'),
        (
            dict(attention='TableBias'),
            "attention must be None or a dict .* got 'TableBias'",
        ),
        (dict(rope=True), 'rope must be None or a dict with a type.* got True'),
    ],
)
def test_errors_say_what_is_allowed(settings: dict, message: str) -> None:
    with torch.device('meta'), pytest.raises(ValueError, match=message):
        RoPESwin(**settings)


@pytest.mark.parametrize(
    'image, message',
    [
        (
            torch.zeros(3, 32, 32),
            r'images must be \[batch, 3, height, width\], got \[3, 32, 32\]',
        ),
        (
            torch.zeros(1, 4, 32, 32),
            r'images must be \[batch, 3, .* got \[1, 4, 32, 32\]',
        ),
        (
            torch.zeros(1, 3, 32, 32, dtype=torch.uint8),
            'must be floating point, got torch.uint8',
        ),
    ],
)
def test_images_that_do_not_fit_are_named(image: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RoPESwin(**SMALL)(image)


def test_no_images() -> None:
    model = RoPESwin(attention=dict(type='TableBias'), **SMALL)
    outs = model(torch.zeros(0, 3, 50, 70))
    assert [tuple(out.shape) for out in outs] == [
        (0, channels, *size)
        for channels, size in zip((16, 32, 64), model.map_sizes(50, 70), strict=True)
    ]
    sum(out.sum() for out in outs).backward()
    assert not any(p.grad is not None and p.grad.any() for p in model.parameters())
