"""Which layout a checkpoint has, and the layouts to convert ours to.

A layout is a table of keys, and of functions for tensors whose shape is not ours. To add one, write
a file with both and with its ``LAYOUTS``, and name it below. A key that no table names keeps its
name; strict loading finds out whether the model has it. Key names and shapes are those of the
published files, checked against timm's models in tests/checkpoints/test_checkpoint_layouts.py and
tests/checkpoints/test_checkpoint_families.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..errors import CheckpointError
from ..keys import SWIN_BLOCK, VIT_BLOCK, KeyTable, Layout, StateDict
from . import dinov3, naver, perception, resformer, sam3, shi_labs, timm_vit

# Of earlier versions: frequencies of all blocks in one tensor, other names of q and v biases.
EARLIER_KEYS: KeyTable = {
    **timm_vit.NAMES,
    r'layers\.(\d+)\.rope\.freqs': r'layers.\1.blocks.*.attn.rope.freqs',
}
OURS = Layout('ours', (f'{VIT_BLOCK}|{SWIN_BLOCK}',), EARLIER_KEYS)
FAMILIES = (naver, shi_labs, resformer, dinov3, sam3, perception, timm_vit)
LAYOUTS = (*(layout for family in FAMILIES for layout in family.LAYOUTS), OURS)


@dataclass(frozen=True)
class Target:
    """A layout to convert ours to.

    Attributes:
        keys: from weights in our layout to what becomes of their keys.
        from_ours: the conversion; it does not change its argument.
        wrapper: key of the weights in a PyTorch file, or None if they are at its top.
    """

    keys: Callable[[StateDict], KeyTable]
    from_ours: Callable[[StateDict], StateDict]
    wrapper: str | None


TARGETS = {
    'ours': Target(lambda weights: {}, dict, 'state_dict'),
    'naver': Target(lambda weights: naver.TO_NAVER_KEYS, naver.to_naver, 'model'),
    'timm': Target(timm_vit.to_timm_keys, timm_vit.to_timm, None),
}


def find_layout(weights: StateDict, name: str, model_keys: Collection[str] = ()) -> Layout:
    """The first of ``LAYOUTS`` that fits; ours where none does and most keys are the model's.

    Args:
        name: what messages call the file.
        model_keys: of the model that the weights are for, which may be a backbone of any kind.

    Raises:
        CheckpointError: the layout is not known.
    """
    for layout in LAYOUTS:
        if layout.fits(weights):
            return layout
    if 2 * sum(key in model_keys for key in weights) > len(weights):
        return OURS
    block = re.compile(rf'(.+\.)({"|".join(layout.signs[0] for layout in LAYOUTS)})')
    prefixes = {match[1] for key in weights if (match := block.fullmatch(key))}
    advice = f'. Perhaps prefix={min(prefixes, key=len)!r}' if prefixes else ''
    raise CheckpointError(
        f'{name}: the layout of its keys is not known, they are {", ".join(list(weights)[:4])}, '
        f'...; known are {", ".join(layout.name for layout in LAYOUTS)}{advice}'
    )
