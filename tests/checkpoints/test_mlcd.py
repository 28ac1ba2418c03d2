"""MLCD and RICE against transformers' ``MLCDVisionModel``, the weights passed on in a file.

``python tests/checkpoints/test_mlcd.py`` compares two blocks of the real widths (a minute).
"""

import tempfile
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from helpers.reference import relative_error
from helpers.small_checkpoints import load, randomize, refusal, saved
from rope_dense.backbones import RoPEViT
from rope_dense.checkpoints import CheckpointError
from rope_dense.checkpoints.publishers import TARGETS

SMALL = dict(
    RoPEViT.ARCHS['rice_large'], embed_dims=96, depth=3, num_heads=2, mlp_ratio=2.0
)
SIZES = dict(RICE='rice_large', MLCD='mlcd_bigg_336')
GRIDS = [(5, 5), (4, 9), (1, 6)]


def published(transformers: ModuleType, arch: dict) -> nn.Module:
    """transformers' model of an architecture, with random weights and angles of the class token."""
    config = transformers.MLCDVisionConfig(
        hidden_size=arch['embed_dims'],
        intermediate_size=round(arch['embed_dims'] * arch.get('mlp_ratio', 4.0)),
        num_hidden_layers=arch['depth'],
        num_attention_heads=arch['num_heads'],
        image_size=arch['img_size'],
    )
    theirs = transformers.MLCDVisionModel(config).eval()
    randomize(theirs)
    nn.init.uniform_(theirs.class_pos_emb, -3, 3)
    return theirs


