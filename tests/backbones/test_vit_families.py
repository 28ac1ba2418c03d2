"""The published families of ``RoPEViT`` against timm's models, which nobody here wrote."""

from pathlib import Path
from types import ModuleType

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from torch import Tensor, nn

from helpers.published import meta_dinov3
from helpers.reference import relative_error
from helpers.small_checkpoints import load, randomize, refusal, saved
from rope_dense.backbones import RoPEViT
from rope_dense.backbones.archs import ViTArch, find_arch
from rope_dense.backbones.from_config import build_rope

TIMM_NAMES = {
    'small': 'vit_small_patch16_rope_mixed_224',
    'base': 'vit_base_patch16_rope_mixed_224',
    'large': 'vit_large_patch16_rope_mixed_224',
    'dinov3_tiny': 'vit_tiny_patch16_dinov3_qkvb',
    'dinov3_small': 'vit_small_patch16_dinov3',
    'dinov3_small_plus': 'vit_small_plus_patch16_dinov3',
    'dinov3_base': 'vit_base_patch16_dinov3',
    'dinov3_large': 'vit_large_patch16_dinov3',
    'dinov3_huge_plus': 'vit_huge_plus_patch16_dinov3',
    'dinov3_7b': 'vit_7b_patch16_dinov3',
    'lingbot_small': 'vit_small_patch16_lingbot',
    'lingbot_base': 'vit_base_patch16_lingbot',
    'lingbot_large': 'vit_large_patch16_lingbot',
    'lingbot_giant': 'vit_giant_patch16_lingbot',
    'eva02_tiny': 'eva02_tiny_patch14_224',
    'eva02_small': 'eva02_small_patch14_224',
    'eva02_base': 'eva02_base_patch14_224',
    'eva02_large': 'eva02_large_patch14_224',
    'eva02_clip_base': 'eva02_base_patch16_clip_224',
    'eva02_clip_large': 'eva02_large_patch14_clip_224',
    'pe_core_tiny': 'vit_pe_core_tiny_patch16_384',
    'pe_core_small': 'vit_pe_core_small_patch16_384',
    'pe_core_base': 'vit_pe_core_base_patch16_224',
    'pe_core_large': 'vit_pe_core_large_patch14_336',
    'pe_core_gigantic': 'vit_pe_core_gigantic_patch14_448',
    'pe_spatial_tiny': 'vit_pe_spatial_tiny_patch16_512',
    'pe_spatial_small': 'vit_pe_spatial_small_patch16_512',
    'pe_spatial_base': 'vit_pe_spatial_base_patch16_512',
    'pe_spatial_large': 'vit_pe_spatial_large_patch14_448',
    'pe_spatial_gigantic': 'vit_pe_spatial_gigantic_patch14_448',
    'pe_lang_large': 'vit_pe_lang_large_patch14_448',
    'pe_lang_gigantic': 'vit_pe_lang_gigantic_patch14_448',
    'rope_reg1_medium': 'vit_medium_patch16_rope_reg1_gap_256',
    'rope_reg1_mediumd': 'vit_mediumd_patch16_rope_reg1_gap_256',
    'rope_reg4_betwixt': 'vit_betwixt_patch16_rope_reg4_gap_256',
    'rope_reg1_base': 'vit_base_patch16_rope_reg1_gap_256',
}
NOT_THE_BACKBONE = ('head.', 'fc_norm.', 'attn_pool.')


# One of each kind of block, prefix and coordinates; angles and numbers are compared for all.
KINDS = (
    'dinov3_small',
    'dinov3_small_plus',
    'eva02_tiny',
    'eva02_base',
    'eva02_clip_base',
    'pe_core_base',
    'pe_spatial_base',
    'rope_reg1_mediumd',
    'rope_reg4_betwixt',
)


def small(name: str, **settings) -> dict:
    """The kind of an architecture in a small size."""
    return dict(RoPEViT.ARCHS[name], embed_dims=32, depth=2, num_heads=2, **settings)


# ---------------------------------------------------------------- timm's models


