"""Key layouts: tables of keys, and what they do to a state dict.

Letters: L blocks, h heads, P rotated channel pairs of a head, N tokens of the grid, C channels.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .errors import CheckpointError, listed, shortened

StateDict = dict[str, Tensor]
# From the pattern of a key (the whole of it; the first that matches counts) to the new key, or to
# None: dropped on purpose. Keys that no pattern matches keep their names.
# {q,k} in a new key: the tensor is split into equal chunks along its first axis.
# {q,k} in a pattern: the tensors of these keys are concatenated, in this order.
# * in a new key: the number of a block; frequencies of all blocks, [2, L, h, P], become [2, h, P]
# of each. The opposite is ``stack_blocks``.
KeyTable = dict[str, str | None]

VIT_BLOCK = r'blocks\.\d+\.attn\.qkv\.weight'
SWIN_BLOCK = r'layers\.(\d+)\.blocks\.(\d+)\.attn\.qkv\.weight'
VIT_FREQS = r'blocks\.([^.]+)\.attn\.rope\.freqs'
ADAPTER = r'.+\.lora\.(down|up)'
SWIN_FREQS = r'layers\.([^.]+)\.blocks\.([^.]+)\.attn\.rope\.freqs'


@dataclass(frozen=True)
class Layout:
    """The names of the weights in published checkpoints of one kind.

    Attributes:
        name: for messages.
        signs: patterns; a state dict has this layout if each matches one of its keys. The first
            matches a weight of each block.
        keys: table from its keys to ours.
        tensors: from the pattern of a key to a function that returns the tensor in our shape.
        has_cls_pos_embed: its pos_embed may begin with the position of the class token, see
            ``fold_cls_pos_embed``.
        test: another condition on its state dicts.
        has_reference: the grid of its pos_embed is the reference grid of its coordinates.
    """

    name: str
    signs: tuple[str, ...]
    keys: KeyTable
    tensors: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    has_cls_pos_embed: bool = False
    test: Callable[[StateDict], bool] | None = None
    has_reference: bool = False

    def fits(self, weights: StateDict) -> bool:
        """True if a state dict has this layout."""
        signs = all(has(weights, sign) for sign in self.signs)
        return signs and (self.test is None or self.test(weights))

    def to_ours(self, weights: StateDict) -> StateDict:
        """Weights of this layout in ours; the argument is not changed.

        Raises:
            CheckpointError: they cannot be converted.
        """
        ours = renamed({key: self.reshaped(key, x) for key, x in weights.items()}, self.keys)
        return fold_cls_pos_embed(ours) if self.has_cls_pos_embed else ours

    def reshaped(self, key: str, tensor: Tensor) -> Tensor:
        """A weight in our shape, under its own key."""
        pattern, _ = find_row(key, self.tensors)
        with shape_errors(key):
            return self.tensors[pattern](tensor) if pattern else tensor


def has(keys: Iterable[str], pattern: str) -> bool:
    """True if the pattern matches the whole of a key."""
    return any(re.fullmatch(pattern, key) for key in keys)


def new_keys(key: str, table: KeyTable) -> list[str]:
    """The new keys that a table gives a key: one or several; none if the table drops it."""
    pattern, match = find_row(key, table)
    if match is None:
        return [key]
    new = table[pattern]
    return [] if new is None else expand_braces(match.expand(new))


def find_row(key: str, table: Iterable[str]) -> tuple[str, re.Match | None]:
    """The first pattern of a table that matches a key, and the match; '' and None without one."""
    for pattern in table:
        for alternative in expand_braces(pattern):
            if match := re.fullmatch(alternative, key):
                return pattern, match
    return '', None


def expand_braces(key: str) -> list[str]:
    """'a.{q,k}' is 'a.q' and 'a.k'."""
    match = re.fullmatch(r'(.*)\{(.+)\}(.*)', key)
    return [match[1] + name + match[3] for name in match[2].split(',')] if match else [key]


@contextmanager
def shape_errors(key: str) -> Iterator[None]:
    """Within this context, an error of torch becomes a CheckpointError that names a key."""
    try:
        yield
    except (IndexError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f'{shortened(key)} does not have the shape of this layout ({error})'
        ) from error


def renamed(weights: StateDict, table: KeyTable) -> StateDict:
    """The weights under the names of a table, split and concatenated as it says.

    Raises:
        CheckpointError: a name has more tensors than the table gives it, or tensors do not have the
            shapes of the layout.
    """
    sources: dict[str, StateDict] = defaultdict(dict)
    for key, tensor in weights.items():
        with shape_errors(key):
            chunks = split(tensor, new_keys(key, table))
        for name, chunk in chunks.items():
            sources[name][key] = chunk
    return {name: concatenated(name, chunks, table) for name, chunks in sources.items()}


def split(tensor: Tensor, names: list[str]) -> StateDict:
    """A tensor under its new names: itself, equal chunks of it, or a slice for each block."""
    if len(names) == 1 and '*' in names[0]:
        return {names[0].replace('*', str(i)): x for i, x in enumerate(tensor.unbind(1))}
    if len(names) <= 1:
        return dict.fromkeys(names, tensor)
    return dict(zip(names, tensor.tensor_split(len(names)), strict=True))


def concatenated(name: str, chunks: StateDict, table: KeyTable) -> Tensor:
    """The tensors that a table gives one name, concatenated in the order of its pattern.

    Args:
        chunks: the tensors by their old keys.
    """
    patterns = {find_row(key, table)[0] for key in chunks}
    alternatives = expand_braces(patterns.pop())
    if patterns or len(chunks) > len(alternatives):
        raise CheckpointError(
            f'the checkpoint has {shortened(name)} more than once: {listed(sorted(chunks))}'
        )
    if len(alternatives) == 1:
        return next(iter(chunks.values()))
    keys = [key for pattern in alternatives for key in chunks if re.fullmatch(pattern, key)]
    with shape_errors(name):
        return torch.cat([chunks[key] for key in keys])


def stack_blocks(weights: StateDict, name: str) -> StateDict:
    """Weights with the frequencies of all blocks of a ViT, [2, h, P] each, in one [2, L, h, P].

    Raises:
        CheckpointError: a block has none.
    """
    freqs = {key: tensor for key, tensor in weights.items() if re.fullmatch(VIT_FREQS, key)}
    if not freqs:
        return weights
    blocks = [key for key in weights if re.fullmatch(VIT_BLOCK, key)]
    keys = [f'blocks.{index}.attn.rope.freqs' for index in range(len(blocks))]
    if set(keys) != set(freqs):
        raise CheckpointError(
            f'frequencies of {len(blocks)} blocks cannot be put into one tensor: the checkpoint '
            f'has {listed(freqs)}'
        )
    others = {key: tensor for key, tensor in weights.items() if key not in freqs}
    return {**others, name: torch.stack([freqs[key] for key in keys], 1)}


def refuse_adapters(weights: StateDict) -> None:
    """Raise CheckpointError if weights have adapters, which no published layout has.

    The weights alone do not tell the scale of an adapter (``alpha``), so it cannot be merged here.
    """
    if adapters := [key for key in weights if re.fullmatch(ADAPTER, key)]:
        raise CheckpointError(
            f'these weights have adapters (LoRA), {listed(adapters)}: load them into their model, '
            'call backbone.merge_lora() and save its state_dict'
        )


def is_square(number: int) -> bool:
    """True if a number is the square of an integer."""
    return number >= 0 and math.isqrt(number) ** 2 == number


def has_cls_pos_embed(weights: StateDict) -> bool:
    """True if pos_embed is [1, 1 + N, C] with the class token's position first, N a square."""
    token, positions = weights.get('cls_token'), weights.get('pos_embed')
    if token is None or positions is None or positions.ndim != 3:
        return False
    tokens = positions.shape[1]
    one_more = is_square(tokens - 1) and not is_square(tokens)
    return one_more and positions[:, :1].shape == token.shape


def fold_cls_pos_embed(weights: StateDict) -> StateDict:
    """Weights whose class token contains its position: exact, as nothing else is added to it."""
    if not has_cls_pos_embed(weights):
        return weights
    place, positions = weights['pos_embed'].split([1, weights['pos_embed'].shape[1] - 1], 1)
    return {**weights, 'cls_token': weights['cls_token'] + place, 'pos_embed': positions}
