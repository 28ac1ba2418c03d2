"""DINOv3, EVA-02, Perception Encoder, SAM3 and timm's ViTs: files into our backbone, same tokens.

SAM3's tokens are compared in test_sam3.py.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers.published import (
    hf_dinov3,
    hf_sam3,
    meta_dinov3,
    meta_pe,
    meta_sam3,
    naver_vit,
    timm_eva02,
    timm_pe,
)
from helpers.reference import relative_error
from helpers.small_checkpoints import Weights, load, randomize, refusal, saved
from helpers.timm_parity import (
    MODELS,
    NAMES,
    build_pair,
    largest_error,
    other_grids,
    without_norm,
)
from rope_dense.backbones import RoPEViT
from rope_dense.checkpoints import CheckpointError
from rope_dense.checkpoints.keys import new_keys
from rope_dense.checkpoints.load import load_weights
from rope_dense.checkpoints.publishers import TARGETS, find_layout
from rope_dense_command import command

GRID = 5


@pytest.fixture(scope='module')
def convert() -> Callable[[Sequence[str]], int]:
    return command('convert_checkpoint')


@pytest.mark.parametrize('model', MODELS, ids=NAMES)
def test_same_tokens_as_timm_through_a_file(timm: ModuleType, model, tmp_path: Path):
    pair = build_pair(timm, model, tmp_path, grid=GRID, depth=2, widest=192)
    errors = [largest_error(*pair, grid) for grid in ((GRID, GRID), *other_grids(GRID))]
    assert max(errors) < 1e-5


@pytest.mark.filterwarnings('ignore:for .*freqs. copying from a non-meta parameter')
@pytest.mark.slow
@pytest.mark.parametrize('model', MODELS, ids=NAMES)
def test_every_key_and_shape_of_the_full_size(timm: ModuleType, model, tmp_path: Path):
    with torch.device('meta'):
        theirs = timm.create_model(model.timm)
        weights = theirs.state_dict()
    if 'rope.freqs' in weights:  # whose values are looked at
        weights['rope.freqs'] = torch.randn(weights['rope.freqs'].shape)
    path = saved(weights, tmp_path)
    with torch.device('meta'):
        ours = load(
            RoPEViT,
            path,
            arch=model.arch,
            final_norm=not without_norm(theirs),
            **dict(model.options),
        )
    assert ours.pretrain_grid == (model.grid, model.grid)


# ---------------------------------------------------------------- Meta's and Hugging Face's DINOv3

SMALL = dict(embed_dims=64, depth=2, num_heads=1)
DINOV3 = dict(arch=dict(RoPEViT.ARCHS['dinov3_small'], **SMALL), final_norm=True)
SWIGLU = dict(arch=dict(RoPEViT.ARCHS['dinov3_small_plus'], **SMALL), final_norm=True)


@pytest.mark.parametrize('qkv_bias', [True, False])
@pytest.mark.parametrize('swiglu', [True, False])
@torch.no_grad()
def test_meta_s_files_are_read_as_timm_reads_them(
    timm: ModuleType, swiglu: bool, qkv_bias: bool, tmp_path: Path
):
    weights = meta_dinov3(64, 2, hidden=256, swiglu=swiglu, qkv_bias=qkv_bias)
    weights['projectors.0.weight'] = torch.randn(32, 64)  # of EUPE
    for key, tensor in weights.items():
        if tensor.ndim > 1:  # with larger ones the rounding of float32 grows to 1e-5
            weights[key] = 0.1 * tensor
    size = '_small_plus' if swiglu else '_small'
    theirs = timm.create_model(
        f'vit{size}_patch16_dinov3{"_qkvb" if qkv_bias else ""}',
        **dict(embed_dim=64, depth=2, num_heads=1, img_size=64),
    )
    theirs.load_state_dict(checkpoint_filter_fn(timm, weights, theirs))
    options = dict(SWIGLU if swiglu else DINOV3, qkv_bias='qv' if qkv_bias else False)
    ours = load(RoPEViT, saved(weights, tmp_path), **options, out_indices=range(2))
    assert largest_error(theirs.eval(), ours.eval(), (4, 4)) < 1e-5


def checkpoint_filter_fn(
    timm: ModuleType, weights: Weights, model: nn.Module
) -> Weights:
    with redirect_stdout(StringIO()):  # it prints
        return timm.models.eva.checkpoint_filter_fn(dict(weights), model)


@pytest.mark.parametrize('prefix', ['', 'model.'])
@pytest.mark.parametrize('swiglu', [True, False])
def test_every_value_of_a_hugging_face_file_arrives(
    swiglu: bool, prefix: str, tmp_path: Path
):
    weights = hf_dinov3(64, 2, hidden=256, swiglu=swiglu)
    path = saved(
        {re.sub('^layer', f'{prefix}layer', key): x for key, x in weights.items()},
        tmp_path,
    )
    model = load(RoPEViT, path, **(SWIGLU if swiglu else DINOV3), qkv_bias='qv')
    mlp = dict(gate_proj='fc1_g', up_proj='fc1_x') if swiglu else dict(up_proj='fc1')
    loaded = model.state_dict()
    assert torch.equal(loaded['reg_token'], weights['embeddings.register_tokens'])
    for index in range(2):
        old, new = f'layer.{index}.', f'blocks.{index}.'
        parts = [weights[f'{old}attention.{letter}_proj.weight'] for letter in 'qkv']
        assert torch.equal(loaded[f'{new}attn.qkv.weight'], torch.cat(parts))
        for letter in 'qv':
            bias = weights[f'{old}attention.{letter}_proj.bias']
            assert torch.equal(loaded[f'{new}attn.qkv.{letter}_bias'], bias)
        for theirs, ours in dict(mlp, down_proj='fc2').items():
            assert torch.equal(
                loaded[f'{new}mlp.{ours}.bias'], weights[f'{old}mlp.{theirs}.bias']
            )
        for number in '12':
            scale = weights[f'{old}layer_scale{number}.lambda1']
            assert torch.equal(loaded[f'{new}gamma_{number}'], scale)


@pytest.mark.parametrize('swiglu', [True, False])
@torch.no_grad()
def test_same_tokens_as_transformers(
    transformers: ModuleType, swiglu: bool, tmp_path: Path
):
    config = transformers.DINOv3ViTConfig(
        **dict(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=1,
            intermediate_size=256,
        ),
        **dict(
            num_register_tokens=4,
            use_gated_mlp=swiglu,
            hidden_act='silu' if swiglu else 'gelu',
        ),
    )
    theirs = transformers.DINOv3ViTModel(config).eval()
    randomize(theirs)
    options = dict(SWIGLU if swiglu else DINOV3, qkv_bias='qv')
    ours = load(RoPEViT, saved(theirs.state_dict(), tmp_path), **options).eval()
    for height, width in ((64, 64), (96, 48)):
        image = torch.randn(1, 3, height, width)
        tokens = theirs(image).last_hidden_state[:, 5:].transpose(1, 2)
        assert relative_error(ours(image)[-1].flatten(2), tokens) < 1e-5


@pytest.mark.parametrize('layout', [meta_dinov3, hf_dinov3])
def test_biases_of_zero_need_no_option(layout: Callable[..., Weights], tmp_path: Path):
    """Published files have q and v biases; those of most sizes are zero."""
    weights = layout(64, 2, hidden=256)
    path = saved(weights, tmp_path)
    assert 'left over: blocks.*.attn.qkv.q_bias' in refusal(RoPEViT, path, **DINOV3)
    for key in weights:
        if re.search(r'(qkv|[qv]_proj)\.bias$', key):
            weights[key].zero_()
    model = load(RoPEViT, saved(weights, tmp_path), **DINOV3)
    assert not any('attn.qkv' in key and 'bias' in key for key in model.state_dict())


def test_a_mask_that_hides_other_biases_is_refused(tmp_path: Path):
    weights = meta_dinov3(64, 2, hidden=256)
    weights['blocks.1.attn.qkv.bias_mask'][:64] = 0
    text = refusal(RoPEViT, saved(weights, tmp_path), **DINOV3, qkv_bias='qv')
    assert 'blocks.1.attn.qkv.bias_mask masks more than the biases of the keys' in text


# ---------------------------------------------------------------- what the configuration decides

EVA02 = dict(arch=dict(RoPEViT.ARCHS['eva02_base'], **SMALL, mlp_ratio=2.5))
EVA02_SMALL = dict(arch=dict(RoPEViT.ARCHS['eva02_small'], **SMALL, mlp_ratio=2.5))
PE_ROPE = dict(
    RoPEViT.ARCHS['pe_core_base']['rope'], coordinates=dict(reference=4, offset=1.0)
)
PE = dict(arch=dict(RoPEViT.ARCHS['pe_core_base'], **SMALL, img_size=64, rope=PE_ROPE))
EVA02_FILE = partial(timm_eva02, 64, 2, hidden=160)
PE_FILE = partial(timm_pe, 64, 2, side=4)
SAM3 = dict(RoPEViT.ARCHS['sam3'], **SMALL, mlp_ratio=2.5, img_size=56)
SAM3 |= dict(window_size=4, window_block_indexes=(0,))
SAM3_FILES = [partial(make, 64, 2, hidden=160, side=4) for make in (meta_sam3, hf_sam3)]


def test_the_place_of_the_class_token_is_added_to_it(tmp_path: Path):
    weights = EVA02_FILE()
    model = load(RoPEViT, saved(weights, tmp_path), **EVA02)
    place, positions = weights['pos_embed'][:, :1], weights['pos_embed'][:, 1:]
    assert torch.equal(model.cls_token, weights['cls_token'] + place)
    assert torch.equal(model.pos_embed, positions)
    larger = load(
        RoPEViT, saved(weights, tmp_path), **EVA02, img_size=(14 * 20, 14 * 10)
    )
    as_map = positions.reshape(1, 16, 16, 64).permute(0, 3, 1, 2)
    expected = F.interpolate(as_map, (20, 10), mode='bicubic', antialias=False)
    assert relative_error(larger.pos_embed, expected.flatten(2).transpose(1, 2)) < 1e-6


@pytest.mark.parametrize(
    'weights, options', [(EVA02_FILE(), EVA02), (PE_FILE(core=True), PE)]
)
def test_ours_needs_no_place_for_the_class_token(
    weights: Weights, options: dict, tmp_path: Path
):
    """Ours saved and loaded again: nothing is folded twice, on square grids and on others."""
    path = saved(weights, tmp_path)
    for size in (
        (4, 4),
        (5, 13),
    ):  # 65 tokens could be 8 x 8 and a place for the class token
        patch_size = options['arch'].get('patch_size', 16)
        img_size = (size[0] * patch_size, size[1] * patch_size)
        first = load(RoPEViT, path, **options, img_size=img_size)
        (tmp_path / 'again').mkdir(exist_ok=True)
        again = saved({'state_dict': first.state_dict()}, tmp_path / 'again')
        second = load(RoPEViT, again, **options, img_size=img_size).state_dict()
        assert all(torch.equal(second[key], x) for key, x in first.state_dict().items())


def test_prefix_tokens_are_dropped_only_where_none_is_wanted(tmp_path: Path):
    path = saved(meta_dinov3(64, 2, hidden=256), tmp_path)
    none = dict(with_cls_token=False, num_registers=0, window_block_indexes=(0,))
    model = load(RoPEViT, path, **DINOV3, qkv_bias='qv', **none)
    assert model.arch.num_prefix_tokens == 0
    load(RoPEViT, path, **DINOV3, qkv_bias='qv', with_cls_token=False)
    text = refusal(RoPEViT, path, **DINOV3, qkv_bias='qv', num_registers=0)
    assert 'left over: reg_token' in text


# ---------------------------------------------------------------- and back to timm

BACK = [
    ('vit_medium_patch16_rope_reg1_gap_256', 'rope_reg1_medium'),
    ('vit_small_plus_patch16_dinov3', 'dinov3_small_plus'),
    ('eva02_tiny_patch14_224', 'eva02_tiny'),
    ('eva02_base_patch14_224', 'eva02_base'),
    ('eva02_base_patch16_clip_224', 'eva02_clip_base'),
    ('vit_pe_core_base_patch16_224', 'pe_core_base'),
    ('vit_pe_core_gigantic_patch14_448', 'pe_core_gigantic'),
    ('vit_pe_spatial_gigantic_patch14_448', 'pe_spatial_gigantic'),
    ('vit_small_patch16_lingbot', 'lingbot_small'),
]
NOT_THE_BACKBONE = r'head\.|fc_norm\.|attn_pool\.'


@pytest.mark.parametrize('name, arch', BACK)
@torch.no_grad()
def test_back_to_timm(timm: ModuleType, name: str, arch: str):
    sizes = dict(embed_dim=64, depth=2, num_heads=2)
    theirs = timm.create_model(name, **sizes).eval()
    settings = dict(RoPEViT.ARCHS[arch], embed_dims=64, depth=2, num_heads=2)
    ours = RoPEViT(arch=settings, final_norm=not without_norm(theirs)).eval()
    randomize(ours)
    before = {key: x.clone() for key, x in ours.state_dict().items()}
    weights = TARGETS['timm'].from_ours(ours.state_dict())
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert not unexpected and all(re.match(NOT_THE_BACKBONE, key) for key in missing)
    size = ours.arch.img_size
    image = torch.randn(1, 3, size, size)
    expected = theirs.forward_features(image)[:, theirs.num_prefix_tokens :].transpose(
        1, 2
    )
    assert relative_error(ours(image)[-1].flatten(2), expected) < 1e-5
    complete = {**theirs.state_dict(), **weights}
    again = find_layout(complete, name).to_ours(complete)
    assert all(torch.equal(again[key], before[key]) for key in before)


@pytest.mark.parametrize('name, arch', [BACK[3], BACK[5]])
@torch.no_grad()
def test_back_to_timm_without_the_class_token(timm: ModuleType, name: str, arch: str):
    """There is no place for it then, as in timm's models with ``class_token=False``."""
    sizes = dict(embed_dim=64, depth=2, num_heads=2)
    theirs = timm.create_model(name, class_token=False, **sizes).eval()
    settings = dict(RoPEViT.ARCHS[arch], embed_dims=64, depth=2, num_heads=2)
    ours = RoPEViT(
        settings, with_cls_token=False, final_norm=not without_norm(theirs)
    ).eval()
    randomize(ours)
    weights = TARGETS['timm'].from_ours(ours.state_dict())
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert not unexpected and all(re.match(NOT_THE_BACKBONE, key) for key in missing)
    image = torch.randn(1, 3, ours.arch.img_size, ours.arch.img_size)
    expected = theirs.forward_features(image).transpose(1, 2)
    assert relative_error(ours(image)[-1].flatten(2), expected) < 1e-5


