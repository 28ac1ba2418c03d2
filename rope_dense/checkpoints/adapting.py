"""Weights in our layout as the configuration of a model needs them.

Letters: h heads, P rotated channel pairs of a head, H x W token grid, C channels.
"""

import math
import re
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..backbones.base import Backbone
from ..rope import AxialRoPE, GridRoPE, MixedRoPE
from ..utils.sizes import Size
from .channels import Channels, adapt_channels, channels_text, rgb_keys
from .errors import CheckpointError
from .incompatible import IncompatibleKeys, compare_weights
from .keys import StateDict
from .publishers.dinov3 import PERIODS
from .tables import find_grid, has_entries_like, resize_table, table_grid

# Parts that a configuration may leave out.
OPTIONAL = re.compile(r'cls_token|norm\d*\.(weight|bias)')
BIAS = re.compile(r'blocks\.\d+\.attn\.qkv\.[qkv]_bias')
LAYER_SCALE = re.compile(r'blocks\.\d+\.gamma_[12]')
JOINED_BIAS = re.compile(r'(blocks\.\d+\.attn\.qkv\.)bias')
OUTPUT_NORM = re.compile(r'norm(\d+)\.(weight|bias)')
STAGE = re.compile(r'layers\.(\d+)\.')
# Parts that no pre-training has; a backbone keeps its initial values, which change nothing.
KEEP_INIT = (
    OUTPUT_NORM,
    re.compile(r'blocks\.\d+\.attn\.rel_pos_[hw]'),
    re.compile(r'.+\.lora\.(down|up)'),
    re.compile(r'.+\.num_batches_tracked'),  # which nothing of a backbone depends on
)
ROUNDING = 1e-5  # radians per patch; published axial frequencies have 4e-8
BFLOAT16 = 2**-8  # relative; DINOv3's published periods are rounded to bfloat16


@dataclass
class LoadReport:
    """Changes of the weights of a checkpoint, and what was assumed of them, for the log."""

    assumed: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    adapted: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    grid: Size | None = None  # of the pre-training, if a table of positions shows it


def adapt(
    model: Backbone,
    weights: StateDict,
    grid: Size | None = None,
    channels: Channels | None = None,
    is_published: bool = True,
) -> tuple[StateDict, LoadReport]:
    """Weights in our layout as the configuration of the model needs them, and their changes.

    Args:
        grid: see ``find_grid``.
        channels: see ``adapt_channels``; None: the weights have the model's.
        is_published: whether the file is a publisher's, not of this package.

    Raises:
        CheckpointError: see ``find_grid`` and ``adapt_channels``.
    """
    expected, report = model.state_dict(), LoadReport()
    weights = join_biases(weights, expected)
    computed = computed_freqs(model, weights)
    adapted = {}
    for key, weight in weights.items():
        is_spare = key not in expected and is_droppable(key, expected, weights)
        if is_spare or key in computed:
            report.dropped.append(key)
        else:
            adapted[key] = weight
    if channels is not None:
        convolutions = rgb_keys(model, adapted)
        keys = adapt_channels(model, adapted, channels, may_be_adapted=not is_published)
        for key in convolutions:
            if key in keys:
                report.adapted.append(f'{key} to {channels_text(channels)}')
            else:
                report.assumed.append(
                    f"{key}, saved by this package, to be of the model's three channels"
                )
    resize_tables(model, adapted, grid, report)
    for pattern in KEEP_INIT:
        if not any(map(pattern.fullmatch, weights)):
            report.new += filter(pattern.fullmatch, expected)
    if are_classifier_weights(weights):
        norms = filter(OUTPUT_NORM.fullmatch, expected)
        report.new += [key for key in norms if key not in adapted]
    ropes = embeddings(model)
    if ropes.keys().isdisjoint(weights):
        for key, rope in ropes.items():
            # Learned axial frequencies start at the axial values.
            if isinstance(rope, AxialRoPE) and key in expected:
                report.new.append(key)
    for key in report.new:
        adapted[key] = expected[key]
    return adapted, report


def resize_tables(
    model: Backbone, adapted: StateDict, grid: Size | None, report: LoadReport
) -> None:
    """Resize the position tables of adapted weights, in place."""
    expected, tables = model.state_dict(), model.position_tables()
    if grid is not None and not tables:
        raise CheckpointError(f'grid={grid}: the model has no position tables')
    for key, new in tables.items():
        if key not in adapted or not has_entries_like(adapted[key], expected[key]):
            continue
        old = find_grid(key, adapted[key], new, grid)
        if old is None:
            continue
        if key == 'pos_embed':
            report.grid = old
        if old != new:
            adapted[key] = resize_table(adapted[key], old, new)
            report.resized.append(key)
        if grid is None and new[0] != new[1]:
            height, width = table_grid(key, old)
            report.assumed.append(f'{key} over {height} x {width}')


def find_incompatible(model: Backbone, adapted: StateDict) -> IncompatibleKeys:
    """The keys of adapted weights that do not fit a model."""
    found = compare_weights(model.state_dict(), adapted)
    return replace(found, axial=axial_keys(model, adapted))