def test_every_architecture_is_compared():
    """naver's tiny is not in timm, nor are others, which are compared in test_sam3.py,
    test_mlcd.py, test_qwen.py, test_vjepa.py, test_sapiens.py, test_vit_options.py and
    test_realtime_archs.py."""
    others = {'sam3', 'isotropic_small', 'isotropic_base', 'resformer_small'}
    elsewhere = ('deimv2', 'ecvit', 'mlcd', 'rice', 'qwen3', 'vjepa2_1', 'sapiens2')
    others |= {name for name in RoPEViT.ARCHS if name.startswith(elsewhere)}
    assert RoPEViT.ARCHS.keys() - TIMM_NAMES.keys() == {'tiny', *others}


@pytest.mark.parametrize('name', TIMM_NAMES)
def test_same_numbers_as_timm(timm: ModuleType, name: str):
    without_bias = (
        dict(qkv_bias=False) if name == 'dinov3_tiny' else {}
    )  # timm has no other
    with torch.device('meta'):
        theirs = timm.create_model(TIMM_NAMES[name], num_classes=0, **without_bias)
        ours = RoPEViT(arch=name, final_norm=isinstance(theirs.norm, nn.LayerNorm))
    expected = sum(
        p.numel()
        for key, p in theirs.named_parameters()
        if not key.startswith(NOT_THE_BACKBONE)
    )
    folded = 0
    if ours.pos_embed is not None and ours.cls_token is not None:
        folded = theirs.embed_dim  # place of the class token
    assert sum(p.numel() for p in ours.parameters()) == expected - folded
    assert ours.patch_embed.proj.stride == theirs.patch_embed.patch_size
    assert ours.blocks[0].norm1.eps == theirs.blocks[0].norm1.eps
    if not name.startswith(('dinov3', 'lingbot')):  # timm takes 224 unless it is told
        assert ours.pretrain_grid == theirs.patch_embed.grid_size
    if name not in (
        'small',
        'base',
        'large',
    ):  # naver start LayerScale at 1e-4, timm at 1e-5
        assert ours.arch.layer_scale_init_value == theirs.blocks[0].init_values


