"""Strict loading of a checkpoint into one of our backbones.

Letters: h heads, P channel pairs of a head, L blocks, H x W token grid, C channels.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import torch
from mmengine.logging import print_log
from torch import Tensor, nn

from ..backbones.layers import resize_grid
from ..rope import AxialRoPE, MixedRoPE, RotaryEmbedding
from ..rope.frequencies import axis_frequencies
from .dinov3 import PERIODS
from .errors import CheckpointError
from .files import read_checkpoint, select_weights
from .hints import ROUNDING, Misfit, axial_theta, hints, listed
from .keys import StateDict
from .layouts import OURS, Layout, find_layout
from .sources import fetch
from .timm_vit import is_square

# Parts that only some configurations have a use for.
OPTIONAL = re.compile(r'cls_token|norm\d*\.(weight|bias)')
BIAS = re.compile(r'blocks\.\d+\.attn\.[qkv]_bias')
# Parts that no pre-training has; a backbone starts with values that change nothing.
NEW = (re.compile(r'norm\d+\.(weight|bias)'), re.compile(r'blocks\.\d+\.attn\.rel_pos_[hw]'))
BIAS_TABLE = '.relative_position_bias_table'
BFLOAT16 = 2**-8  # relative; DINOv3's published periods are rounded to bfloat16


@dataclass
class Notes:
    """What was done to the weights of a checkpoint, for the log."""

    dropped: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


def load_pretrained(model: nn.Module, checkpoint: str, prefix: str | None = None) -> None:
    """Load a published checkpoint, or one of ours, into a backbone, and log what became of it.

    The layout is recognised from the keys and converted. After that each weight of the model must
    be in the checkpoint in its shape, and nothing may be left over, but for these. A class token
    and norm layers that the configuration has no use for are dropped, and so are registers where
    it wants no prefix tokens at all, and biases of q, k and v that are zero; output norms of Swin
    and ViTDet's relative positions, which no pre-training has, keep their initial values. Position
    embeddings and relative position bias tables are resized (bicubic) to the image size and the
    window of the model. Frequencies that the model computes must be those of the checkpoint, if it
    has them; learned axial ones start at the axial values, if it has none. Checked with random
    weights in all published layouts in tests/test_checkpoint_layouts.py and
    tests/test_checkpoint_families.py.

    Args:
        model: a ``RoPEViT`` or ``RoPESwin``; unchanged if anything fails.
        checkpoint: see ``fetch``.
        prefix: see ``select_weights``.

    Raises:
        CheckpointError: the checkpoint cannot be had or read, or it does not fit the model.
    """
    weights, layout = open_weights(checkpoint, prefix)
    if shapes(weights) == shapes(model.state_dict()):
        layout = OURS  # whatever else its shapes could mean
    try:
        ours = layout.to_ours(weights)
    except CheckpointError as error:
        raise CheckpointError(f'{checkpoint} ({layout.name}): {error}') from error
    if layout.own_reference:
        check_reference(model, ours, checkpoint)
    fitted, notes = fit(model, ours)
    if misfit := compare(model, fitted):
        advice = ''.join(f'\n  -> {hint}' for hint in hints(model, ours, misfit))
        raise CheckpointError(
            f'{checkpoint} ({layout.name}) does not fit {type(model).__name__}:\n{misfit}{advice}'
        )
    model.load_state_dict(fitted)
    notes.dropped[:0] = [key for key in weights if layout.drops(key)]
    log(model, checkpoint, layout, len(fitted) - len(notes.new), notes)


def open_weights(checkpoint: str, prefix: str | None = None) -> tuple[StateDict, Layout]:
    """The weights of a backbone as a checkpoint names them, and their layout.

    Raises:
        CheckpointError: the checkpoint cannot be had or read, or its layout is not known.
    """
    contents = read_checkpoint(fetch(checkpoint), checkpoint)
    weights = select_weights(contents, prefix, checkpoint)
    return weights, find_layout(weights, checkpoint)


def shapes(weights: StateDict) -> dict[str, torch.Size]:
    return {key: tensor.shape for key, tensor in weights.items()}


def check_reference(model: nn.Module, weights: StateDict, checkpoint: str) -> None:
    """Whether positions run over the grid of the checkpoint: nothing else would tell it from one
    of another image size, whose position embedding can be resized.

    Raises:
        CheckpointError: they do not.
    """
    rope = embeddings(model).get('rope.freqs')
    side = math.isqrt(weights['pos_embed'].shape[-2])
    wanted = rope and rope.coordinates.reference_grid
    if wanted and wanted != (side, side):
        raise CheckpointError(
            f'{checkpoint}: its positions run over {side} x {side} patches, those of the model '
            f'over {wanted[0]} x {wanted[1]} (reference of the coordinates of rope): '
            'take the arch of this checkpoint'
        )


def fit(model: nn.Module, weights: StateDict) -> tuple[StateDict, Notes]:
    """Weights in our layout as the configuration of the model wants them."""
    own, notes = model.state_dict(), Notes()
    computed = computed_freqs(model, weights)
    for key in weights:
        if key in computed or (key not in own and is_useless(key, own, weights)):
            notes.dropped.append(key)
    fitted = {key: weights[key] for key in weights if key not in notes.dropped}
    for key, grid in tables(model).items():
        if key in fitted and can_resize(fitted[key], own[key]):
            fitted[key] = resize(fitted[key], grid)
            notes.resized.append(key)
    for pattern in NEW:
        if not any(pattern.fullmatch(key) for key in weights):
            notes.new += [key for key in own if pattern.fullmatch(key)]
    for key, rope in embeddings(model).items():  # learned ones start at the axial weights' values
        if isinstance(rope, AxialRoPE) and key in own and key not in weights:
            notes.new.append(key)
    return {**fitted, **{key: own[key] for key in notes.new}}, notes


def is_useless(key: str, own: StateDict, weights: StateDict) -> bool:
    """Whether a model without this weight can do without: it says so, or the weight is zero."""
    if key == 'reg_token':
        return 'cls_token' not in own
    return bool(OPTIONAL.fullmatch(key) or (BIAS.fullmatch(key) and not weights[key].any()))


def computed_freqs(model: nn.Module, weights: StateDict) -> list[str]:
    """Keys of frequencies that the model computes itself, to the same values."""
    own, same = model.state_dict(), []
    for key, rope in embeddings(model).items():
        if key in weights and key not in own and weights[key].is_floating_point():
            freqs = rope.frequencies(range(rope.depth), torch.device('cpu'))
            freqs = freqs.expand(-1, rope.depth, rope.num_heads, -1)  # [2, L, h, P]
            rounding = max(ROUNDING, torch.finfo(weights[key].dtype).eps)  # of a file in half
            stored = weights[key].float()
            if stored.shape == freqs.shape and torch.allclose(stored, freqs, 0, rounding):
                same.append(key)
        if isinstance(rope, AxialRoPE) and rope.series == 'periods' and PERIODS in weights:
            periods = 2 * math.pi / axis_frequencies(rope.head_dim, rope.theta, rope.series)
            stored = weights[PERIODS].float()
            if stored.shape == periods.shape and torch.allclose(stored, periods, BFLOAT16, 0):
                same.append(PERIODS)
    return same


def embeddings(model: nn.Module) -> dict[str, RotaryEmbedding]:
    """The rotary embeddings of the model, under the keys of their frequencies."""
    parts = model.named_modules()
    return {f'{name}.freqs': part for name, part in parts if isinstance(part, RotaryEmbedding)}


def tables(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Keys of the tables over positions or offsets, and the grids (H, W) that they cover."""
    grids = {}
    for key in model.state_dict():
        if key == 'pos_embed':
            grids[key] = model.grid_size
        elif key.endswith(BIAS_TABLE):
            height, width = model.get_submodule(key.removesuffix(BIAS_TABLE)).bias_window
            grids[key] = (2 * height - 1, 2 * width - 1)
    return grids