def test_timm_has_no_sam3():
    with torch.device('meta'):
        weights = RoPEViT('sam3').state_dict()
    with pytest.raises(CheckpointError, match='timm has no encoder of SAM3'):
        TARGETS['timm'].from_ours(weights)
    with pytest.raises(
        CheckpointError, match=r'naver has no model with norm_pre.weight'
    ):
        TARGETS['naver'].from_ours(weights)


# ---------------------------------------------------------------- Meta's Perception Encoder


@pytest.mark.parametrize('gigantic', [True, False])
@pytest.mark.parametrize('kind', ['core', 'spatial', 'lang'])
@torch.no_grad()
def test_meta_s_perception_encoder_is_read_as_timm_reads_it(
    timm: ModuleType, kind: str, gigantic: bool, tmp_path: Path
):
    size = 'gigantic' if gigantic else 'large' if kind == 'lang' else 'base'
    model = next(x for x in MODELS if x.arch == f'pe_{kind}_{size}')
    sizes = dict(
        embed_dim=64, depth=2, num_heads=2, mlp_ratio=4.0, patch_size=16, img_size=64
    )
    reference = dict(ref_feat_shape=(4, 4), dynamic_img_size=True)
    theirs = timm.create_model(model.timm, num_classes=0, **sizes, **reference).eval()
    scaled = RoPEViT.ARCHS[model.arch]['layer_scale_init_value'] is not None
    weights = meta_pe(
        64, 2, side=4, core=kind == 'core', gigantic=gigantic, layer_scale=scaled
    )
    weights = {key: 0.1 * x if x.ndim > 1 else x for key, x in weights.items()}
    published = {
        f'visual.{key}': x for key, x in weights.items()
    }  # as in its CLIP model
    read = timm.models.eva.checkpoint_filter_fn(dict(published), theirs)
    missing, unexpected = theirs.load_state_dict(read, strict=False)
    assert not missing and all(key.startswith('head.') for key in unexpected)
    arch = dict(
        RoPEViT.ARCHS[model.arch], embed_dims=64, depth=2, num_heads=2, mlp_ratio=4.0
    )
    coordinates = dict(arch['rope']['coordinates'], reference=4)
    arch |= dict(
        patch_size=16, img_size=64, rope=dict(arch['rope'], coordinates=coordinates)
    )
    options = dict(arch=arch, final_norm=kind == 'core', out_indices=range(2))
    ours = load(RoPEViT, saved(published, tmp_path), prefix='visual', **options).eval()
    for grid in ((4, 4), (3, 7), (1, 5)):
        assert largest_error(theirs, ours, grid) < 1e-5


