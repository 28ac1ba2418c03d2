"""Qwen3-VL's towers, from files as transformers' ``Qwen3VLVisionModel`` has them, against timm's
encoder with the same weights.

``python tests/checkpoints/test_qwen.py`` compares two blocks of the real widths (a minute).
"""

import tempfile
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from helpers.reference import relative_error
from helpers.small_checkpoints import Weights, load, randomize, refusal, saved
from rope_dense.backbones import RoPEViT
from rope_dense.backbones.layers import resize_aligned
from rope_dense.checkpoints.publishers import TARGETS

SIDE = 7  # patches of a side of the table; the published one has 48
SMALL = dict(
    RoPEViT.ARCHS['qwen3_88m'], embed_dims=48, depth=3, num_heads=2, mlp_ratio=2.0
)
SMALL['img_size'] = 16 * SIDE
SLOW = pytest.param('qwen3_306m', marks=pytest.mark.slow)
SIZES = {
    name: RoPEViT.ARCHS[name] for name in ('qwen3_88m', 'qwen3_306m', 'qwen3_416m')
}
GRIDS = [(SIDE, SIDE), (6, 10), (4, 6), (1, 9)]
PREFIX = 'model.visual'


def hidden_dims(arch: dict) -> int:
    return round(arch['embed_dims'] * arch.get('mlp_ratio', 4.0))


