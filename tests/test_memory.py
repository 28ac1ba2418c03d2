"""What a training step allocates: sizes of all results of all operations, forward and backward."""

import gc
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rope_dense.backbones import layers
from rope_dense.backbones.swin import RoPESwin
from rope_dense.backbones.vit import RoPEViT


class LargestResult(TorchDispatchMode):
    """The elements of the largest tensor that any operation returns, views left out."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None) -> object:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and not tensor._is_view():
                memory = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.elements = max(self.elements, memory)
        return out


def largest_result(model: torch.nn.Module, image: Tensor) -> int:
    """Elements of the largest result of a training step."""
    with LargestResult() as largest:
        sum(out.square().mean() for out in model(image)).backward()
    return largest.elements


def tensors() -> dict[int, Tensor]:
    """All that Python knows of, by identity."""
    return {id(found): found for found in gc.get_objects() if type(found) is Tensor}


SWIN = dict(arch=dict(embed_dims=16, depths=(2, 2), num_heads=(1, 2)), out_indices=(0, 1))


def vit(**arguments: object) -> RoPEViT:
    arch = dict(embed_dims=16, depth=1, num_heads=1)
    return RoPEViT(arch, patch_size=8, img_size=160, with_cls_token=False, **arguments)


@pytest.mark.parametrize('cls', ['MixedRoPE', 'AxialRoPE'])
def test_a_global_block_makes_no_tensor_of_tokens_by_tokens(cls: str):
    num_tokens = 20 * 20
    image = torch.randn(1, 3, 160, 160)
    assert largest_result(vit(rope=dict(type=cls)), image) < num_tokens**2
    baseline = vit(rope=None, use_rel_pos=True)  # its bias is such a tensor
    assert largest_result(baseline, image) >= num_tokens**2


def test_shifted_windows_make_no_tensor_of_windows_by_tokens_by_tokens():
    arch = dict(embed_dims=8, depths=(2,), num_heads=(1,))
    image = torch.randn(1, 3, 4 * 36, 4 * 44)
    num_windows, num_tokens = 4 * 5, 10 * 10  # the grid of 36 x 44 is padded to whole windows
    model = RoPESwin(arch, window_size=10, out_indices=(0,), drop_path_rate=0.0)
    assert largest_result(model, image) < num_windows * num_tokens**2


@pytest.mark.parametrize('cls', ['MixedRoPE', 'AxialRoPE'])
@pytest.mark.parametrize('side', [112, 160])
@pytest.mark.parametrize('build', [vit, partial(RoPESwin, **SWIN)], ids=['vit', 'swin'])
def test_training_keeps_no_more_than_without_rotation(
    build: Callable[..., torch.nn.Module], side: int, cls: str
) -> None:
    """Bytes kept for backward, each piece of memory once; tables are what differs."""
    image = torch.randn(1, 3, side, side)

    def kept(rope: dict | None) -> int:
        storages = {}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage
            return tensor

        model = build(rope=rope)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            before = tensors()
            outs = model(image)
        now = tensors()
        for new in now.keys() - before.keys():  # tables, which autograd does not save
            keep(now[new])
        assert outs[0].requires_grad
        return sum(storage.nbytes() for storage in storages.values())

    assert kept(dict(type=cls)) <= 1.01 * kept(None)


@pytest.mark.parametrize(
    'model',
    [
        RoPESwin(**SWIN),
        RoPESwin(rope=None, use_rpb=True, mask_padding=True, **SWIN),
        vit(),
        RoPEViT('eva02_tiny', img_size=160),
    ],
    ids=['swin', 'swin with bias', 'vit', 'gated vit'],
)
def test_parts_change_nothing(model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    model.eval()
    image = torch.randn(2, 3, 160, 196)
    mlp = next(module for module in model.modules() if hasattr(module, 'forward_tokens'))
    seen = []
    mlp.fc2.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].numel()))

    def outs_and_gradients() -> list[Tensor]:
        seen.clear()
        outs = model(image)
        weights = [torch.linspace(-1, 1, out.numel()).view(out.shape) for out in outs]
        loss = sum((out * weight).sum() for out, weight in zip(outs, weights, strict=True))
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        return [*outs, *torch.autograd.grad(loss, trained)]

    whole = outs_and_gradients()
    assert len(seen) == 1
    monkeypatch.setattr(layers, 'PART', 3000)
    for part, expected in zip(outs_and_gradients(), whole, strict=True):
        assert (part - expected).norm() <= 1e-5 * expected.norm()
    assert len(seen) > 3 and max(seen) <= 4 * 3000


@pytest.mark.parametrize('windows', [(), (0, 1)], ids=['global', 'windows'])
@pytest.mark.parametrize('final_norm', [False, True])
@pytest.mark.parametrize('use_ape', [False, True])
def test_channels_of_vit_tokens_lie_side_by_side(
    windows: tuple[int, ...], final_norm: bool, use_ape: bool
):
    arch = dict(embed_dims=16, depth=3, num_heads=1)
    model = RoPEViT(
        arch,
        patch_size=8,
        img_size=160,
        with_cls_token=False,
        use_ape=use_ape,
        final_norm=final_norm,
        window_block_indexes=windows,
        out_indices=(0, 2),
    )
    check_layout(model, list(model.blocks))


def test_channels_of_swin_tokens_lie_side_by_side():
    model = RoPESwin(**SWIN)
    check_layout(model, [block for stage in model.layers for block in stage.blocks])


def check_layout(model: torch.nn.Module, blocks: list[torch.nn.Module]) -> None:
    """What blocks take and give is contiguous, forward and backward, and so are the maps."""
    seen = []

    def look(_: torch.nn.Module, *sides: tuple[Tensor, ...] | Tensor) -> None:
        tokens = [side[0] if isinstance(side, tuple) else side for side in sides]
        seen.extend(x.is_contiguous() for x in tokens)

    for block in blocks:
        block.register_forward_hook(look)
        block.register_full_backward_hook(look)
    outs = model(torch.randn(1, 3, 160, 160))
    assert all(out.is_contiguous() for out in outs)
    torch.autograd.backward(outs, [torch.randn_like(out) for out in outs])
    assert len(seen) == 4 * len(blocks) and all(seen)


def test_a_map_has_the_values_and_the_gradients_of_a_permutation():
    tokens = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.equal(layers.to_map(tokens), tokens.permute(0, 3, 1, 2))
    assert torch.autograd.gradcheck(layers.to_map, tokens)
    assert torch.autograd.gradgradcheck(layers.to_map, tokens)
