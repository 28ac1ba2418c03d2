"""Strict loading of a checkpoint into one of our backbones.

Letters: h heads, P rotated channel pairs of a head, H x W token grid, C channels.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace

import torch
from mmengine.logging import print_log
from mmengine.registry import WEIGHT_INITIALIZERS
from torch import Tensor

from ..backbones.base import Backbone
from ..backbones.layers import resize_grid
from ..rope import AxialRoPE, GridRoPE, MixedRoPE
from ..utils.sizes import Size
from .errors import CheckpointError, listed
from .hints import ROUNDING, axial_theta, hints
from .incompatible import compare
from .keys import Layout, StateDict, is_square, new_keys
from .layouts import OURS, find_layout
from .layouts.dinov3 import PERIODS
from .reader import read_checkpoint
from .sources import Source, fetch
from .weights import select_weights

# Parts that only some configurations have a use for.
OPTIONAL = re.compile(r'cls_token|norm\d*\.(weight|bias)')
BIAS = re.compile(r'blocks\.\d+\.attn\.qkv\.[qkv]_bias')
# Parts that no pre-training has; a backbone starts with values that change nothing.
OUTPUT_NORM = re.compile(r'norm(\d+)\.(weight|bias)')
NEW = (
    OUTPUT_NORM,
    re.compile(r'blocks\.\d+\.attn\.rel_pos_[hw]'),
    re.compile(r'.+\.lora\.(down|up)'),
)
BFLOAT16 = 2**-8  # relative; DINOv3's published periods are rounded to bfloat16


@WEIGHT_INITIALIZERS.register_module()
class StrictPretrained:
    """``load_pretrained`` as an initialisation of mmengine; a backbone takes it for 'Pretrained'.

    Args:
        checkpoint, prefix: see ``load_pretrained``.
    """

    def __init__(self, checkpoint: Source, prefix: str | None = None) -> None:
        self.checkpoint, self.prefix = checkpoint, prefix

    def __call__(self, model: Backbone) -> None:
        load_pretrained(model, self.checkpoint, self.prefix)


@dataclass
class LoadReport:
    """What was done to the weights of a checkpoint, for the log."""

    dropped: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


def load_pretrained(model: Backbone, checkpoint: Source, prefix: str | None = None) -> None:
    """Load a published checkpoint, or one of ours, into a backbone, and log what became of it.

    The layout is recognised from the keys and converted. After that each weight of the model must
    be in the checkpoint in its shape, and nothing may be left over, but for these. A class token
    and norm layers that the configuration has no use for are dropped, and so are registers where
    it wants no prefix tokens at all, and biases of q, k and v that are zero; output norms of Swin,
    of which a pre-training has the last one or none, ViTDet's relative positions and adapters keep
    their values where the checkpoint has none. Position
    embeddings and relative position bias tables are resized (bicubic) to the image size and the
    window of the model. Frequencies that the model computes must be those of the checkpoint, if it
    has them; learned axial ones start at the axial values, if it has none. Checked with random
    weights in all published layouts in tests/checkpoints/test_checkpoint_layouts.py and
    tests/checkpoints/test_checkpoint_families.py.

    Args:
        model: a backbone; unchanged if anything fails.
        checkpoint: see ``fetch``.
        prefix: see ``select_weights``.

    Raises:
        CheckpointError: the checkpoint cannot be had or read, or it does not fit the model.
    """
    load_weights(model, read_weights(checkpoint, prefix), str(checkpoint))


def load_weights(model: Backbone, weights: StateDict, checkpoint: str) -> None:
    """``load_pretrained`` of weights that have been read from ``checkpoint``."""
    if are_ours(weights, model):
        layout = OURS
    else:
        layout = find_layout(weights, checkpoint, model.state_dict())
    try:
        ours = layout.to_ours(weights)
    except CheckpointError as error:
        raise CheckpointError(f'{checkpoint} ({layout.name}): {error}') from error
    if layout.has_reference and 'pos_embed' in ours:
        check_reference(model, ours, checkpoint)
    fitted, report = fit(model, ours)
    incompatible = replace(compare(model.state_dict(), fitted), axial=axial_keys(model, fitted))
    if incompatible:
        advice = ''.join(f'\n  -> {hint}' for hint in hints(model, ours, incompatible))
        raise CheckpointError(
            f'{checkpoint} ({layout.name}) does not fit {type(model).__name__}:\n'
            f'{incompatible}{advice}'
        )
    model.load_state_dict(fitted)
    report.dropped[:0] = [key for key in weights if not new_keys(key, layout.keys)]
    log(model, checkpoint, layout, len(fitted) - len(report.new), report)


def open_weights(checkpoint: Source, prefix: str | None = None) -> tuple[StateDict, Layout]:
    """The weights of a backbone as a checkpoint names them, and their layout.

    Raises:
        CheckpointError: the checkpoint cannot be had or read, or its layout is not known.
    """
    weights = read_weights(checkpoint, prefix)
    return weights, find_layout(weights, str(checkpoint))


def read_weights(checkpoint: Source, prefix: str | None) -> StateDict:
    contents = read_checkpoint(fetch(checkpoint), str(checkpoint))
    return select_weights(contents, prefix, str(checkpoint))


def are_ours(weights: StateDict, model: Backbone) -> bool:
    """Whether the weights are exactly those of such a model, or of an earlier version of it: then
    they are, whatever else their shapes could mean."""
    try:
        return shapes(OURS.to_ours(weights)) == shapes(model.state_dict())
    except CheckpointError:
        return False


def shapes(weights: StateDict) -> dict[str, torch.Size]:
    return {key: tensor.shape for key, tensor in weights.items()}


def check_reference(model: Backbone, weights: StateDict, checkpoint: str) -> None:
    """Whether positions run over the grid of the checkpoint: nothing else would tell it from one
    of another image size, whose position embedding can be resized.

    Raises:
        CheckpointError: they do not.
    """
    side = math.isqrt(weights['pos_embed'].shape[-2])
    for rope in embeddings(model).values():
        reference = rope.coordinates.reference
        if isinstance(reference, tuple) and reference != (side, side):
            raise CheckpointError(
                f'{checkpoint}: its positions run over {side} x {side} patches, those of the model '
                f'over {reference[0]} x {reference[1]} (reference of the coordinates of rope): '
                'take the arch of this checkpoint'
            )


def fit(model: Backbone, weights: StateDict) -> tuple[StateDict, LoadReport]:
    """Weights in our layout as the configuration of the model wants them."""
    expected, report = model.state_dict(), LoadReport()
    computed = computed_freqs(model, weights)
    for key in weights:
        if key in computed or (key not in expected and is_useless(key, expected, weights)):
            report.dropped.append(key)
    fitted = {key: weights[key] for key in weights if key not in report.dropped}
    for key, grid in model.position_tables().items():
        if key in fitted and can_resize(fitted[key], expected[key]):
            fitted[key] = resize(fitted[key], grid)
            report.resized.append(key)
    for pattern in NEW:
        if not any(pattern.fullmatch(key) for key in weights):
            report.new += [key for key in expected if pattern.fullmatch(key)]
    if is_of_classifier(weights):
        report.new += [key for key in expected if OUTPUT_NORM.fullmatch(key) and key not in fitted]
    ropes = embeddings(model)
    if not any(key in weights for key in ropes):  # learned axial ones start at the axial values
        axial = [key for key, rope in ropes.items() if isinstance(rope, AxialRoPE)]
        report.new += [key for key in axial if key in expected]
    return {**fitted, **{key: expected[key] for key in report.new}}, report


def is_of_classifier(weights: StateDict) -> bool:
    """Whether of all stages only the last has an output norm, as in our classifiers."""
    stages = {int(match[1]) for key in weights if (match := re.match(r'layers\.(\d+)\.', key))}
    norms = {int(match[1]) for key in weights if (match := OUTPUT_NORM.fullmatch(key))}
    return bool(stages) and norms == {max(stages)}


def is_useless(key: str, expected: StateDict, weights: StateDict) -> bool:
    """Whether a model without this weight can do without: it says so, or the weight is zero."""
    if key == 'reg_token':
        return 'cls_token' not in expected
    return bool(OPTIONAL.fullmatch(key) or (BIAS.fullmatch(key) and not weights[key].any()))


def computed_freqs(model: Backbone, weights: StateDict) -> list[str]:
    """Keys of frequencies that the model computes itself, to the same values."""
    expected, ropes, same = model.state_dict(), embeddings(model), []
    for key, rope in ropes.items():
        if key in weights and key not in expected and weights[key].is_floating_point():
            freqs = rope.frequencies(torch.device('cpu')).expand(-1, rope.num_heads, -1)
            rounding = max(ROUNDING, torch.finfo(weights[key].dtype).eps)  # of a file in half
            stored = weights[key].float()
            if stored.shape == freqs.shape and torch.allclose(stored, freqs, 0, rounding):
                same.append(key)
    if PERIODS in weights and ropes and all(has_periods(rope, weights) for rope in ropes.values()):
        same.append(PERIODS)
    return same


def has_periods(rope: GridRoPE, weights: StateDict) -> bool:
    """Whether the periods of an embedding are those of the weights."""
    if not isinstance(rope, AxialRoPE) or rope.series != 'periods':
        return False
    periods = 2 * math.pi / rope.axis_frequencies().flatten()
    stored = weights[PERIODS].float()
    return stored.shape == periods.shape and torch.allclose(stored, periods, BFLOAT16, 0)


def embeddings(model: Backbone) -> dict[str, GridRoPE]:
    """The rotary embeddings of the model, under the keys of their frequencies."""
    modules = model.named_modules()
    return {f'{name}.freqs': module for name, module in modules if isinstance(module, GridRoPE)}


def can_resize(table: Tensor, expected: Tensor) -> bool:
    """Whether only the number of rows differs, [.., H * W, C], and they are those of a square."""
    if table.ndim != expected.ndim or table.shape[-1] != expected.shape[-1]:
        return False
    return table.shape != expected.shape and is_square(table.shape[-2])


def resize(table: Tensor, grid: Size) -> Tensor:
    """A table [1, H * W, C] or [H * W, C] of a square grid on another grid."""
    side = math.isqrt(table.shape[-2])
    if table.ndim == 2:
        return resize(table[None], grid)[0]
    return resize_grid(table, (side, side), grid)


def axial_keys(model: Backbone, weights: StateDict) -> list[str]:
    """Frequencies of an axial checkpoint for a model that mixes the axes, and has room for them."""
    mixed = [key for key, rope in embeddings(model).items() if isinstance(rope, MixedRoPE)]
    expected = model.state_dict()
    return [
        key
        for key in mixed
        if key in weights
        and weights[key].shape == expected[key].shape
        and axial_theta(weights[key]) is not None
    ]


def log(
    model: Backbone, checkpoint: str, layout: Layout, num_tensors: int, report: LoadReport
) -> None:
    parts = [
        f'{type(model).__name__}: {num_tensors} tensors from {checkpoint} ({layout.name})',
        *(f'{what} {listed(keys)}' for what, keys in vars(report).items() if keys),
    ]
    print_log('; '.join(parts), logger='current')