def test_clip_is_not_taken_for_a_perception_encoder(tmp_path: Path):
    """The same names, without the pool: other activations, and no rotation."""
    weights = meta_pe(64, 2, side=4, core=True)
    clip = {key: x for key, x in weights.items() if not key.startswith('attn_pool')}
    assert 'layout of its keys is not known' in refusal(
        RoPEViT, saved(clip, tmp_path), **PE
    )


@pytest.mark.parametrize(
    'weights',
    [
        meta_dinov3(64, 2, hidden=256, swiglu=True),
        hf_dinov3(64, 2, hidden=256, swiglu=True),
        EVA02_FILE(),
        EVA02_FILE(packed=True),
        PE_FILE(core=True),
        meta_pe(64, 2, side=4, core=True),
        *(make() for make in SAM3_FILES),
    ],
)
def test_conversions_do_not_change_what_they_are_given(weights: Weights):
    before = {key: x.clone() for key, x in weights.items()}
    find_layout(weights, 'published').to_ours(weights)
    assert weights.keys() == before.keys()
    assert all(torch.equal(weights[key], before[key]) for key in before)


# ---------------------------------------------------------------- each key counts

FILES = {
    'naver ViT': (
        partial(naver_vit, 64, 2, mixed=True, ape=True),
        dict(arch=SMALL, use_ape=True, final_norm=True),
    ),
    'Meta DINOv3': (
        partial(meta_dinov3, 64, 2, hidden=256),
        dict(DINOV3, qkv_bias='qv'),
    ),
    'HF DINOv3': (partial(hf_dinov3, 64, 2, hidden=256), dict(DINOV3, qkv_bias='qv')),
    'timm EVA-02': (EVA02_FILE, EVA02),
    'timm EVA-02, packed': (partial(EVA02_FILE, packed=True), EVA02_SMALL),
    'timm PE': (partial(PE_FILE, core=True), dict(PE, final_norm=True)),
    'Meta PE': (partial(meta_pe, 64, 2, side=4, core=True), dict(PE, final_norm=True)),
    'Meta SAM3': (SAM3_FILES[0], dict(arch=SAM3)),
    'HF SAM3': (SAM3_FILES[1], dict(arch=SAM3)),
}


