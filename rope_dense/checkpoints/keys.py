"""Key layouts: rows of two names, and what they do to a state dict.

A row has the name of a weight in a published file and ours; None on a side that has no such weight.
The first row that matches the whole of a key counts; a key without a row keeps its name. In names,

- ``#`` is a number, ``*`` is any text; in both names of a row, the same of them in the same order;
- ``{a,b}``, once in a name, are alternatives. In both names they belong together: the row stands
  for two or more. In one name, their tensors are equal parts of the other's along its first axis:
  from ``{q,k,v}.weight`` to ``qkv.weight`` they are concatenated, on the way back it is split;
- ``%``, in one name, is the number of a block, from 0: tensors of all blocks are stacked along the
  second axis of the other's.

``reversed_rows`` are the way back.

Letters: L blocks, h heads, P rotated channel pairs of a head, N tokens of the grid, C channels.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from .errors import CheckpointError, keys_text, short_key

StateDict = dict[str, Tensor]
Row = tuple[str | None, str | None]  # published, ours
Rows = list[Row]

NUMBER = r'(\d{1,9}|%)'  # % is in the new keys of a tensor of all blocks
LETTERS = {'#': NUMBER, '%': NUMBER, '*': '(.+)'}
VIT_BLOCK = 'blocks.#.attn.qkv.weight'
SWIN_BLOCK = 'layers.#.blocks.#.attn.qkv.weight'


class Rule(NamedTuple):
    """Tensors of all old names; to all new ones, or none."""

    old: tuple[str, ...]
    new: tuple[str, ...]


KEEPS_NAME = Rule(('',), ('',))  # of a key without a row


@dataclass(frozen=True)
class Layout:
    """The names of the weights in published checkpoints of one kind.

    Attributes:
        name: for messages.
        signs: names; a state dict has this layout if each matches one of its keys. The first
            matches a weight of each block.
        keys: rows of its keys and ours.
        tensors: from the name of a key to a function that returns the tensor in our shape.
        folds_cls_pos_embed: its pos_embed may begin with the position of the class token, which
            is added to the token, see ``fold_cls_pos_embed``.
        test: another condition on its state dicts.
        has_reference: the grid of its pos_embed is the reference grid of its coordinates.

    Raises:
        ValueError: names of a row do not agree. Tests look for hidden rows, see ``check_rows``.
    """

    name: str
    signs: tuple[str, ...]
    keys: Rows
    tensors: Mapping[str, Callable[[Tensor], Tensor]] = field(default_factory=dict)
    folds_cls_pos_embed: bool = False
    test: Callable[[StateDict], bool] | None = None
    has_reference: bool = False

    def __post_init__(self) -> None:
        for row in self.keys:
            row_rules(row)

    def fits(self, weights: StateDict) -> bool:
        """True if a state dict has this layout."""
        signs = all(has_key(weights, sign) for sign in self.signs)
        return signs and (self.test is None or self.test(weights))

    def to_ours(self, weights: StateDict) -> StateDict:
        """Weights of this layout in ours, as a copy; CheckpointError if they do not fit."""
        reshaped = {key: self.reshaped(key, x) for key, x in weights.items()}
        ours = rename_weights(reshaped, self.keys)
        return fold_cls_pos_embed(ours) if self.folds_cls_pos_embed else ours

    def reshaped(self, key: str, tensor: Tensor) -> Tensor:
        """A weight in our shape, under its own key."""
        with shape_errors(key):
            for name, reshape in self.tensors.items():
                if matches(key, name):
                    return reshape(tensor)
        return tensor


# ---------------------------------------------------------------- rows


def rows_within(old: str, new: str, *rows: Row) -> Rows:
    """Rows whose names follow these and a dot, as the names in a block do."""
    return [(a and f'{old}.{a}', b and f'{new}.{b}') for a, b in rows]


def reversed_rows(rows: Rows) -> Rows:
    """The way back; ValueError if it is not exact, see ``check_rows``."""
    back = [(new, old) for old, new in rows]
    check_rows(back)
    return back


def check_rows(rows: Rows) -> None:
    """Raise ValueError for a row whose names do not agree, or that a row before it hides."""
    for index, row in enumerate(rows):
        for rule in row_rules(row):
            for name in rule.old:
                first = find_match(re.sub('[#%]', '2718', name), rows[:index])
                if first:
                    raise ValueError(
                        f'{row} is never used: {tuple(first.rule)} is before it'
                    )


@cache
def row_rules(row: Row) -> tuple[Rule, ...]:
    """The rules of a row, none if only the other side has one; ValueError if names disagree."""
    if row[0] is None:
        return ()
    old = expand_braces(row[0])
    new = () if row[1] is None else expand_braces(row[1])
    names = old + new
    letters = {''.join(re.findall('[#*]', name)) for name in names}
    if new and len(letters) > 1:
        raise ValueError(f'{row}: both names need the same # and *, in the same order')
    blocks = ''.join(names).count('%')
    if blocks > 1 or (blocks and len(names) != 2):
        raise ValueError(f'{row}: % is for one of two names without braces')
    if len(old) == 1 or len(new) <= 1:
        return (Rule(old, new),)
    if len(old) != len(new):
        raise ValueError(f'{row}: both names need as many alternatives')
    return tuple(Rule((a,), (b,)) for a, b in zip(old, new, strict=True))


@cache
def expand_braces(name: str) -> tuple[str, ...]:
    """'a.{q,k}' is 'a.q' and 'a.k'; ValueError for other braces."""
    match = re.fullmatch(r'([^{}]*)\{([^{}]+)\}([^{}]*)', name)
    if match:
        start, choices, end = match.groups()
        return tuple(start + choice + end for choice in choices.split(','))
    if re.search('[{}]', name):
        raise ValueError(f'{name}: one pair of braces at most')
    return (name,)


@cache
def name_pattern(name: str) -> re.Pattern[str]:
    """The regular expression of a name without braces, with a group for each letter."""
    parts = [LETTERS.get(letter, re.escape(letter)) for letter in name]
    return re.compile(''.join(parts))


def matches(key: str, name: str) -> bool:
    """True if a name stands for the whole of a key."""
    return any(name_pattern(x).fullmatch(key) for x in expand_braces(name))


def has_key(keys: Iterable[str], name: str) -> bool:
    """True if a name stands for one of the keys."""
    return any(matches(key, name) for key in keys)


def matching_keys(keys: Iterable[str], name: str) -> list[str]:
    """The keys that a name stands for."""
    return [key for key in keys if matches(key, name)]


# ---------------------------------------------------------------- keys


class RuleMatch(NamedTuple):
    """The rule of a key.

    Attributes:
        place: of its tensor among those that become one: the old name's, or the block's number.
        new: the new keys; ``%`` stays.
    """

    rule: Rule
    place: int
    new: list[str]


Parts = dict[str, tuple[RuleMatch, Tensor]]  # of one new tensor, by their old keys


def find_match(key: str, rows: Rows) -> RuleMatch | None:
    """The first rule that matches a key."""
    for row in rows:
        for rule in row_rules(row):
            for place, old in enumerate(rule.old):
                found = name_pattern(old).fullmatch(key)
                if found:
                    texts = list(found.groups())
                    if '%' in old:
                        number = texts.pop(re.findall('[#*%]', old).index('%'))
                        place = int(number) if number.isdigit() else 0
                    names = [fill_name(new, texts) for new in rule.new]
                    return RuleMatch(rule, place, names)
    return None


def fill_name(name: str, texts: list[str]) -> str:
    """A name with texts in place of ``#`` and ``*``."""
    left = iter(texts)
    return re.sub('[#*]', lambda _: next(left), name)