def can_load(model: Backbone, weights: StateDict) -> bool:
    """True if weights in our layout fit a model, which keeps initial values of norms only."""
    adapted, report = adapt(model, weights)
    has_the_rest = all(map(OUTPUT_NORM.fullmatch, report.new))
    return has_the_rest and not find_incompatible(model, adapted)


def are_classifier_weights(weights: StateDict) -> bool:
    """True if only the last stage has an output norm, as in our classifiers."""
    stages = {int(match[1]) for match in map(STAGE.match, weights) if match}
    norms = {int(match[1]) for match in map(OUTPUT_NORM.fullmatch, weights) if match}
    return bool(stages) and norms == {max(stages)}


def is_droppable(key: str, expected: StateDict, weights: StateDict) -> bool:
    """True if a model may go without this weight.

    It is an optional part, or it changes nothing: no tokens, biases of 0, a LayerScale of 1.
    """
    weight = weights[key]
    if key == 'reg_token':
        return 'cls_token' not in expected or not weight.numel()
    if LAYER_SCALE.fullmatch(key):
        return not weight.is_meta and bool((weight == 1).all())
    return bool(OPTIONAL.fullmatch(key) or (BIAS.fullmatch(key) and not weight.any()))


def join_biases(weights: StateDict, expected: StateDict) -> StateDict:
    """With biases of q, k and v in one tensor where the model has them so; a missing one is 0."""
    joined = dict(weights)
    for key in expected:
        match = JOINED_BIAS.fullmatch(key)
        if match is None or key in weights:
            continue
        names = [f'{match[1]}{letter}_bias' for letter in 'qkv']
        given = [name for name in names if name in joined]
        if given:
            zero = torch.zeros_like(joined[given[0]])
            joined[key] = torch.cat([joined.pop(name, zero) for name in names])
    return joined


def computed_freqs(model: Backbone, weights: StateDict) -> list[str]:
    """Keys of frequencies that the model computes itself, with the same values."""
    expected, ropes, same = model.state_dict(), embeddings(model), []
    for key, rope in ropes.items():
        stored = weights.get(key)
        if stored is None or key in expected or not stored.is_floating_point():
            continue
        freqs = rope.frequencies(torch.device('cpu')).expand(-1, rope.num_heads, -1)
        rounding = max(ROUNDING, torch.finfo(stored.dtype).eps)  # of a file in half
        has_shape = stored.shape == freqs.shape
        if has_shape and torch.allclose(stored.float(), freqs, 0, rounding):
            same.append(key)
    with_periods = [rope for rope in ropes.values() if has_periods(rope, weights)]
    if ropes and len(with_periods) == len(ropes):
        same.append(PERIODS)
    return same


def has_periods(rope: GridRoPE, weights: StateDict) -> bool:
    """True if an embedding has the periods of the weights."""
    stored = weights.get(PERIODS)
    if stored is None or not isinstance(rope, AxialRoPE) or rope.series != 'periods':
        return False
    periods = 2 * math.pi / rope.frequency_source().of_axis().flatten()
    has_shape = stored.shape == periods.shape
    return has_shape and torch.allclose(stored.float(), periods, BFLOAT16, 0)


def embeddings(model: Backbone) -> dict[str, GridRoPE]:
    """The rotary embeddings of the model, under the keys of their frequencies."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, GridRoPE):
            found[f'{name}.freqs'] = module
    return found


def axial_keys(model: Backbone, weights: StateDict) -> list[str]:
    """Keys of axial frequencies, for a model with mixed frequencies of the same shape."""
    expected, found = model.state_dict(), []
    for key, rope in embeddings(model).items():
        if not isinstance(rope, MixedRoPE) or key not in weights:
            continue
        if weights[key].shape == expected[key].shape and is_axial(weights[key]):
            found.append(key)
    return found


def is_axial(freqs: Tensor) -> bool:
    """True if of frequencies [2, h, P] half see only x and half only y."""
    if freqs.is_meta or freqs.ndim != 3 or len(freqs) != 2 or freqs.shape[-1] < 4:
        return False
    (x, y), half = freqs.float(), freqs.shape[-1] // 2
    return bool(max(x[..., half:].abs().max(), y[..., :half].abs().max()) <= ROUNDING)


def check_reference(model: Backbone, weights: StateDict, grid: Size | None) -> None:
    """Raise CheckpointError unless the model's reference grid is the grid (H, W) of pos_embed.

    Nothing else tells a checkpoint from one of another image size: pos_embed can be resized.
    """
    positions = weights['pos_embed']
    side = math.isqrt(positions.shape[-2]) if positions.ndim > 1 else 0
    height, width = grid or (side, side)
    for rope in embeddings(model).values():
        reference = rope.coordinates.reference
        if isinstance(reference, tuple) and reference != (height, width):
            raise CheckpointError(
                f"its positions run over {height} x {width} patches, the model's "
                f'over {reference[0]} x {reference[1]} (reference of the coordinates of rope): '
                'take the arch of this checkpoint'
            )
