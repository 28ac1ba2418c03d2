"""Tables of keys, and what they do to a state dict.

Letters: L blocks (of a stage), h heads, P channel pairs of a head, C channels.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor

from .errors import CheckpointError

StateDict = dict[str, Tensor]
# From the pattern of a key (the whole of it; the first that matches counts) to the new key, or to
# None: dropped on purpose. Keys that no pattern matches keep their names.
# {q,k} in a new key: the tensor is cut into equal parts along its first axis.
# Several patterns with the same new key: their tensors are joined, in the order of the table.
# * in a new key: the number of each block; one tensor becomes several (naver.py alone knows how).
KeyTable = dict[str, str | None]

VIT_BLOCK = r'blocks\.\d+\.attn\.qkv\.weight'
SWIN_BLOCK = r'layers\.(\d+)\.blocks\.(\d+)\.attn\.qkv\.weight'


def has(keys: Iterable[str], pattern: str) -> bool:
    return any(re.fullmatch(pattern, key) for key in keys)


def by_stage(weights: StateDict, pattern: str) -> dict[int, set[int]]:
    """From the stage to its blocks, of the keys that the pattern matches."""
    blocks = defaultdict(set)
    for key in weights:
        if match := re.fullmatch(pattern, key):
            blocks[int(match[1])].add(int(match[2]))
    return blocks


def new_keys(key: str, table: KeyTable) -> list[str]:
    """What a table makes of a key: one new key or several; none if it drops it."""
    row = find_row(key, table)
    if row is None:
        return [key]
    new = table[row]
    return [] if new is None else parts_of(re.fullmatch(row, key).expand(new))


def find_row(key: str, table: KeyTable) -> str | None:
    return next((pattern for pattern in table if re.fullmatch(pattern, key)), None)


def parts_of(key: str) -> list[str]:
    """'a.{q,k}' is 'a.q' and 'a.k'."""
    match = re.fullmatch(r'(.*)\{(.+)\}(.*)', key)
    return [match[1] + part + match[3] for part in match[2].split(',')] if match else [key]


def renamed(weights: StateDict, table: KeyTable) -> StateDict:
    """The weights under the names that a table gives them, cut and joined as it says.

    Raises:
        CheckpointError: a tensor cannot be cut, or others to join it with are not there.
    """
    rows, found = list(table), defaultdict(list)
    for key, tensor in weights.items():
        names = new_keys(key, table)
        if len(names) > 1 and len(tensor) % len(names):
            raise CheckpointError(
                f'{key} {list(tensor.shape)} does not make {len(names)} equal parts: '
                f'{", ".join(names)}'
            )
        row = find_row(key, table)
        place = rows.index(row) if row else -1
        for name, part in zip(names, tensor.chunk(len(names) or 1), strict=False):
            found[name].append((place, key, part))
    partners = Counter(new for new in table.values() if new is not None)
    new = {}
    for name, members in found.items():
        members.sort(key=lambda member: member[0])
        place, keys = members[0][0], [key for _, key, _ in members]
        expected = partners[table[rows[place]]] if place >= 0 else 1
        if len(members) != expected:
            raise CheckpointError(
                f'{name} is made of {expected} tensors, and of them the checkpoint has '
                f'{", ".join(keys)}'
            )
        new[name] = joined(name, {key: part for _, key, part in members})
    return new


def joined(name: str, parts: dict[str, Tensor]) -> Tensor:
    if len(parts) == 1:
        return next(iter(parts.values()))
    shapes = {key: list(part.shape) for key, part in parts.items()}
    if len({(*shape[1:], len(shape)) for shape in shapes.values()}) > 1:
        raise CheckpointError(f'{name} is made of tensors that do not fit together: {shapes}')
    return torch.cat(list(parts.values()))