def can_resize(table: Tensor, own: Tensor) -> bool:
    """Whether only the number of rows differs, [.., H * W, C], and they are those of a square."""
    if table.ndim != own.ndim or table.shape[-1] != own.shape[-1] or table.shape == own.shape:
        return False
    return is_square(table.shape[-2])


def resize(table: Tensor, grid: tuple[int, int]) -> Tensor:
    """A table [1, H * W, C] or [H * W, C] of a square grid on another grid."""
    side = math.isqrt(table.shape[-2])
    if table.ndim == 2:
        return resize(table[None], grid)[0]
    return resize_grid(table, (side, side), grid)


def compare(model: nn.Module, weights: StateDict) -> Misfit:
    """What keeps the weights from being loaded into the model."""
    own = model.state_dict()
    both = [key for key in own if key in weights]
    return Misfit(
        missing=[key for key in own if key not in weights],
        left_over=[key for key in weights if key not in own],
        unlike={
            key: (describe(weights[key]), describe(own[key]))
            for key in both
            if weights[key].shape != own[key].shape or not weights[key].is_floating_point()
        },
        axial=[
            key
            for key, rope in embeddings(model).items()
            if isinstance(rope, MixedRoPE)
            and key in both
            and weights[key].shape == own[key].shape
            and axial_theta(weights[key]) is not None
        ],
    )


def describe(tensor: Tensor) -> str:
    kind = '' if tensor.is_floating_point() else f' {tensor.dtype}'
    return f'{list(tensor.shape)}{kind}'


def log(model: nn.Module, checkpoint: str, layout: Layout, num_tensors: int, notes: Notes) -> None:
    parts = [
        f'{type(model).__name__}: {num_tensors} tensors from {checkpoint} ({layout.name})',
        *(f'{what} {listed(keys)}' for what, keys in vars(notes).items() if keys),
    ]
    print_log('; '.join(parts), logger='current')