@pytest.mark.parametrize('make, options', FILES.values(), ids=FILES)
def test_each_key_that_is_missing_changed_or_extra_is_named(
    make: Callable[[], Weights], options: dict
):
    weights, model = make(), RoPEViT(**options)
    layout = find_layout(weights, 'x')
    for key in weights:
        if (
            not new_keys(key, layout.keys) or key == 'rope_embed.periods'
        ):  # compared only
            continue
        ours = new_keys(key, layout.keys)[0]
        names = {key, ours, re.sub(r'blocks\.\d', 'blocks.*', ours)}
        without = {other: x for other, x in weights.items() if other != key}
        changed = {**weights, key: torch.cat([weights[key]] * 2, -1)}
        for wrong in (without, changed):
            with pytest.raises(CheckpointError) as caught:
                load_weights(model, wrong, 'x')
            assert any(name in str(caught.value) for name in names), (key, caught.value)
    extra = {**weights, 'blocks.0.extra': torch.ones(1)}
    with pytest.raises(CheckpointError, match=r'left over: blocks\.0\.extra'):
        load_weights(model, extra, 'x')


# ---------------------------------------------------------------- tools/convert_checkpoint.py


@pytest.mark.parametrize(
    'file, line',
    [
        (FILES['Meta DINOv3'], 'blocks.0.ls1.gamma [64] -> blocks.0.gamma_1'),
        (FILES['HF DINOv3'], 'embeddings.mask_token [1, 1, 64] -> dropped'),
        (
            FILES['timm EVA-02, packed'],
            'blocks.1.mlp.fc1.bias [320] -> blocks.1.mlp.fc1_g.bias + blocks.1.mlp.fc1_x.bias',
        ),
        (FILES['timm PE'], 'attn_pool.latent [1, 1, 64] -> dropped'),
        (FILES['Meta PE'], 'class_embedding [64] -> cls_token'),
        (FILES['Meta SAM3'], 'blocks.1.attn.freqs_cis [16, 8] -> dropped'),
        (
            FILES['HF SAM3'],
            'layers.1.attention.v_proj.bias [64] -> blocks.1.attn.qkv.bias',
        ),
    ],
)
def test_tool_converts_to_ours(
    convert, file: tuple, line: str, tmp_path: Path, capsys: pytest.CaptureFixture
):
    make, options = file
    source, destination = saved(make(), tmp_path), str(tmp_path / 'ours.pth')
    assert convert([source, destination, '--report']) == 0
    assert line in capsys.readouterr().out.splitlines()
    expected = load(RoPEViT, source, **options).state_dict()
    again = load(RoPEViT, destination, **options).state_dict()
    assert all(torch.equal(again[key], expected[key]) for key in expected)


