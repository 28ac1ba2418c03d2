"""Tensors of a training step: saved, allocated, made only once, and the layout of gradients."""

import gc
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helpers.pairwise import pairwise
from helpers.saved_tensors import saved, size_of, tensors
from rope_dense.backbones.layers import to_map
from rope_dense.backbones.nat import RoPENAT
from rope_dense.backbones.swin import RoPESwin
from rope_dense.backbones.vit import RoPEViT
from rope_dense.utils import memo

AXIAL, MIXED = dict(type='AxialRoPE'), dict(type='MixedRoPE')
ROPES = {
    'axial': AXIAL,
    'mixed': MIXED,
    'learned axial': dict(AXIAL, learned=True),
    'mixed, half': dict(MIXED, pair_layout='half'),
}
C, DEPTH, HEADS = 64, 3, 2


def vit(**options: object) -> RoPEViT:
    """20 x 20 tokens for an image of 160 pixels."""
    arch = dict(embed_dims=C, depth=DEPTH, num_heads=HEADS)
    return RoPEViT(
        arch, patch_size=8, img_size=160, **{'with_cls_token': False, **options}
    )


def swin(**options: object) -> RoPESwin:
    arch = dict(embed_dims=C, depths=(2, 2), num_heads=(2, 4))
    return RoPESwin(arch, out_indices=(0, 1), **options)


def nat(**options: object) -> RoPENAT:
    arch = dict(embed_dims=C, depths=(2, 2), num_heads=(2, 4))
    return RoPENAT(arch, **{'kernel_size': 5, 'out_indices': (0, 1), **options})


MODELS = {
    'vit': vit,
    'vit with class token': partial(vit, with_cls_token=True),
    'vit in windows': partial(vit, window_block_indexes=(0, 2), window_size=7),
    'vit in windows with a class token': partial(
        vit, window_block_indexes=(0, 2), window_size=7, with_cls_token=True
    ),
    'swin': swin,
}