def maps_of(theirs: nn.Module, image: Tensor) -> list[Tensor]:
    """[B, C, H, W] after each block."""
    grid = [side // 14 for side in image.shape[2:]]
    states = theirs(image, output_hidden_states=True).hidden_states[1:]
    return [state[:, 1:].transpose(1, 2).unflatten(2, grid) for state in states]


@torch.no_grad()
def largest_error(
    transformers: ModuleType, arch: dict, grids: list, folder: Path
) -> float:
    """Relative, of the maps after all blocks."""
    theirs = published(transformers, arch)
    path = saved(theirs.state_dict(), folder)
    ours = load(RoPEViT, path, arch=arch, out_indices=range(arch['depth'])).eval()
    errors = []
    for rows, columns in grids:
        image = torch.randn(1, 3, 14 * rows, 14 * columns)
        pairs = zip(ours(image), maps_of(theirs, image), strict=True)
        errors += [relative_error(*pair) for pair in pairs]
    return max(errors)


# ---------------------------------------------------------------- parity


def test_same_maps_as_transformers(transformers: ModuleType, tmp_path: Path):
    assert largest_error(transformers, SMALL, GRIDS, tmp_path) < 2e-6


@torch.no_grad()
def test_the_class_token_with_its_norm_is_the_pooled_output(
    transformers: ModuleType, tmp_path: Path
):
    theirs = published(transformers, SMALL)
    path = saved(theirs.state_dict(), tmp_path)
    model = load(RoPEViT, path, arch=SMALL, final_norm=True, output_prefix='cls').eval()
    image = torch.randn(2, 3, 70, 98)
    ((_, token),) = model(image)
    assert relative_error(token, theirs(image).pooler_output) < 2e-6


@pytest.mark.parametrize('name', SIZES.values(), ids=SIZES)
def test_every_key_and_shape_of_the_full_size(
    transformers: ModuleType, name: str, tmp_path: Path
):
    """transformers' defaults are the sizes of ViT-bigG/14-336."""
    arch = RoPEViT.ARCHS[name]
    settings = dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24)
    config = transformers.MLCDVisionConfig(
        **settings if name == 'rice_large' else {}, image_size=arch['img_size']
    )
    with torch.device('meta'):
        theirs = transformers.MLCDVisionModel(config)
        ours = load(RoPEViT, saved(theirs.state_dict(), tmp_path), arch=name)
    assert (ours.arch.depth, ours.arch.num_heads) == (
        config.num_hidden_layers,
        config.num_attention_heads,
    )
    assert ours.out_strides == [config.patch_size]
    assert ours.pretrain_grid == (config.image_size // config.patch_size,) * 2
    assert ours.blocks[0].norm1.eps == ours.norm_pre.eps == config.layer_norm_eps
    assert ours.blocks[0].attn.rope.theta == config.rope_parameters['rope_theta']
    assert config.hidden_act == ours.arch.mlp == 'gelu'


# ---------------------------------------------------------------- files


def test_files_of_earlier_transformers_and_of_ours(
    transformers: ModuleType, tmp_path: Path
):
    weights = published(transformers, SMALL).state_dict()
    model = load(RoPEViT, saved(weights, tmp_path), arch=SMALL)
    expected = model.state_dict()
    for block in range(3):
        offset = expected[f'blocks.{block}.attn.rope.angle_offset']
        assert torch.equal(offset, weights['class_pos_emb'])
    earlier = {f'vision_model.{key}': x for key, x in weights.items()}
    earlier['vision_model.embeddings.position_ids'] = torch.arange(26)[None]
    for again in (earlier, expected):
        loaded = load(RoPEViT, saved(again, tmp_path), arch=SMALL).state_dict()
        assert all(torch.equal(loaded[key], x) for key, x in expected.items())
    with pytest.raises(CheckpointError, match='timm has no MLCD'):
        TARGETS['timm'].from_ours(expected)


def test_a_missing_or_left_over_weight_is_refused(
    transformers: ModuleType, tmp_path: Path
):
    weights = published(transformers, SMALL).state_dict()
    del weights['encoder.layers.1.self_attn.k_proj.bias']
    weights['encoder.layers.1.self_attn.scale'] = torch.ones(1)
    text = refusal(RoPEViT, saved(weights, tmp_path), arch=SMALL)
    assert (
        'blocks.1.attn.qkv.bias' in text and 'encoder.layers.1.self_attn.scale' in text
    )


def test_clip_is_refused_by_name(transformers: ModuleType, tmp_path: Path):
    """As MLCD's ViT-L/14-336 and ViT-B/32-224 are."""
    config = transformers.CLIPVisionConfig(
        **dict(
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
        ),
        **dict(image_size=28, patch_size=14),
    )
    weights = transformers.CLIPVisionModel(config).state_dict()
    text = refusal(RoPEViT, saved(weights, tmp_path), arch=SMALL)
    assert 'no rotary embedding' in text


# ---------------------------------------------------------------- windows and scaling


@pytest.mark.parametrize('window_prefix', ['copy', 'global'])
@torch.no_grad()
def test_windows_of_the_size_of_the_grid_are_global_blocks(window_prefix: str):
    """The class token keeps its angles in windows, whatever it attends to."""
    model = RoPEViT(
        SMALL, window_block_indexes=(0, 1), window_prefix=window_prefix
    ).eval()
    randomize(model)
    image = torch.randn(1, 3, 14 * 4, 14 * 6)
    model.set_window_size(None)
    (whole,) = model(image)
    model.set_window_size((4, 6))
    assert relative_error(model(image)[0], whole) < 1e-5
    model.set_window_size(3)
    assert relative_error(model(image)[0], whole) > 1e-3


@torch.no_grad()
def test_a_copy_of_the_class_token_sees_its_window_as_an_image():
    model = RoPEViT(
        dict(SMALL, depth=1), window_block_indexes=(0,), window_size=3
    ).eval()
    randomize(model)
    image = torch.randn(1, 3, 14 * 3, 14 * 6)
    (whole,) = model(image)
    for part in (slice(3), slice(3, 6)):
        pixels = slice(14 * part.start if part.start else 0, 14 * part.stop)
        assert relative_error(whole[..., part], model(image[..., pixels])[0]) < 1e-5


@pytest.mark.parametrize('kind', ['linear', 'by_parts'])
@torch.no_grad()
def test_scaling_keeps_the_angles_of_the_class_token(kind: str):
    """Of a grid of pre-training nothing changes; of a larger one the frequencies alone."""
    arch = dict(SMALL, img_size=14 * 4)
    plain, scaled = (
        RoPEViT(arch).eval(),
        RoPEViT(arch, rope_scaling=dict(type=kind)).eval(),
    )
    randomize(plain)
    scaled.load_state_dict(plain.state_dict())
    image = torch.randn(1, 3, 14 * 4, 14 * 4)
    assert torch.equal(plain(image)[0], scaled(image)[0])
    ropes = [model.blocks[0].attn.rope for model in (scaled, plain)]
    angles, others = (
        rope(torch.empty(1, 64, 1), (8, 8)).angles for rope in ropes
    )  # [64, 1, P]
    assert torch.equal(angles[0], -ropes[0].angle_offset)
    assert torch.equal(angles[0], others[0]) and (angles - others).abs().max() > 1


def test_every_parameter_has_a_gradient():
    model = RoPEViT(dict(SMALL, depth=2)).train()
    randomize(model)
    model(torch.randn(2, 3, 14 * 5, 14 * 7))[0].square().sum().backward()
    without = [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.any()
    ]
    assert not without


if __name__ == '__main__':
    import transformers

    for name in ('rice_large', 'mlcd_bigg_336'):
        arch = dict(RoPEViT.ARCHS[name], depth=2)
        side = arch['img_size'] // 14
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            grids = [(side, side), (side // 2, side + 7), (1, side)]
            print(name, f'{largest_error(transformers, arch, grids, Path(folder)):.1e}')
