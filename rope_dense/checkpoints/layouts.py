"""Key layouts of published checkpoints, and pure conversions to ours and back.

A layout is a table of keys and a function. To add one, write both and add it to ``LAYOUTS``. A key
that no table names keeps its name; strict loading finds out whether the model has it. Key names and
shapes are those of the published files, checked against timm's models in
tests/test_checkpoint_layouts.py.

Letters: L blocks (of a stage), h heads, P channel pairs of a head, C channels.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import CheckpointError

StateDict = dict[str, Tensor]
# From the pattern of a key (the whole of it) to the new key, or to None: dropped on purpose. * in a
# new key stands for the number of each block: one tensor becomes several.
KeyTable = dict[str, str | None]

VIT_PAIRS = 32  # P of all published ViTs: heads of 64 channels
SWIN_PAIRS = 16  # and of all published Swins

CLASSIFIER: KeyTable = {r'head\..+': None}
NAVER_VIT_KEYS: KeyTable = {
    r'freqs': 'rope.freqs',  # [2, L, C / 2] to [2, L, h, P]
    r'freqs_t_[xy]': None,  # positions of the pre-training grid
    **CLASSIFIER,
}
NAVER_SWIN_KEYS: KeyTable = {
    r'layers\.(\d+)\.blocks\.\d+\.attn\.rope_freqs': r'layers.\1.rope.freqs',  # L of [2, h, P]
    r'.+\.rope_t_[xy]': None,  # positions in a window
    r'.+\.relative_position_index': None,  # which the backbone computes
    r'.+\.relative_coords_table': None,
    r'.+\.attn_mask': None,  # of the pre-training image size
    **CLASSIFIER,
}
TO_NAVER_KEYS: KeyTable = {
    r'rope\.freqs': 'freqs',
    r'layers\.(\d+)\.rope\.freqs': r'layers.\1.blocks.*.attn.rope_freqs',
}

VIT_BLOCK = r'blocks\.\d+\.attn\.qkv\.weight'
SWIN_BLOCK = r'layers\.(\d+)\.blocks\.(\d+)\.attn\.qkv\.weight'
SWIN_FREQS = r'layers\.(\d+)\.blocks\.(\d+)\.attn\.rope_freqs'


@dataclass(frozen=True)
class Layout:
    """How a published checkpoint names its weights.

    Attributes:
        name: for messages.
        signs: patterns; a state dict has this layout if each matches one of its keys.
        keys: what becomes of its keys.
        to_ours: the conversion; it does not change its argument.
    """

    name: str
    signs: tuple[str, ...]
    keys: KeyTable
    to_ours: Callable[[StateDict], StateDict]

    def drops(self, key: str) -> bool:
        return new_key(key, self.keys) is None


@dataclass(frozen=True)
class Target:
    """A layout to convert ours to.

    Attributes:
        keys: what becomes of our keys.
        from_ours: the conversion; it does not change its argument.
        wrapper: key of the weights in a PyTorch file, or None if they are at its top.
    """

    keys: KeyTable
    from_ours: Callable[[StateDict], StateDict]
    wrapper: str | None


def find_layout(weights: StateDict, name: str) -> Layout:
    """The first of ``LAYOUTS`` that fits; ``name`` is what messages call the file.

    Raises:
        CheckpointError: none does.
    """
    for layout in LAYOUTS:
        if all(any(re.fullmatch(sign, key) for key in weights) for sign in layout.signs):
            return layout
    block = re.compile(rf'(.+\.)({VIT_BLOCK}|{SWIN_BLOCK})')
    prefixes = {match[1] for key in weights if (match := block.fullmatch(key))}
    advice = f'. Perhaps prefix={min(prefixes, key=len)!r}' if prefixes else ''
    raise CheckpointError(
        f'{name}: the layout of its keys is not known, they are {", ".join(list(weights)[:4])}, '
        f'...; known are {", ".join(layout.name for layout in LAYOUTS)}{advice}'
    )


def new_key(key: str, table: KeyTable) -> str | None:
    """What a table makes of a key; None if it drops it."""
    for pattern, new in table.items():
        if match := re.fullmatch(pattern, key):
            return None if new is None else match.expand(new)
    return key


def renamed(weights: StateDict, table: KeyTable) -> StateDict:
    pairs = ((new_key(key, table), tensor) for key, tensor in weights.items())
    return {key: tensor for key, tensor in pairs if key is not None}


def from_classifier(weights: StateDict) -> StateDict:
    return renamed(weights, CLASSIFIER)


def from_naver_vit(weights: StateDict) -> StateDict:
    """Names, and the heads of the frequencies: their channels are ordered by head."""
    ours, freqs = renamed(weights, NAVER_VIT_KEYS), weights['freqs']
    if freqs.shape[-1] % VIT_PAIRS:
        raise CheckpointError(f'freqs is {list(freqs.shape)}: no heads of {2 * VIT_PAIRS} channels')
    return {**ours, 'rope.freqs': freqs.unflatten(-1, (-1, VIT_PAIRS))}


def from_naver_swin(weights: StateDict) -> StateDict:
    """Names, and the frequencies of all blocks of a stage in one tensor."""
    ours = renamed(weights, NAVER_SWIN_KEYS)
    for stage, blocks in by_stage(weights, SWIN_FREQS).items():
        names = [
            f'layers.{stage}.blocks.{block}.attn.rope_freqs'
            for block in sorted(blocks | by_stage(weights, SWIN_BLOCK)[stage])
        ]
        if missing := [key for key in names if key not in weights]:
            raise CheckpointError(f'the checkpoint lacks {", ".join(missing)}')
        shapes = {key: list(weights[key].shape) for key in names}
        if any(shape != shapes[names[0]] for shape in shapes.values()):
            raise CheckpointError(f'frequencies of one stage differ in shape: {shapes}')
        ours[f'layers.{stage}.rope.freqs'] = torch.stack([weights[key] for key in names], 1)
    return ours


def by_stage(weights: StateDict, pattern: str) -> dict[int, set[int]]:
    """From the stage to its blocks, of the keys that the pattern matches."""
    blocks = defaultdict(set)
    for key in weights:
        if match := re.fullmatch(pattern, key):
            blocks[int(match[1])].add(int(match[2]))
    return blocks


def to_naver(weights: StateDict) -> StateDict:
    """Learned weights only: naver's code computes its buffers and loads without them."""
    naver = {}
    for key, tensor in weights.items():
        new = new_key(key, TO_NAVER_KEYS)
        if new == key:
            naver[key] = tensor
            continue
        pairs = SWIN_PAIRS if '*' in new else VIT_PAIRS
        if tensor.shape[-1] != pairs:
            raise CheckpointError(
                f"{key} is {list(tensor.shape)}: naver's frequencies have {pairs} pairs for each "
                'head and mix x and y'
            )
        if '*' in new:
            naver |= {
                new.replace('*', str(block)): freqs.clone()
                for block, freqs in enumerate(tensor.unbind(1))
            }
        else:
            naver[new] = tensor.flatten(2)
    return naver


def to_timm(weights: StateDict) -> StateDict:
    """A ViT has the same names in timm."""
    if by_stage(weights, SWIN_BLOCK):
        raise CheckpointError('timm has no Swin with rotary embedding: use --to naver or ours')
    return dict(weights)


LAYOUTS = (
    Layout('naver Swin', (SWIN_FREQS,), NAVER_SWIN_KEYS, from_naver_swin),
    Layout(
        'Swin with relative position bias',
        (SWIN_BLOCK, r'.+\.relative_position_index'),
        NAVER_SWIN_KEYS,
        from_naver_swin,
    ),
    Layout('naver ViT', (VIT_BLOCK, 'freqs'), NAVER_VIT_KEYS, from_naver_vit),
    # Without learned frequencies naver's names are timm's.
    Layout('timm or naver ViT', (VIT_BLOCK, r'head\.weight'), CLASSIFIER, from_classifier),
    Layout('ours', (f'{VIT_BLOCK}|{SWIN_BLOCK}',), {}, dict),
)
TARGETS = {
    'ours': Target({}, dict, 'state_dict'),
    'naver': Target(TO_NAVER_KEYS, to_naver, 'model'),
    'timm': Target({}, to_timm, None),
}
