"""Key layouts of published checkpoints: the table, and which layout a checkpoint has.

A layout is the names and shapes of the weights in a file. To add a publisher, write a file beside
this one and register it in ``PUBLISHERS``. The file has ``LAYOUTS``: each a ``Layout`` with the
keys that tell it from others (``signs``), rows of its keys and ours (``keys``, see
``checkpoints.keys``), and functions for tensors whose shape is not ours (``tensors``). A key
without a row keeps its name; strict loading finds out whether the model has it. ``resformer.py``
is the shortest example. tests/checkpoints/test_checkpoint_layouts.py checks names and shapes of
the published files against timm's; newer ones have a test_NAME.py, such as test_sapiens.py.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from ..errors import CheckpointError, keys_text, short_key
from ..keys import Layout, Rows, StateDict, expand_braces, name_pattern
from . import (
    deim,
    dinov3,
    mlcd,
    naver,
    perception,
    qwen,
    resformer,
    sam3,
    sapiens,
    shi_labs,
    timm_vit,
    vjepa,
)

# Of earlier versions: frequencies of all blocks in one tensor, other names of q and v biases.
EARLIER: Rows = [
    *timm_vit.NAMES,
    ('layers.#.rope.freqs', 'layers.#.blocks.%.attn.rope.freqs'),
]
OURS = Layout('ours', ('{blocks,layers.#.blocks}.#.attn.qkv.weight',), EARLIER)
# In this order: the first layout that fits is taken.
PUBLISHERS = (
    naver,
    shi_labs,
    resformer,
    sapiens,
    dinov3,
    deim,
    sam3,
    mlcd,
    qwen,
    vjepa,
    perception,
    timm_vit,
)
LAYOUTS: tuple[Layout, ...] = ()
for publisher in PUBLISHERS:
    LAYOUTS += publisher.LAYOUTS
LAYOUTS += (OURS,)


@dataclass(frozen=True)
class Target:
    """A layout to convert ours to.

    Attributes:
        keys: from weights in our layout to the rows of their keys and the new ones.
        from_ours: the conversion; it does not change its argument.
        wrapper: key of the weights in a PyTorch file, or None if they are at its top.
    """

    keys: Callable[[StateDict], Rows]
    from_ours: Callable[[StateDict], StateDict]
    wrapper: str | None


TARGETS = {
    'ours': Target(lambda weights: [], dict, 'state_dict'),
    'naver': Target(lambda weights: naver.TO_NAVER, naver.to_naver, 'model'),
    'timm': Target(timm_vit.to_timm_rows, timm_vit.to_timm, None),
}


def find_layout(
    weights: StateDict, name: str, model_keys: Collection[str] = ()
) -> Layout:
    """The first of ``LAYOUTS`` that fits; ours where none does and most keys are the model's.

    Args:
        weights: as a file names them, without a prefix.
        name: of the file in messages.
        model_keys: of the model that the weights are for, which may be a backbone of any kind.

    Raises:
        CheckpointError: the layout is not known.
    """
    for layout in LAYOUTS:
        if layout.fits(weights):
            return layout
    if 2 * sum(key in model_keys for key in weights) > len(weights):
        return OURS
    prefixes = set()
    for layout in LAYOUTS:
        for sign in expand_braces(layout.signs[0]):
            pattern = name_pattern(f'*.{sign}')
            matches = filter(None, map(pattern.fullmatch, weights))
            prefixes |= {f'{match[1]}.' for match in matches}
    advice = ''
    if prefixes:
        advice = f'. Perhaps prefix={short_key(min(prefixes, key=len))!r}'
    known = ', '.join(layout.name for layout in LAYOUTS)
    raise CheckpointError(
        f'{name}: the layout of its keys is not known, they are {keys_text(weights, 4)}; '
        f'known are {known}{advice}'
    )