@pytest.fixture(scope='module', autouse=True)
def few_objects() -> Iterator[None]:
    """Hide from ``gc.get_objects`` what imports left, about a million objects."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


# ---------------------------------------------------------------- saved for backward


@pairwise(rope=ROPES, side=[112, 160], build=MODELS)
def test_training_saves_no_more_than_without_rotation(
    build: Callable[..., nn.Module], side: int, rope: dict
):
    image = torch.randn(1, 3, side, side)
    rotated, plain = (size_of(saved(build(rope=of), image)) for of in (rope, None))
    assert rotated <= 1.03 * plain


def test_learned_angles_of_each_block_are_all_that_is_saved_beside():
    image, num_tokens = torch.randn(1, 3, 160, 160), 20 * 20
    rotated, plain = (size_of(saved(vit(rope=rope), image)) for rope in (MIXED, None))
    angles, positions = (
        num_tokens * C // 2,
        num_tokens * 2,
    )  # positions are those of all blocks
    assert 0 < rotated - plain <= 4 * (DEPTH * angles + positions)


def test_fixed_angles_are_saved_once_for_all_blocks():
    image, num_tokens = torch.randn(1, 3, 160, 160), 20 * 20
    rotated, plain = (size_of(saved(vit(rope=rope), image)) for rope in (AXIAL, None))
    angles = num_tokens * C // HEADS // 2
    assert 0 < rotated - plain <= 4 * 3 * angles  # with their cosines and sines


@pytest.mark.parametrize('rope', [None, *ROPES.values()], ids=['none', *ROPES])
@pytest.mark.parametrize('window_size', [None, 4, 7])
def test_queries_keys_and_values_are_saved_once(
    rope: dict | None, window_size: int | None
):
    """As attention gets them; the projection itself is not."""
    windows = dict(window_block_indexes=range(DEPTH), window_size=window_size)
    model = vit(rope=rope, **(windows if window_size else {}))
    found = saved(model, torch.randn(1, 3, 160, 160)).values()
    side = -(-20 // window_size) * window_size if window_size else 20  # with padding
    sizes = Counter(tensor.untyped_storage().nbytes() // 4 for tensor in found)
    assert sizes[3 * C * side**2] == DEPTH
    if side != 20:
        assert sizes[3 * C * 20**2] == 0


@pytest.mark.parametrize('with_cp', [False, True])
@pytest.mark.parametrize('build', MODELS.values(), ids=MODELS)
def test_a_frozen_backbone_keeps_nothing(
    build: Callable[..., nn.Module], with_cp: bool
):
    """Neither tensors nor a graph; a head behind it keeps its own alone."""
    model, kept = build(rope=MIXED, frozen_stages='all', with_cp=with_cp).train(), []
    image = torch.randn(1, 3, 112, 112)
    model(image)
    with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda tensor: tensor):
        before = tensors()
        outs = model(image)
        new = tensors().keys() - before.keys()
    assert not kept and not any(out.requires_grad for out in outs)
    assert new == {id(out) for out in outs}


# ---------------------------------------------------------------- made only once


class Operations(TorchDispatchMode):
    """Calls of each operation, and elements of the largest result that is no view."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.largest = 0

    def __torch_dispatch__(
        self, func: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        out = func(*args, **(kwargs or {}))
        self.calls[func.overloadpacket.__name__] += 1
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and not tensor._is_view():
                elements = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.largest = max(self.largest, elements)
        return out


@pytest.mark.parametrize('build', MODELS.values(), ids=MODELS)
@pytest.mark.parametrize('training', [False, True])
def test_fixed_angles_and_plans_are_made_once(
    build: Callable[..., nn.Module], training: bool
):
    model, image = build(rope=AXIAL).train(training), torch.randn(1, 3, 112, 112)
    model(image)
    with Operations() as second:
        outs = model(image)
        if training:
            sum(out.square().mean() for out in outs).backward()
    assert not any(
        second.calls[name] for name in ('cos', 'sin', 'arange', 'roll', 'nonzero')
    )


def test_learned_angles_are_made_once_forward_and_their_cosines_again_backward():
    model, image = vit(rope=MIXED), torch.randn(1, 3, 112, 112)
    model(image)
    with Operations() as forward:
        loss = model(image)[0].square().mean()
    with Operations() as backward:
        loss.backward()
    assert forward.calls['cos'] == backward.calls['cos'] == DEPTH
    assert not forward.calls['arange']


def test_all_blocks_share_fixed_angles():
    model, seen = vit(rope=AXIAL), []
    for block in model.blocks:
        block.attn.rope.register_forward_hook(lambda _, inputs, out: seen.append(out))
    for _ in range(2):
        model(torch.randn(2, 3, 160, 160))
    assert len(seen) == 2 * DEPTH and all(rotary is seen[0] for rotary in seen)


@pytest.mark.parametrize('rope', [AXIAL, MIXED])
def test_a_global_block_makes_no_tensor_of_tokens_by_tokens(rope: dict):
    num_tokens = 20 * 20

    def largest(**options: object) -> int:
        arch = dict(embed_dims=16, depth=1, num_heads=1)
        model = RoPEViT(
            arch, patch_size=8, img_size=160, with_cls_token=False, **options
        )
        with Operations() as operations:
            model(torch.randn(1, 3, 160, 160))[0].square().mean().backward()
        return operations.largest

    assert largest(rope=rope) < num_tokens**2
    with_bias = dict(type='DecomposedBias')
    assert (
        largest(rope=None, attention=with_bias) >= num_tokens**2
    )  # its bias is such a tensor


@pytest.mark.parametrize('resize', ['bicubic', 'zeros'])
def test_a_table_of_biases_leaves_little_in_the_cache(resize: str):
    """An index of all pairs of tokens would take the memory that all plans and angles share."""
    memo.RESULTS.clear()
    attention = dict(type='TableBias', resize=resize)
    arch = dict(embed_dims=16, depth=1, num_heads=1)
    RoPEViT(arch, patch_size=4, img_size=64, attention=attention)(
        torch.randn(1, 3, 96, 128)
    )
    assert memo.RESULTS.currsize < (24 * 32) ** 2 / 8


def test_shifted_windows_make_no_tensor_of_windows_by_tokens_by_tokens():
    arch = dict(embed_dims=8, depths=(2,), num_heads=(1,))
    num_windows, num_tokens = (
        4 * 5,
        10 * 10,
    )  # the grid of 36 x 44 is padded to whole windows
    model = RoPESwin(arch, window_size=10, out_indices=(0,), drop_path_rate=0.0)
    with Operations() as operations:
        model(torch.randn(1, 3, 4 * 36, 4 * 44))[0].square().mean().backward()
    assert operations.largest < num_windows * num_tokens**2


# ---------------------------------------------------------------- layout


@pytest.mark.parametrize(
    'build, backward',
    [
        (swin, True),
        (partial(vit, use_ape=True, final_norm=True), True),
        # Without a norm behind, gradients are laid out as those of the map, channel by channel.
        (vit, False),
        (partial(vit, window_block_indexes=(0, 1), out_indices=(0, 2)), False),
    ],
)
def test_channels_of_tokens_lie_side_by_side(
    build: Callable[..., nn.Module], backward: bool
):
    """Inputs and outputs of blocks are contiguous, and so are the maps."""
    model, seen = build(), []

    def look(_: nn.Module, *sides: tuple[Tensor, ...] | Tensor) -> None:
        tokens = [side[0] if isinstance(side, tuple) else side for side in sides]
        seen.extend(x.is_contiguous() for x in tokens)

    for block in model.ordered_blocks:
        block.register_forward_hook(look)
        if backward:
            block.register_full_backward_hook(look)
    outs = model(torch.randn(1, 3, 160, 160))
    assert all(out.is_contiguous() for out in outs)
    torch.autograd.backward(outs, [torch.randn_like(out) for out in outs])
    assert len(seen) == 2 * (1 + backward) * len(model.ordered_blocks) and all(seen)


def test_a_map_has_the_values_and_the_gradients_of_a_permutation():
    tokens = torch.randn(2, 12, 5, dtype=torch.float64, requires_grad=True)
    as_map = to_map(tokens, (3, 4))
    assert torch.equal(as_map, tokens.unflatten(1, (3, 4)).permute(0, 3, 1, 2))
    assert as_map.is_contiguous()
    assert torch.autograd.gradcheck(lambda tokens: to_map(tokens, (3, 4)), tokens)


# ---------------------------------------------------------------- images of many sizes

MAX_GROWTH = 64 * 2**20


def tensor_bytes() -> int:
    """Of all tensors that are alive, shared memory once."""
    gc.collect()
    tensors = [x for x in gc.get_objects() if issubclass(type(x), Tensor)]
    storages = [tensor.untyped_storage() for tensor in tensors if not tensor.is_meta]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


@pytest.mark.slow
def test_150_sizes_take_little_more_than_50() -> None:
    """Plans and angles of all would take 120 MB; those of each kind are in utils/test_memo.py."""
    arch = dict(embed_dims=8, depths=(2, 1), num_heads=(1, 1))
    model = RoPESwin(arch, rope=AXIAL, out_indices=(1,)).train()
    memo.RESULTS.clear()  # what other tests left
    draw, before = random.Random(0), 0
    sizes = draw.sample(
        [(h, w) for h in range(256, 400, 4) for w in range(256, 400, 4)], 150
    )
    for number, size in enumerate(sizes, 1):
        sum(out.mean() for out in model(torch.zeros(1, 3, *size))).backward()
        if number == 50:
            before = tensor_bytes()
    assert tensor_bytes() - before < MAX_GROWTH


# ---------------------------------------------------------------- layout of gradients


WITH_NEIGHBOURS = MODELS | {'nat': nat, 'nat in one tile': partial(nat, kernel_size=13)}


@pytest.mark.parametrize('build', WITH_NEIGHBOURS.values(), ids=WITH_NEIGHBOURS)
def test_gradients_of_attention_have_one_layout(
    monkeypatch: pytest.MonkeyPatch, build: Callable[..., nn.Module]
) -> None:
    """PyTorch's backward on cuDNN goes wrong where queries, keys and values of one shape meet
    gradients of several layouts in a process (benchmarks/README.md, "An illegal memory access")."""
    layouts: dict[tuple, set[tuple[int, ...]]] = {}
    attend = F.scaled_dot_product_attention

    def watched(*qkv: Tensor | None, **options: object) -> Tensor:
        out = attend(*qkv, **options)
        seen = layouts.setdefault(tuple((x.shape, x.stride()) for x in qkv[:3]), set())
        out.register_hook(lambda grad: seen.add(grad.stride()))
        return out

    monkeypatch.setattr(F, 'scaled_dot_product_attention', watched)
    for batch, side in (
        (1, 112),
        (1, 104),
        (1, 109),
        (2, 160),
    ):  # padded to as many windows
        outs = build(rope=MIXED)(torch.randn(batch, 3, side, side))
        sum(out.square().mean() for out in outs).backward()
    assert layouts and all(len(seen) == 1 for seen in layouts.values()), layouts
