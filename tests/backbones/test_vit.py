"""RoPEViT: the models of the paper against timm, and the model."""

from types import ModuleType

import pytest
import torch
from mmengine.registry import MODELS, init_default_scope
from torch import Tensor

from helpers.reference import relative_error
from helpers.small_checkpoints import randomize
from rope_dense.backbones import RoPEViT
from rope_dense.rope import GridRoPE

MIXED = dict(type='MixedRoPE', theta=10.0)
AXIAL = dict(type='AxialRoPE', theta=100.0)
TINY = dict(embed_dims=32, depth=4, num_heads=2)
# The columns of the paper's Table 1, the learned axial ablation, and no position at all.
COLUMNS = {
    'APE': dict(rope=None, use_ape=True),
    'axial': dict(rope=AXIAL),
    'mixed': dict(rope=MIXED),
    'axial + APE': dict(rope=AXIAL, use_ape=True),
    'mixed + APE': dict(rope=MIXED, use_ape=True),
    'learned axial': dict(rope=dict(AXIAL, learned=True)),
    'none': dict(rope=None),
}
VITDET = dict(with_cls_token=False, window_size=3, window_block_indexes=(0, 1, 3))
VITDET_COLUMNS = {name: dict(column, **VITDET) for name, column in COLUMNS.items()}
VITDET_COLUMNS['APE + relative'] = dict(
    rope=None, use_ape=True, attention=dict(type='DecomposedBias'), **VITDET
)


def build(**arguments) -> RoPEViT:
    model = RoPEViT(**{'arch': TINY, **arguments})
    randomize(model)
    return model.eval()


# ---------------------------------------------------------------- parity with timm


def timm_pair(timm: ModuleType, size: str, variant: str, img_size, depth: int):
    """timm's model and ours with its weights; depth cut to ``depth``."""
    theirs = timm.create_model(
        f'vit_{size}_patch16_rope_{variant}224',
        img_size=img_size,
        depth=depth,
        num_classes=0,
    )
    randomize(theirs)
    ours = RoPEViT(
        arch=dict(RoPEViT.ARCHS[size], depth=depth),
        img_size=img_size,
        rope=MIXED if 'mixed' in variant else AXIAL,
        use_ape='ape' in variant,
        final_norm=True,
        out_indices=tuple(range(depth)),
    )
    state = {name: x for name, x in theirs.state_dict().items() if 'freqs' not in name}
    if 'mixed' in variant:  # theirs: one parameter [2, L, h P]
        for index, freqs in enumerate(theirs.rope.freqs.flatten(2).unbind(1)):
            of_block = ours.blocks[index].attn.rope.freqs
            state[f'blocks.{index}.attn.rope.freqs'] = freqs.view_as(of_block)
    ours.load_state_dict(state)
    return theirs.eval(), ours.eval()


@pytest.mark.parametrize(
    'size, variant, img_size',
    [
        *(
            ('small', '', 224),
            ('small', 'mixed_', (160, 272)),
            ('small', 'ape_', (160, 272)),
        ),
        *(
            ('base', 'mixed_ape_', 384),
            ('base', '', (160, 272)),
            ('large', 'mixed_', 224),
        ),
    ],
)
@torch.no_grad()
def test_same_weights_same_tokens_as_timm(
    timm: ModuleType, size: str, variant: str, img_size
):
    theirs, ours = timm_pair(timm, size, variant, img_size, depth=2)
    image = torch.randn(
        1, 3, *(img_size if isinstance(img_size, tuple) else (img_size,) * 2)
    )
    expected = theirs.forward_features(image)[:, 1:].transpose(1, 2)
    maps = ours(image)
    assert relative_error(maps[-1].flatten(2), expected) < 1e-5
    first = theirs.forward_intermediates(
        image, indices=[0], norm=False, intermediates_only=True
    )
    assert relative_error(maps[0], first[0]) < 1e-5


@pytest.mark.parametrize('variant', ['', 'mixed_ape_'])
@torch.no_grad()
def test_same_tokens_as_timm_at_full_depth(timm: ModuleType, variant: str):
    theirs, ours = timm_pair(timm, 'small', variant, 224, depth=12)
    image = torch.randn(1, 3, 224, 224)
    expected = theirs.forward_features(image)[:, 1:].transpose(1, 2)
    assert relative_error(ours(image)[-1].flatten(2), expected) < 1e-5