def new_keys(key: str, rows: Rows) -> list[str]:
    """The new keys that rows give a key: one or several; none if they drop it."""
    match = find_match(key, rows)
    return [key] if match is None else match.new


@contextmanager
def shape_errors(key: str) -> Iterator[None]:
    """Within this context, an error of torch becomes a CheckpointError that names a key."""
    try:
        yield
    except (IndexError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f'{short_key(key)} does not have the shape of this layout ({error})'
        ) from error


def rename_weights(weights: StateDict, rows: Rows) -> StateDict:
    """The weights under their new names, split, concatenated and stacked as the rows say.

    Raises:
        CheckpointError: a name has more tensors than its row gives it, or tensors do not have the
            shapes of the layout.
    """
    parts: dict[str, Parts] = defaultdict(dict)
    for key, tensor in weights.items():
        match = find_match(key, rows) or RuleMatch(KEEPS_NAME, 0, [key])
        with shape_errors(key):
            chunks = split_weight(tensor, match)
        for name, chunk in chunks.items():
            parts[name][key] = match, chunk
    return {name: join_tensors(name, parts[name], weights) for name in parts}


def split_weight(tensor: Tensor, match: RuleMatch) -> StateDict:
    """A tensor under its new names: itself, equal chunks of it, or a slice for each block."""
    names = match.new
    if '%' in ''.join(match.rule.new):
        of_blocks = enumerate(tensor.unbind(1))
        return {names[0].replace('%', str(block)): x for block, x in of_blocks}
    if len(names) <= 1:
        return dict.fromkeys(names, tensor)
    return dict(zip(names, tensor.tensor_split(len(names)), strict=True))


def join_tensors(name: str, parts: Parts, weights: StateDict) -> Tensor:
    """The tensors that a rule gives one name, concatenated or stacked in its order.

    ``weights`` tell the number of blocks.
    """
    rules = {match.rule for match, _ in parts.values()}
    if len(rules) > 1:
        raise CheckpointError(
            f'the checkpoint has {short_key(name)} more than once: {keys_text(sorted(parts))}'
        )
    old = rules.pop().old
    places = {match.place: tensor for match, tensor in parts.values()}
    tensors = [places[place] for place in sorted(places)]
    with_blocks = '%' in old[0]
    if with_blocks:
        check_all_blocks(old[0], places, parts, weights)
    with shape_errors(name):
        if with_blocks:
            return torch.stack(tensors, 1)
        return torch.cat(tensors) if len(old) > 1 else tensors[0]


def check_all_blocks(
    name: str, numbers: Iterable[int], keys: Iterable[str], weights: StateDict
) -> None:
    """Raise CheckpointError unless all blocks of the weights have one of the keys of a name."""
    start = name.partition('%')[0]
    blocks = set()
    for key in weights:
        if key.startswith(start):
            blocks.add(key.removeprefix(start).partition('.')[0])
    if set(numbers) != set(range(len(blocks))):
        raise CheckpointError(
            f'frequencies of {len(blocks)} blocks cannot be put into one tensor: the checkpoint '
            f'has {keys_text(keys)}'
        )


def refuse_adapters(weights: StateDict) -> None:
    """Raise CheckpointError if weights have adapters, which no published layout has.

    The weights alone do not tell the scale of an adapter (``alpha``), so it cannot be merged here.
    """
    adapters = matching_keys(weights, '*.lora.{down,up}')
    if adapters:
        raise CheckpointError(
            f'these weights have adapters (LoRA), {keys_text(adapters)}: load them into their '
            'model, call backbone.merge_lora() and save its state_dict'
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
    positions = weights['pos_embed']
    return {
        **weights,
        'cls_token': weights['cls_token'] + positions[:, :1],
        'pos_embed': positions[:, 1:],
    }