def test_tool_converts_from_one_layout_to_another(
    convert, tmp_path: Path, capsys: pytest.CaptureFixture
):
    """EVA-02 from ours to timm's, DINOv3 from Meta's to timm's."""
    ours = load(
        RoPEViT, saved(EVA02_FILE(packed=True), tmp_path), **EVA02_SMALL
    ).state_dict()
    destination = tmp_path / 'timm.pth'
    assert (
        convert([saved(ours, tmp_path), str(destination), '--to', 'timm', '--report'])
        == 0
    )
    out = capsys.readouterr().out
    assert 'blocks.0.mlp.fc1_x.weight [160, 64] -> blocks.0.mlp.fc1.weight' in out
    timm_names = torch.load(destination, weights_only=True)
    assert timm_names['pos_embed'].shape == (1, 257, 64)
    assert timm_names['blocks.0.mlp.fc1.weight'].shape == (320, 64)
    source = saved(meta_dinov3(64, 2, hidden=256), tmp_path)
    assert convert([source, str(destination), '--to', 'timm']) == 0
    theirs = torch.load(destination, weights_only=True)
    assert 'reg_token' in theirs and not any(
        'rope' in key or 'k_bias' in key for key in theirs
    )
    assert convert([source, str(tmp_path / 'naver.pth'), '--to', 'naver']) == 2
    assert 'naver has no model with reg_token' in capsys.readouterr().err