# ---------------------------------------------------------------- the model


@pytest.mark.parametrize('height, width', [(64, 64), (80, 49), (47, 130), (16, 16)])
@pytest.mark.parametrize('name', VITDET_COLUMNS)
@torch.no_grad()
def test_any_image_size_gives_maps_of_the_declared_stride(
    name: str, height: int, width: int
):
    model = build(**VITDET_COLUMNS[name], out_indices=(1, -1), img_size=64)
    maps = model(torch.randn(2, 3, height, width))
    assert len(maps) == len(model.out_channels) == len(model.out_strides) == 2
    for out, channels, stride in zip(
        maps, model.out_channels, model.out_strides, strict=True
    ):
        assert out.shape == (2, channels, height // stride, width // stride)
        assert torch.isfinite(out).all()


@pytest.mark.parametrize('name', COLUMNS | VITDET_COLUMNS)
def test_every_parameter_has_a_gradient(name: str):
    columns = COLUMNS if name in COLUMNS else VITDET_COLUMNS
    model = build(**columns[name], final_norm=True, img_size=64).train()
    model(torch.randn(2, 3, 80, 64))[0].square().sum().backward()
    without = [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.any()
    ]
    assert not without


@pytest.mark.parametrize('name', ['tiny', 'small', 'base', 'large'])
def test_architectures_have_the_published_number_of_parameters(name: str):
    with torch.device('meta'):
        model = RoPEViT(arch=name, final_norm=True)
    dims, depth = model.ARCHS[name]['embed_dims'], model.ARCHS[name]['depth']
    # patches, class token, blocks (12 C^2 and 9 + 4 + 2 vectors of C), norm, frequencies
    expected = (
        (16 * 16 * 3 + 1) * dims + dims + depth * (12 * dims**2 + 15 * dims) + 2 * dims
    )
    expected += depth * dims
    assert sum(p.numel() for p in model.parameters()) == expected
    frequencies = {
        'small': 4608,
        'base': 9216,
        'large': 24576,
    }  # 4.6k, 9.2k, 24.6k in the paper
    found = sum(
        p.numel() for name, p in model.named_parameters() if name.endswith('rope.freqs')
    )
    assert found == frequencies.get(name, depth * dims)


def test_the_same_weights_run_at_another_size():
    model = build(rope=MIXED, use_ape=True, img_size=64)
    other = RoPEViT(arch=TINY, rope=MIXED, use_ape=True, img_size=64)
    other.load_state_dict(model.state_dict())
    image = torch.randn(1, 3, 96, 128)
    with torch.no_grad():
        torch.testing.assert_close(other.eval()(image), model(image))


@torch.no_grad()
def test_position_embedding_is_resized_bicubically():
    model = build(rope=None, use_ape=True, img_size=64)
    image = torch.zeros(1, 3, 80, 96)
    tokens, _ = model.embed(image)
    as_map = model.pos_embed[0].T.reshape(1, 32, 4, 4)
    expected = torch.nn.functional.interpolate(
        as_map, (5, 6), mode='bicubic', antialias=False
    )
    expected = expected + model.patch_embed.proj.bias.view(1, -1, 1, 1)
    torch.testing.assert_close(tokens[:, 1:], expected.flatten(2).transpose(1, 2))


def test_window_blocks_have_the_angles_of_one_window():
    model, seen = build(rope=MIXED, **VITDET), []
    for block in model.blocks:
        block.attn.rope.register_forward_hook(
            lambda _, inputs, out: seen.append(out.angles.shape)
        )
    model(torch.randn(2, 3, 80, 128))
    assert seen == [(9, 2, 8), (9, 2, 8), (40, 2, 8), (9, 2, 8)]


def test_frequencies_belong_to_their_block():
    model = build(rope=MIXED)
    freqs = {
        name: tuple(p.shape) for name, p in model.named_parameters() if 'freqs' in name
    }
    assert freqs == {f'blocks.{index}.attn.rope.freqs': (2, 2, 8) for index in range(4)}
    values = [block.attn.rope.freqs for block in model.blocks]
    assert not any(torch.equal(value, values[0]) for value in values[1:])
    assert not any('rope' in key for key in build(rope=AXIAL).state_dict())


def test_recomputing_blocks_gives_the_same_gradients():
    image, gradients = torch.randn(1, 3, 64, 64), []
    for with_cp in (False, True):
        torch.manual_seed(0)
        model = build(rope=MIXED, with_cp=with_cp, **VITDET).train()
        model(image)[0].square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize('frozen_stages', [-1, 0, 2, 4, 'all'])
def test_frozen_stages_do_not_learn(frozen_stages: int | str):
    model = build(
        rope=MIXED, use_ape=True, frozen_stages=frozen_stages, img_size=64
    ).train()
    frozen_stages = model.frozen_stages
    out = model(torch.randn(1, 3, 64, 64))[0]
    if frozen_stages == 4:
        assert not out.requires_grad
        return
    out.square().sum().backward()
    embeddings = [model.cls_token, model.pos_embed, *model.patch_embed.parameters()]
    assert all((p.grad is None) == (frozen_stages >= 0) for p in embeddings)
    for index, block in enumerate(model.blocks):
        frozen = index < frozen_stages
        assert all((p.grad is None) == frozen for p in block.parameters())
        assert block.training != frozen
        assert block.attn.rope.freqs.requires_grad != frozen


@pytest.mark.parametrize('window_prefix', ['copy', 'global'])
@pytest.mark.parametrize('final_norm', [False, True, 'all'])
def test_a_frozen_model_has_no_parameter_that_trains(
    final_norm: bool | str, window_prefix: str
):
    """Its frequencies and final norm neither; nothing is random, even before ``train()``."""
    model = RoPEViT(
        TINY,
        rope=dict(MIXED, coordinates=dict(type='centres', rescale=2.0)),
        drop_path_rate=0.5,
        window_size=3,
        window_block_indexes=(0, 1, 3),
        window_prefix=window_prefix,
        final_norm=final_norm,
        out_indices=(1, 3),
        output_prefix='cls',
        frozen_stages='all',
    )
    randomize(model)
    assert not any(p.requires_grad for p in model.parameters())
    image = torch.randn(2, 3, 64, 64)
    results = [[x for pair in model(image) for x in pair]]
    for mode in (True, True, False):
        results.append([x for pair in model.train(mode)(image) for x in pair])
        parts = [part for part in model.modules() if part not in (model, model.blocks)]
        assert not any(part.training for part in parts)
    for outs in results:
        assert not any(out.requires_grad for out in outs)
        assert all(torch.equal(a, b) for a, b in zip(outs, results[0], strict=True))


def test_frozen_blocks_are_not_augmented():
    """Nor dropped; those behind them are."""
    rope = dict(MIXED, coordinates=dict(shift=0.5))
    model = RoPEViT(
        TINY, rope=rope, drop_path_rate=0.5, frozen_stages=2, out_indices=(1, 2)
    )
    randomize(model)
    image = torch.randn(1, 3, 64, 64)
    (frozen, trained), (frozen_again, trained_again) = (
        model.train()(image),
        model(image),
    )
    assert torch.equal(frozen, frozen_again) and not torch.equal(trained, trained_again)


def test_drop_path_grows_linearly():
    model = RoPEViT(arch=TINY, drop_path_rate=0.3)
    rates = [getattr(block.drop_path, 'drop_prob', 0.0) for block in model.blocks]
    assert rates == pytest.approx([0.0, 0.1, 0.2, 0.3])


@pytest.mark.parametrize('variant', ['', 'mixed_ape_'])
@torch.no_grad()
def test_every_map_is_normed_as_timm_s(timm: ModuleType, variant: str):
    theirs, ours = timm_pair(timm, 'small', variant, (80, 112), depth=3)
    model = RoPEViT(vars(ours.arch) | dict(final_norm='all'), out_indices=(0, 2))
    model.load_state_dict(ours.state_dict())
    image = torch.randn(1, 3, 80, 112)
    settings = dict(indices=[0, 2], norm=True, intermediates_only=True)
    expected = theirs.forward_intermediates(image, **settings)
    for found, wanted in zip(model.eval()(image), expected, strict=True):
        assert relative_error(found, wanted) < 1e-5


@torch.no_grad()
def test_prefix_tokens_beside_the_maps():
    options = dict(num_registers=2, out_indices=(1, 3), final_norm='all')
    plain = build(**options)
    image, state = torch.randn(2, 3, 64, 48), plain.state_dict()
    maps, (tokens, grid) = plain(image), plain.forward_tokens(image)
    for output_prefix in ('cls', 'all'):
        model = RoPEViT(TINY, output_prefix=output_prefix, **options).eval()
        model.load_state_dict(state)
        for (out, prefix), expected, x in zip(model(image), maps, tokens, strict=True):
            assert torch.equal(out, expected)
            wanted = x[:, 0] if output_prefix == 'cls' else x[:, :3]
            assert grid == (4, 3) and torch.equal(prefix, wanted)
    model = RoPEViT(TINY, with_cls_token=False, num_registers=2, output_prefix='all')
    assert model(image)[0][1].shape == (2, 2, 32)


@pytest.mark.parametrize('readout_type', ['ignore', 'add', 'project'])
def test_mmseg_s_dpt_head_takes_maps_and_class_tokens(readout_type: str):
    from mmseg.models.decode_heads import DPTHead

    init_default_scope('mmseg')  # of its loss
    model = build(
        out_indices=(0, 1, 2, 3), output_prefix='cls', final_norm='all'
    ).train()
    head = DPTHead(
        embed_dims=32,
        post_process_channels=[8, 8, 8, 8],
        readout_type=readout_type,
        in_channels=[32] * 4,
        in_index=[0, 1, 2, 3],
        input_transform='multiple_select',
        channels=8,
        num_classes=5,
    )
    scores = head(model(torch.randn(2, 3, 64, 96)))
    assert scores.shape == (2, 5, 32, 48)  # half the image, as DPT's
    scores.square().mean().backward()
    assert model.norm.weight.grad.any() and model.cls_token.grad.any()


def test_output_of_the_last_block_alone_is_normalised():
    model = build(final_norm=True, out_indices=(2, 3))
    model.norm.weight.data.fill_(1.0), model.norm.bias.data.zero_()
    before, last = model(torch.randn(1, 3, 64, 64))
    torch.testing.assert_close(last.mean(1), torch.zeros(1, 4, 4), atol=1e-5, rtol=0)
    assert before.mean(1).abs().max() > 1e-3


def test_registered_classes_of_your_own_work_as_rope():
    @MODELS.register_module(force=True)
    class OnlyRows(GridRoPE):
        def frequency_source(self) -> Tensor:
            rows = torch.ones(1, self.head_dim // 2)
            return torch.stack([torch.zeros_like(rows), rows])

    model = build(rope=dict(type='OnlyRows', theta=10.0), with_cls_token=False)
    image = torch.randn(1, 3, 16, 64)
    out = model(image)[0]
    assert out.shape == (1, 32, 1, 4)  # one row: no token is rotated
    for block in model.blocks:
        block.attn.rope = None
    torch.testing.assert_close(model(image)[0], out)


@pytest.mark.parametrize('arguments', [dict(), VITDET])
@torch.no_grad()
def test_a_changed_attribute_changes_the_output(arguments: dict):
    model, image = build(rope=AXIAL, **arguments), torch.randn(1, 3, 64, 64)
    before = model(image)[0]
    model.blocks[0].attn.rope.theta = 5.0
    changed = model(image)[0]
    assert relative_error(changed, before) > 1e-4
    model.blocks[0].attn.rope.theta = AXIAL['theta']
    assert torch.equal(model(image)[0], before)


def test_bfloat16_autocast_stays_close():
    model = build(rope=MIXED, **VITDET)
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = model(image)[0]
        with torch.autocast('cpu', dtype=torch.bfloat16):
            actual = model(image)[0]
    assert relative_error(actual, expected) < 0.05


@pytest.mark.parametrize(
    'arguments, message',
    [
        (
            dict(arch='huge'),
            "arch must be one of tiny, small, base, large, .*got 'huge'",
        ),
        (
            dict(arch=dict(embed_dims=32)),
            r"missing or unknown: \['depth', 'num_heads'\]",
        ),
        (
            dict(arch=dict(TINY, dept=4)),
            r"may have img_size, .* missing or unknown: \['dept'\]",
        ),
        (
            dict(arch=dict(TINY, mlp='glu')),
            "mlp must be one of.*'swiglu_norm'.*got 'glu'",
        ),
        (dict(qkv_bias='k'), "qkv_bias must be one of.*'qv'.*got 'k'"),
        (dict(num_registers=-1), 'num_registers must be an integer from 0 up, got -1'),
        (
            dict(arch=dict(TINY, num_heads=3)),
            'embed_dims 32 is not a multiple of num_heads 3',
        ),
        (
            dict(arch=dict(TINY, num_heads=0)),
            'num_heads must be an integer from 1 up, got 0',
        ),
        (dict(attention=dict(type='DecomposedBias')), 'set rope=None'),
        (
            dict(window_prefix='mean'),
            r"window_prefix must be one of \('copy', 'global'\), got 'mean'",
        ),
        (
            dict(final_norm='last'),
            "final_norm must be .*True, False, 'all'.* got 'last'",
        ),
        (
            dict(output_prefix=True),
            r"output_prefix must be one of \(None, 'cls', 'all'\), got True",
        ),
        (
            dict(output_prefix='cls', with_cls_token=False),
            "output_prefix='cls' needs with_cls_token",
        ),
        (
            dict(output_prefix='all', with_cls_token=False),
            "output_prefix='all' needs with_cls_token",
        ),
        (dict(out_indices=(4,)), r'out_indices must be .* from -4 to 3, got \(4,\)'),
        (dict(out_indices=3), 'out_indices must be a sequence of integers .* got 3'),
        (
            dict(window_block_indexes=(-5,), with_cls_token=False),
            r'window_block_indexes must be .* got \(-5,\)',
        ),
        (
            dict(frozen_stages=5),
            "frozen_stages must be 'all' or an integer from -1 to 4, got 5",
        ),
        (dict(frozen_stages=1.5), 'frozen_stages must be .* got 1.5'),
        (dict(patch_size=0), 'patch_size must be an integer from 1 up, got 0'),
        (dict(patch_size='16'), "patch_size must be .* got '16'"),
        (dict(patch_size=(16, 8)), r'patch_size must be .* got \(16, 8\)'),
        (dict(img_size=8), 'img_size must be an integer from 16 up, .* got 8'),
        (dict(in_channels=0), 'in_channels must be an integer from 1 up, got 0'),
        (dict(mlp_ratio=-1), 'mlp_ratio must be .* more than 0, got -1'),
        (dict(drop_path_rate=1), 'drop_path_rate must be .* less than 1, got 1'),
        (dict(drop_path_rate=float('nan')), 'drop_path_rate must be .* got nan'),
        (
            dict(layer_scale_init_value=float('nan')),
            'layer_scale_init_value must be .* got nan',
        ),
        (dict(rope=True), 'rope must be None or a dict with a type.* got True'),
        (
            dict(rope=dict(MIXED, theta='10')),
            "theta must be a finite number, .* got '10'",
        ),
        (
            dict(use_ape=1),
            r"use_ape must be one of \(True, False, 'bilinear', .*\), got 1",
        ),
        (dict(mask_padding=None), 'mask_padding must be .* got None'),
        (
            dict(rope=None, attention=dict(type='DecomposedBias', img_size=8)),
            'img_size must .* got 8',
        ),
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments: dict, message: str):
    with pytest.raises(ValueError, match=message):
        RoPEViT(**{'arch': TINY, **arguments})


def test_an_image_below_one_patch_is_an_error():
    with pytest.raises(
        ValueError, match=r'8 x 32 \(height x width\).*patch of 16 x 16'
    ):
        build()(torch.randn(1, 3, 8, 32))


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
def test_images_that_do_not_fit_are_named(image: Tensor, message: str):
    with pytest.raises(ValueError, match=message):
        build()(image)


@pytest.mark.parametrize('name', VITDET_COLUMNS)
def test_no_images(name: str):
    model = build(**VITDET_COLUMNS[name], img_size=64).train()
    (out,) = model(torch.zeros(0, 3, 80, 64))
    assert out.shape == (0, 32, 5, 4)
    out.sum().backward()