@pytest.mark.parametrize('grid', [(4, 4), (5, 33)])
@pytest.mark.parametrize('name', [name for name in TIMM_NAMES if '_' in name])
def test_same_angles_as_timm(timm: ModuleType, name: str, grid: tuple[int, int]):
    patch_size = RoPEViT.ARCHS[name].get('patch_size', 16)
    size = tuple(patch_size * side for side in grid)
    theirs = timm.create_model(TIMM_NAMES[name], img_size=size, depth=0, num_classes=0)
    sin, cos = theirs.rope.get_embed(grid).chunk(2, -1)  # [N, D], pairs repeated
    arch = find_arch(ViTArch, RoPEViT.ARCHS, name)
    ours = build_rope(
        arch.rope, head_dim=arch.embed_dims // arch.num_heads, num_heads=1
    ).eval()
    rotary = ours(torch.empty(1, grid[0] * grid[1], 1), grid)
    pairs = (
        slice(None, sin.shape[1] // 2)
        if rotary.pair_layout == 'half'
        else slice(0, None, 2)
    )
    angles = rotary.angles[:, 0]  # [N, P]
    torch.testing.assert_close(angles.sin(), sin[:, pairs], atol=1e-5, rtol=0)
    torch.testing.assert_close(angles.cos(), cos[:, pairs], atol=1e-5, rtol=0)


def weights_from_timm(theirs: nn.Module) -> dict[str, Tensor]:
    """timm's weights under our names."""
    state, ours = theirs.state_dict(), {}
    for key, x in state.items():
        if key.startswith(NOT_THE_BACKBONE) or key.endswith('k_proj.weight'):
            continue
        module, _, part = key.partition('.mlp.fc1.')
        if key.endswith('attn.q_proj.weight'):
            parts = [state[key.replace('q_proj', f'{letter}_proj')] for letter in 'qkv']
            ours[key.replace('q_proj', 'qkv')] = torch.cat(parts)
        elif key.endswith(('attn.q_proj.bias', 'attn.v_proj.bias')):
            ours[key.replace('attn.', 'attn.qkv.').replace('_proj.bias', '_bias')] = x
        elif key.endswith(('attn.q_bias', 'attn.v_bias')):
            ours[key.replace('attn.', 'attn.qkv.')] = x
        elif (
            part and len(x) == 2 * state[f'{module}.mlp.fc2.weight'].shape[1]
        ):  # packed SwiGLU
            ours[f'{module}.mlp.fc1_g.{part}'], ours[f'{module}.mlp.fc1_x.{part}'] = (
                x.chunk(2)
            )
        elif not key.endswith('attn.v_proj.weight'):
            ours[key] = x
    if 'pos_embed' in ours:  # with a place for the class token
        ours['cls_token'] = ours['cls_token'] + ours['pos_embed'][:, :1]
        ours['pos_embed'] = ours['pos_embed'][:, 1:]
    return ours


def timm_pair(
    timm: ModuleType,
    name: str,
    img_size: tuple[int, int],
    depth: int = 2,
    **settings: object,
) -> tuple[nn.Module, RoPEViT]:
    """timm's model and ours with its weights."""
    theirs = timm.create_model(
        TIMM_NAMES[name], img_size=img_size, depth=depth, num_classes=0, **settings
    )
    randomize(theirs)
    ours = RoPEViT(
        arch=dict(RoPEViT.ARCHS[name], depth=depth),
        img_size=img_size,
        final_norm=isinstance(theirs.norm, nn.LayerNorm),
        out_indices=range(depth),
    )
    ours.load_state_dict(weights_from_timm(theirs))
    return theirs, ours


def tokens_of(theirs: nn.Module, image: Tensor) -> Tensor:
    """[B, C, N] without prefix tokens."""
    return theirs.forward_features(image)[:, theirs.num_prefix_tokens :].transpose(1, 2)


@pytest.mark.parametrize('grid', [(4, 4), (7, 7), (3, 6)])
@pytest.mark.parametrize('name', KINDS)
@torch.no_grad()
def test_same_weights_same_tokens_as_timm(
    timm: ModuleType, name: str, grid: tuple[int, int]
):
    patch_size = RoPEViT.ARCHS[name].get('patch_size', 16)
    size = (grid[0] * patch_size, grid[1] * patch_size)
    theirs, ours = (model.eval() for model in timm_pair(timm, name, size))
    image = torch.randn(1, 3, *size)
    first, last = ours(image)
    assert relative_error(last.flatten(2), tokens_of(theirs, image)) < 1e-5
    expected = theirs.forward_intermediates(image, indices=[0], intermediates_only=True)
    assert relative_error(first, expected[0]) < 1e-5


@pytest.mark.parametrize('name', KINDS)
@torch.no_grad()
def test_normed_maps_and_prefix_tokens_are_those_of_timm(timm: ModuleType, name: str):
    """``norm=True`` norms nothing where timm's model has no final norm."""
    patch_size = RoPEViT.ARCHS[name].get('patch_size', 16)
    size = (3 * patch_size, 6 * patch_size)
    theirs, ours = timm_pair(timm, name, size)
    model = RoPEViT(
        vars(ours.arch) | dict(final_norm='all' if ours.norm is not None else False),
        out_indices=(0, 1),
        output_prefix='all',
    )
    model.load_state_dict(ours.state_dict())
    image = torch.randn(2, 3, *size)
    settings = dict(
        indices=[0, 1], norm=True, return_prefix_tokens=True, intermediates_only=True
    )
    wanted = theirs.eval().forward_intermediates(image, **settings)
    for found, expected in zip(model.eval()(image), wanted, strict=True):
        assert relative_error(found[0], expected[0]) < 1e-5
        assert relative_error(found[1], expected[1]) < 1e-5


@pytest.mark.parametrize('final_norm', ['all', True])
@torch.no_grad()
def test_maps_are_those_of_hugging_face_s_backbone(
    final_norm: bool | str, tmp_path: Path
):
    """Without ``apply_layernorm`` it still norms the last map."""
    transformers = pytest.importorskip('transformers', reason='no transformers')
    config = transformers.DINOv3ViTConfig(
        **dict(
            hidden_size=64,
            num_hidden_layers=3,
            num_attention_heads=1,
            intermediate_size=256,
        ),
        **dict(num_register_tokens=4, apply_layernorm=final_norm == 'all'),
        **dict(out_features=['stage1', 'stage3'], return_class_token=True),
    )
    theirs = transformers.DINOv3ViTBackbone(config).eval()
    randomize(theirs)
    ours = load(
        RoPEViT,
        saved(theirs.state_dict(), tmp_path),
        arch=dict(RoPEViT.ARCHS['dinov3_small'], embed_dims=64, depth=3, num_heads=1),
        qkv_bias='qv',
        final_norm=final_norm,
        out_indices=(0, 2),
        output_prefix='cls',
    )
    image = torch.randn(1, 3, 64, 96)
    out = theirs(image)
    wanted = zip(out.feature_maps, out.cls_tokens, strict=True)
    for found, expected in zip(ours.eval()(image), wanted, strict=True):
        assert (
            max(relative_error(*pair) for pair in zip(found, expected, strict=True))
            < 1e-5
        )


NORMS = dict(dinov3='all', lingbot='all', sapiens2='all', vjepa2='separate')


@pytest.mark.parametrize('name', RoPEViT.ARCHS)
def test_norms_of_a_family_by_default(name: str):
    """Published code norms all maps, V-JEPA's each by its own norm; others stay as blocks leave
    them."""
    with torch.device('meta'):
        model = RoPEViT(name)
    assert model.arch.final_norm == NORMS.get(name.split('_')[0], False)
    assert (model.norm is not None) == bool(model.arch.final_norm)


@torch.no_grad()
def test_training_draws_the_same_coordinates_as_timm(timm: ModuleType):
    """In one block: timm draws once for all blocks, DINOv3's own code and ours for each."""
    theirs, ours = timm_pair(
        timm, 'dinov3_small', (64, 48), depth=1, rope_rescale_coords=2.0
    )
    image = torch.randn(2, 3, 64, 48)
    plain = ours.eval()(image)[-1]
    theirs.train(), ours.train()
    for seed in range(3):
        torch.manual_seed(seed)
        expected = tokens_of(theirs, image)
        torch.manual_seed(seed)
        actual = ours(image)[-1]
        assert relative_error(actual.flatten(2), expected) < 1e-5
        assert relative_error(actual, plain) > 1e-3
    assert torch.equal(ours.eval()(image)[-1], plain)


def test_blocks_draw_coordinates_of_their_own():
    model, angles = RoPEViT(arch=small('dinov3_small', img_size=64)).train(), []
    for block in model.blocks:
        block.attn.rope.register_forward_hook(
            lambda _, inputs, out: angles.append(out.angles)
        )
    model(torch.zeros(2, 3, 64, 64))
    assert angles[0].shape == (16, 1, 8) and not torch.equal(*angles)


# ---------------------------------------------------------------- the model


@pytest.mark.parametrize('name', KINDS)
def test_every_parameter_has_a_gradient(name: str):
    model = RoPEViT(arch=small(name, img_size=56), final_norm=True)
    randomize(model)
    model.train()(torch.randn(2, 3, 64, 80))[0].square().sum().backward()
    without = [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.any()
    ]
    assert not without


@pytest.mark.slow
@pytest.mark.parametrize(
    'name, training', [('dinov3_small', True), ('eva02_base', False)]
)
def test_compiles_without_a_graph_break(name: str, training: bool):
    model = RoPEViT(arch=small(name, img_size=56))
    randomize(model)
    model.train(training)
    image = torch.randn(1, 3, 64, 80)
    compiled = torch.compile(model, fullgraph=True, backend='aot_eager')
    with torch.set_grad_enabled(training):
        outs = []
        for forward in (model, compiled):
            torch.manual_seed(0)
            outs.append(forward(image)[0])
    assert relative_error(outs[1], outs[0]) < 1e-5


@pytest.mark.parametrize('name', ['dinov3_small', 'eva02_base', 'pe_core_base'])
@torch.no_grad()
def test_a_window_is_an_image_of_its_own(name: str):
    """Coordinates that fit the grid fit that of a window: the size of the weights' training."""
    without_prefix = dict(with_cls_token=False, num_registers=0, use_ape=False)
    model = RoPEViT(
        arch=small(name) | dict(patch_size=16),
        window_block_indexes=(0, 1),
        window_size=(2, 3),
        **without_prefix,
    )
    randomize(model)
    image = torch.randn(1, 3, 64, 96)
    whole = model.eval()(image)[0]
    for rows in (slice(0, 2), slice(2, 4)):
        for columns in (slice(0, 3), slice(3, 6)):
            pixels = [
                slice(16 * part.start, 16 * part.stop) for part in (rows, columns)
            ]
            part = model(image[:, :, pixels[0], pixels[1]])[0]
            assert relative_error(whole[:, :, rows, columns], part) < 1e-5


def test_prefix_is_the_class_token_then_the_registers():
    model = RoPEViT(arch=small('dinov3_small'))
    tokens, grid = model.embed(torch.randn(2, 3, 32, 48))
    assert grid == (2, 3) and tokens.shape == (2, 1 + 4 + 6, 32)
    for image in tokens:
        assert torch.equal(image[:1], model.cls_token[0])
        assert torch.equal(image[1:5], model.reg_token[0])


def test_arguments_replace_those_of_the_architecture():
    model = RoPEViT(
        arch='eva02_tiny',
        img_size=64,
        patch_size=16,
        mlp_ratio=2.0,
        qkv_bias=False,
        rope=None,
        use_ape=False,
        with_cls_token=False,
        num_registers=3,
        layer_scale_init_value=0.5,
        norm_cfg=dict(type='LN', eps=1e-3),
    )
    block = model.blocks[0]
    assert model.pretrain_grid == (4, 4) and model.out_strides == [16]
    assert (
        block.attn.rope
        is model.pos_embed
        is model.cls_token
        is block.attn.qkv.bias
        is None
    )
    assert model.reg_token.shape == (1, 3, 192) and block.mlp.fc1_x.out_features == 384
    assert block.norm1.eps == 1e-3 and bool((block.gamma_1 == 0.5).all())


def test_default_survives_a_config():
    text = Config(
        dict(model=dict(type='RoPEViT', arch='eva02_tiny', rope='default'))
    ).pretty_text
    model = MODELS.build(Config.fromstring(text, '.py').model)
    assert model.out_strides == [14] and model.blocks[0].attn.rope.theta == 10000.0


@pytest.mark.parametrize('frozen_stages', [0, 1])
def test_frozen_stages_include_the_prefix_and_its_norm(frozen_stages: int):
    model = RoPEViT(
        arch=small('pe_core_base'), num_registers=2, frozen_stages=frozen_stages
    )
    first = [
        model.cls_token,
        model.reg_token,
        model.pos_embed,
        *model.norm_pre.parameters(),
    ]
    assert not any(p.requires_grad for p in first)
    assert model.blocks[1].norm1.weight.requires_grad
    assert not model.train().norm_pre.training


@pytest.mark.parametrize('name', ['dinov3_small', 'eva02_tiny', 'pe_core_base'])
def test_scaling_is_refused_where_coordinates_fit_the_grid(name: str):
    with pytest.raises(
        ValueError, match=r"rope_scaling: type 'linear'.*coordinates.*same range"
    ):
        RoPEViT(arch=small(name), rope_scaling=dict(type='linear'))
    RoPEViT(arch=small(name), rope_scaling=dict(type='none', temperature='log'))


# ---------------------------------------------------------------- the final norm in files


def test_the_final_norm_of_a_file_is_used_or_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    lines = []
    monkeypatch.setattr(
        'rope_dense.checkpoints.load.print_log', lambda text, logger: lines.append(text)
    )
    weights = meta_dinov3(64, 2, hidden=256)
    arch = dict(RoPEViT.ARCHS['dinov3_small'], embed_dims=64, depth=2, num_heads=1)
    options, path = dict(arch=arch, qkv_bias='qv'), saved(weights, tmp_path)
    for final_norm in ('default', True, 'all'):
        model = load(RoPEViT, path, final_norm=final_norm, **options)
        assert torch.equal(model.norm.weight, weights['norm.weight'])
        assert 'norm.weight' not in lines[-1]
    model = load(RoPEViT, path, final_norm=False, **options)
    assert model.norm is None and 'norm.weight, norm.bias' in lines[-1]
    without = {key: x for key, x in weights.items() if not key.startswith('norm.')}
    text = refusal(RoPEViT, saved(without, tmp_path), **options)
    assert 'missing: norm.weight, norm.bias' in text
