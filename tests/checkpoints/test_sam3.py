"""SAM3's image encoder against transformers' ``Sam3ViTModel``, which fixes the image size when it
is built: at its own sizes with the same random weights, and what has to hold at any other.

``python tests/checkpoints/test_sam3.py`` compares four blocks of the real width (minutes).
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from helpers.published import hf_sam3, meta_sam3
from helpers.reference import relative_error
from helpers.small_checkpoints import Weights, load, randomize, refusal, saved
from rope_dense.backbones import RoPEViT
from rope_dense.backbones.layers import tile_grid

WINDOW = 4  # patches of a side of a window and of the position embedding; SAM3 has 24
SMALL = dict(
    RoPEViT.ARCHS['sam3'],
    embed_dims=64,
    depth=4,
    num_heads=2,
    img_size=14 * WINDOW,
    window_size=WINDOW,
    window_block_indexes=(0, 2),
    rope=dict(
        type='AxialRoPE',
        theta=10000.0,
        coordinates=dict(type='index', reference=WINDOW),
    ),
)
HIDDEN = int(64 * 4.625)
META_PREFIX = 'detector.backbone.vision_backbone.trunk'
HF_PREFIX = 'detector_model.vision_encoder.backbone'


def small(**arguments: object) -> RoPEViT:
    model = RoPEViT(SMALL, **arguments)
    randomize(model)
    return model.eval()


def published(transformers: ModuleType, arch: dict, side: int) -> nn.Module:
    """transformers' model of an architecture for images of ``side`` patches, with the eps of Meta's
    code."""
    depth = arch['depth']
    config = transformers.Sam3ViTConfig(
        hidden_size=arch['embed_dims'],
        intermediate_size=int(arch['embed_dims'] * arch['mlp_ratio']),
        num_hidden_layers=depth,
        num_attention_heads=arch['num_heads'],
        image_size=14 * side,
        pretrain_image_size=arch['img_size'],
        window_size=arch['window_size'],
        global_attn_indexes=[
            i for i in range(depth) if i not in arch['window_block_indexes']
        ],
        layer_norm_eps=1e-5,
    )
    return transformers.Sam3ViTModel(config).eval()


@torch.no_grad()
def largest_error(
    transformers: ModuleType, arch: dict, side: int, folder: Path
) -> float:
    """Relative, of the maps after all blocks, with the same weights, passed on in a file."""
    theirs, maps = published(transformers, arch, side), []
    randomize(theirs)
    path = saved(theirs.state_dict(), folder)
    ours = load(RoPEViT, path, arch=arch, out_indices=range(arch['depth'])).eval()
    for layer in theirs.layers:
        layer.register_forward_hook(
            lambda _, inputs, out: maps.append(out.permute(0, 3, 1, 2))
        )
    image = torch.randn(1, 3, 14 * side, 14 * side)
    theirs(image)
    return max(relative_error(*pair) for pair in zip(ours(image), maps, strict=True))


# ---------------------------------------------------------------- parity


# One window; whole windows; windows that reach over the edge; less than a window.
@pytest.mark.parametrize('side', [4, 12, 8, 13, 6, 3])
def test_same_maps_as_transformers(transformers: ModuleType, side: int, tmp_path: Path):
    assert largest_error(transformers, SMALL, side, tmp_path) < 1e-5


def test_same_maps_as_transformers_at_1008_pixels(
    transformers: ModuleType, tmp_path: Path
):
    """The real grids, 72 x 72 patches in windows of 24, in two narrow blocks."""
    sizes = dict(embed_dims=32, depth=2, num_heads=2, window_block_indexes=(0,))
    arch = dict(RoPEViT.ARCHS['sam3'], **sizes)
    assert largest_error(transformers, arch, 72, tmp_path) < 1e-5


def test_every_key_and_shape_of_the_full_size(transformers: ModuleType, tmp_path: Path):
    """transformers' default is SAM3, but for the eps, which Meta's code has at 1e-5."""
    with torch.device('meta'):
        theirs = transformers.Sam3ViTModel(transformers.Sam3ViTConfig())
        ours = load(RoPEViT, saved(theirs.state_dict(), tmp_path), arch='sam3')
    assert sum(p.numel() for p in ours.parameters()) == sum(
        p.numel() for p in theirs.parameters()
    )
    assert ours.window_size == (theirs.config.window_size,) * 2
    global_blocks = [i for i in range(32) if i not in ours.window_blocks]
    assert global_blocks == theirs.config.global_attn_indexes
    assert ours.patch_embed.proj.stride == (theirs.config.patch_size,) * 2
    assert ours.blocks[0].norm1.eps == ours.norm_pre.eps == 1e-5
    assert ours.blocks[0].attn.num_heads == theirs.config.num_attention_heads
    assert ours.blocks[0].attn.rope.theta == theirs.config.rope_parameters['rope_theta']


# ---------------------------------------------------------------- files


def in_hf_layout(weights: Weights) -> Iterator[tuple[str, Tensor]]:
    """Meta's weights under transformers' names, by hand."""
    for key, x in weights.items():
        if key == 'pos_embed':
            yield 'embeddings.position_embeddings', x[:, 1:]
        elif key == 'patch_embed.proj.weight':
            yield 'embeddings.patch_embeddings.projection.weight', x
        elif key.startswith('ln_pre'):
            yield key.replace('ln_pre', 'layer_norm'), x
        elif '.qkv.' in key:
            name = key.replace('blocks', 'layers').replace('attn', 'attention')
            for letter, part in zip('qkv', x.chunk(3), strict=True):
                yield name.replace('qkv', f'{letter}_proj'), part
        elif not key.endswith('freqs_cis'):
            name = key.replace('blocks', 'layers').replace('.norm', '.layer_norm')
            yield name.replace('attn.proj', 'attention.o_proj'), x


def test_meta_s_file_and_transformers_file_are_the_same_model(tmp_path: Path):
    weights = meta_sam3(64, 4, hidden=HIDDEN, side=WINDOW)
    theirs = dict(in_hf_layout(weights))
    assert theirs.keys() == hf_sam3(64, 4, hidden=HIDDEN, side=WINDOW).keys()
    states = []
    for prefix, part in ((META_PREFIX, weights), (HF_PREFIX, theirs)):
        whole = {f'{prefix}.{key}': x for key, x in part.items()}
        path = saved(
            {**whole, 'tracker_model.no_memory_embedding': torch.zeros(1)}, tmp_path
        )
        assert f"Perhaps prefix='{prefix}.'" in refusal(RoPEViT, path, arch=SMALL)
        states.append(load(RoPEViT, path, prefix=prefix, arch=SMALL).state_dict())
    assert torch.equal(states[0]['pos_embed'], weights['pos_embed'][:, 1:])
    assert all(torch.equal(states[1][key], x) for key, x in states[0].items())


def test_the_position_embedding_is_not_resized(tmp_path: Path):
    path = saved(hf_sam3(64, 4, hidden=HIDDEN, side=WINDOW), tmp_path)
    text = refusal(RoPEViT, path, arch=SMALL, img_size=14 * 12)
    assert 'pos_embed [1, 16, 64] instead of [1, 144, 64]' in text


# ---------------------------------------------------------------- any size


@pytest.mark.parametrize('new_grid', [(4, 6), (8, 12), (5, 3), (9, 13), (1, 20)])
def test_a_tiled_table_repeats(new_grid: tuple[int, int]):
    table = torch.randn(1, 4 * 6, 2, dtype=torch.float64, requires_grad=True)
    tiled = tile_grid(table, (4, 6), new_grid)
    rows = [(y % 4) * 6 + x % 6 for y in range(new_grid[0]) for x in range(new_grid[1])]
    assert torch.equal(tiled, table[:, rows])
    tiled.sum().backward()
    counts = torch.bincount(torch.tensor(rows), minlength=24)
    assert torch.equal(table.grad[0, :, 0], counts.double())


@torch.no_grad()
def test_maps_of_images_that_are_not_square():
    """Whatever the size, window blocks see each window of it as an image of its own."""
    model = small(out_indices=(0,))
    image = torch.randn(1, 3, 14 * 8, 14 * 12 + 5)
    (whole,) = model(image)
    assert whole.shape == (1, 64, 8, 12)
    for top in range(0, 8, WINDOW):
        for left in range(0, 12, WINDOW):
            pixels = image[
                :, :, 14 * top : 14 * (top + WINDOW), 14 * left : 14 * (left + WINDOW)
            ]
            part = whole[:, :, top : top + WINDOW, left : left + WINDOW]
            assert relative_error(model(pixels)[0], part) < 1e-5


def test_every_parameter_has_a_gradient():
    model = small().train()
    model(torch.randn(2, 3, 14 * 5, 14 * 7))[0].square().sum().backward()
    without = [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.any()
    ]
    assert not without


@pytest.mark.slow
@torch.no_grad()
def test_export_with_dynamic_sizes():
    model = RoPEViT(dict(SMALL, depth=2, window_block_indexes=(0,))).eval()
    height, width = (
        14 * torch.export.Dim(name, min=5, max=100) for name in ('rows', 'columns')
    )
    image = torch.randn(1, 3, 14 * 9, 14 * 6)
    exported = torch.export.export(
        model, (image,), dynamic_shapes=({2: height, 3: width},)
    )
    for rows, columns in (
        (5, 13),
        (8, 8),
        (16, 7),
    ):  # patches; two windows or more a side
        image = torch.randn(1, 3, 14 * rows, 14 * columns)
        assert relative_error(exported.module()(image)[0], model(image)[0]) < 1e-5


# ---------------------------------------------------------------- arguments


def test_windows_of_the_architecture_can_be_replaced():
    model = RoPEViT(SMALL, window_size=8, window_block_indexes=(-1,))
    assert model.window_size == (8, 8) and model.window_blocks == [3]
    assert RoPEViT(SMALL).window_blocks == [0, 2]


if __name__ == '__main__':
    import transformers

    four_blocks = dict(RoPEViT.ARCHS['sam3'], depth=4, window_block_indexes=(0, 2))
    for side in (50, 72, 80):
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            print(
                side,
                f'{largest_error(transformers, four_blocks, side, Path(folder)):.1e}',
            )