def published(transformers: ModuleType, arch: dict) -> nn.Module:
    """transformers' tower of an architecture, with the projectors of the language model."""
    config = transformers.models.qwen3_vl.Qwen3VLVisionConfig(
        depth=arch['depth'],
        hidden_size=arch['embed_dims'],
        num_heads=arch['num_heads'],
        intermediate_size=hidden_dims(arch),
        num_position_embeddings=(arch['img_size'] // 16) ** 2,
        out_hidden_size=32,
        deepstack_visual_indexes=[0],
    )
    return transformers.models.qwen3_vl.modeling_qwen3_vl.Qwen3VLVisionModel(
        config
    ).eval()


def in_file(tower: nn.Module) -> Weights:
    """The weights as in the file of the whole model."""
    visual = {f'{PREFIX}.{key}': x for key, x in tower.state_dict().items()}
    return {**visual, 'model.language_model.norm.weight': torch.ones(2)}


def timm_encoder(arch: dict, weights: Weights) -> nn.Module:
    """timm's encoder of an architecture with the weights of a whole model."""
    qwen = import_module('timm.models.qwen3_vit')
    model = qwen.Qwen3VitEncoder(
        embed_dim=arch['embed_dims'],
        depth=arch['depth'],
        num_heads=arch['num_heads'],
        mlp_ratio=hidden_dims(arch) / arch['embed_dims'],
        pos_embed_grid_size=arch['img_size'] // 16,
        out_features=32,
    )
    model.load_state_dict(qwen.checkpoint_filter_fn_encoder(weights, model))
    return model.eval()


@torch.no_grad()
def largest_error(
    transformers: ModuleType, arch: dict, grids: list, folder: Path
) -> float:
    """Relative, of the maps after all blocks, against timm's."""
    tower = published(transformers, arch)
    randomize(tower)
    theirs = timm_encoder(arch, in_file(tower))
    path = saved(in_file(tower), folder)
    ours = load(
        RoPEViT, path, PREFIX, arch=arch, out_indices=range(arch['depth'])
    ).eval()
    errors = []
    for rows, columns in grids:
        image = torch.randn(1, 3, 16 * rows, 16 * columns)
        expected = theirs.forward_intermediates(image, intermediates_only=True)
        errors += [
            relative_error(*pair) for pair in zip(ours(image), expected, strict=True)
        ]
    return max(errors)


# ---------------------------------------------------------------- parity


def test_same_maps_as_timm(timm: ModuleType, transformers: ModuleType, tmp_path: Path):
    assert largest_error(transformers, SMALL, GRIDS, tmp_path) < 2e-6


@torch.no_grad()
def test_same_tokens_as_transformers(transformers: ModuleType, tmp_path: Path):
    """Whose patches are of two equal frames, and come by 2 x 2."""
    tower = published(transformers, SMALL)
    randomize(tower)
    model = load(RoPEViT, saved(in_file(tower), tmp_path), PREFIX, arch=SMALL).eval()
    image = torch.randn(1, 3, 16 * 4, 16 * 6)
    patches = image[0].reshape(3, 2, 2, 16, 3, 2, 16)  # [3, H / 2, 2, 16, W / 2, 2, 16]
    patches = patches.permute(1, 4, 2, 5, 0, 3, 6)[..., None, :, :].expand(
        *[-1] * 5, 2, -1, -1
    )
    out = tower(
        patches.reshape(24, -1), grid_thw=torch.tensor([[1, 4, 6]])
    ).last_hidden_state
    as_map = out.view(2, 3, 2, 2, -1).permute(4, 0, 2, 1, 3).reshape(1, -1, 4, 6)
    assert relative_error(model(image)[0], as_map) < 2e-6


@pytest.mark.parametrize('name', ['qwen3_88m', SLOW, 'qwen3_416m'])
def test_every_key_and_shape_of_the_full_size(
    timm: ModuleType, transformers: ModuleType, name: str, tmp_path: Path
):
    with torch.device('meta'):
        tower = published(transformers, SIZES[name])
        path = saved(in_file(tower), tmp_path)
        ours = load(RoPEViT, path, PREFIX, arch=name)
        theirs = timm.create_model(
            f'{name.replace("qwen3", "qwen3_vit")}_enc', global_pool=''
        )
    numbers = [sum(p.numel() for p in model.parameters()) for model in (ours, theirs)]
    assert numbers[0] == numbers[1]
    assert ours.blocks[0].attn.num_heads == theirs.blocks[0].attn.num_heads
    assert ours.blocks[0].norm1.eps == theirs.blocks[0].norm1.eps == 1e-6
    assert ours.pretrain_grid == (theirs.pos_embed_grid_size,) * 2
    assert (
        tower.config.hidden_act == 'gelu_pytorch_tanh' and ours.arch.mlp == 'gelu_tanh'
    )


# ---------------------------------------------------------------- files


def test_frames_are_summed_and_rounded_once(transformers: ModuleType, tmp_path: Path):
    """Of a file in bfloat16, to float32."""
    tower = published(transformers, SMALL).bfloat16()
    model = load(RoPEViT, saved(in_file(tower), tmp_path), PREFIX, arch=SMALL)
    kernel = tower.patch_embed.proj.weight.double().sum(2)
    assert torch.equal(model.patch_embed.proj.weight, kernel.float())
    assert (kernel != kernel.bfloat16()).any()


def test_timm_s_files_and_back(
    timm: ModuleType, transformers: ModuleType, tmp_path: Path
):
    """timm's has the first projector, and its classifier a prefix."""
    weights = in_file(published(transformers, SMALL))
    theirs = timm_encoder(SMALL, weights).state_dict()
    first = load(RoPEViT, saved(weights, tmp_path), PREFIX, arch=SMALL).state_dict()
    again = load(RoPEViT, saved(theirs, tmp_path), arch=SMALL).state_dict()
    classifier = {f'encoder.{key}': x for key, x in theirs.items()}
    classifier['head.weight'] = torch.ones(2, 48)
    third = load(
        RoPEViT, saved(classifier, tmp_path), 'encoder', arch=SMALL
    ).state_dict()
    for state in (again, third):
        assert all(torch.equal(state[key], x) for key, x in first.items())
    back = TARGETS['timm'].from_ours(first)
    assert back.keys() == {key for key in theirs if not key.startswith('merger')}


def test_the_whole_file_needs_the_prefix_and_the_table_is_not_resized(
    transformers: ModuleType, tmp_path: Path
):
    path = saved(in_file(published(transformers, SMALL)), tmp_path)
    assert "Perhaps prefix='visual.'" in refusal(RoPEViT, path, arch=SMALL)
    text = refusal(RoPEViT, path, PREFIX, arch=SMALL, img_size=16 * 9)
    assert 'pos_embed [1, 49, 48] instead of [1, 81, 48]' in text


# ---------------------------------------------------------------- any size


@pytest.mark.parametrize('new_grid', [(7, 7), (3, 12), (1, 5), (1, 1)])
def test_a_table_is_resized_corner_on_corner(new_grid: tuple[int, int]):
    """Against a mean of the four neighbours, entry by entry in float64."""
    table = torch.randn(1, 5 * 4, 3)
    resized = resize_aligned(table, (5, 4), new_grid)
    as_map = table[0].double().view(5, 4, 3)

    def places(new: int, old: int) -> list[tuple[int, int, float]]:
        at = [i * (old - 1) / (new - 1) if new > 1 else 0.0 for i in range(new)]
        return [(int(x), min(int(x) + 1, old - 1), x - int(x)) for x in at]

    for y, (top, bottom, dy) in enumerate(places(new_grid[0], 5)):
        for x, (left, right, dx) in enumerate(places(new_grid[1], 4)):
            above = (1 - dx) * as_map[top, left] + dx * as_map[top, right]
            below = (1 - dx) * as_map[bottom, left] + dx * as_map[bottom, right]
            expected = (1 - dy) * above + dy * below
            actual = resized[0, y * new_grid[1] + x].double()
            torch.testing.assert_close(actual, expected, atol=1e-6, rtol=0)


@torch.no_grad()
def test_windows_and_scaling():
    """One window of the size of the grid is a global block; a window of a larger one is an image
    without the positions of the table."""
    model = RoPEViT(SMALL, window_block_indexes=(0, 1, 2), window_size=(4, 6)).eval()
    randomize(model)
    image = torch.randn(1, 3, 16 * 4, 16 * 6)
    (in_a_window,) = model(image)
    model.set_window_size(None)
    assert relative_error(in_a_window, model(image)[0]) < 1e-5
    nn.init.zeros_(model.pos_embed)
    model.set_window_size((4, 3))
    (halves,) = model(image)
    assert relative_error(halves[..., :3], model(image[..., :48])[0]) < 1e-5
    for kind in ('linear', 'by_parts', 'ntk'):
        scaled = RoPEViT(SMALL, rope_scaling=dict(type=kind)).eval()
        scaled.load_state_dict(model.state_dict())
        model.set_window_size(None)
        for factor, same in ((1, True), (2, False)):
            image = torch.randn(1, 3, 16 * SIDE * factor, 16 * SIDE * factor)
            assert (relative_error(scaled(image)[0], model(image)[0]) < 1e-5) == same


def test_every_parameter_has_a_gradient():
    model = RoPEViT(dict(SMALL, depth=2)).train()
    randomize(model)
    model(torch.randn(2, 3, 16 * 5, 16 * 7))[0].square().sum().backward()
    without = [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.any()
    ]
    assert not without


if __name__ == '__main__':
    import transformers

    from helpers.timm_import import import_timm

    import_timm()
    for name, arch in SIZES.items():
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as folder:
            two_blocks = dict(arch, depth=2)
            grids = [(48, 48), (20, 54), (1, 48)]
            print(
                name,
                f'{largest_error(transformers, two_blocks, grids, Path(folder)):.1e}',
            )
