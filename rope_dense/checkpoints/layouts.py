"""The key layouts of published checkpoints: which one it is, and pure conversions to ours and back.

A layout is a table of keys and a function. To add one, write both and add it to ``LAYOUTS``. A key
that no table names keeps its name; strict loading finds out whether the model has it. Key names and
shapes are those of the published files, checked against timm's models in
tests/test_checkpoint_layouts.py and tests/test_checkpoint_families.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from . import dinov3, naver, timm_vit
from .errors import CheckpointError
from .keys import SWIN_BLOCK, VIT_BLOCK, KeyTable, StateDict, has, new_keys


def always(weights: StateDict) -> bool:
    return True


@dataclass(frozen=True)
class Layout:
    """How a published checkpoint names its weights.

    Attributes:
        name: for messages.
        signs: patterns; a state dict has this layout if each matches one of its keys.
        keys: what becomes of its keys.
        to_ours: the conversion; it does not change its argument.
        test: what else a state dict of this layout fulfils.
        own_reference: the grid of its pos_embed is the reference grid of its coordinates.
    """

    name: str
    signs: tuple[str, ...]
    keys: KeyTable
    to_ours: Callable[[StateDict], StateDict]
    test: Callable[[StateDict], bool] = always
    own_reference: bool = False

    def fits(self, weights: StateDict) -> bool:
        return all(has(weights, sign) for sign in self.signs) and self.test(weights)

    def drops(self, key: str) -> bool:
        return not new_keys(key, self.keys)


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


SEPARATE_QKV = r'blocks\.\d+\.attn\.q_proj\.weight'
HF_QUERY = dinov3.HF_BLOCK + r'attention\.q_proj\.weight'
OURS = Layout('ours', (f'{VIT_BLOCK}|{SWIN_BLOCK}',), {}, dict)
LAYOUTS = (
    Layout('naver Swin', (naver.SWIN_FREQS,), naver.NAVER_SWIN_KEYS, naver.from_naver_swin),
    Layout(
        'Swin with relative position bias',
        (SWIN_BLOCK, r'.+\.relative_position_index'),
        naver.NAVER_SWIN_KEYS,
        naver.from_naver_swin,
    ),
    Layout('naver ViT', (VIT_BLOCK, 'freqs'), naver.NAVER_VIT_KEYS, naver.from_naver_vit),
    Layout('Meta DINOv3', (VIT_BLOCK, 'storage_tokens'), dinov3.META_KEYS, dinov3.from_meta),
    Layout(
        'Hugging Face DINOv3 with SwiGLU',
        (HF_QUERY, dinov3.HF_BLOCK + r'mlp\.gate_proj\.weight'),
        dinov3.HF_SWIGLU_KEYS,
        dinov3.from_hf_swiglu,
    ),
    Layout('Hugging Face DINOv3', (HF_QUERY,), dinov3.HF_GELU_KEYS, dinov3.from_hf_gelu),
    Layout('timm EVA-02', (SEPARATE_QKV,), timm_vit.SEPARATE_KEYS, timm_vit.from_separate),
    Layout(
        'timm EVA-02 with packed MLP',
        (VIT_BLOCK,),
        timm_vit.PACKED_KEYS,
        timm_vit.from_packed,
        timm_vit.has_packed_mlp,
    ),
    Layout(
        'timm Perception Encoder',
        (VIT_BLOCK, r'norm_pre\.weight'),
        timm_vit.HEADS,
        timm_vit.from_timm,
        timm_vit.has_class_slot,
        own_reference=True,
    ),
    # Without learned frequencies naver's names are timm's.
    Layout(
        'timm or naver ViT',
        (VIT_BLOCK, r'(head|fc_norm|attn_pool)\..+'),
        timm_vit.HEADS,
        timm_vit.from_timm,
    ),
    # timm's DINOv3 has our names and nothing else.
    OURS,
)
TARGETS = {
    'ours': Target(lambda weights: {}, dict, 'state_dict'),
    'naver': Target(lambda weights: naver.TO_NAVER_KEYS, naver.to_naver, 'model'),
    'timm': Target(timm_vit.to_timm_keys, timm_vit.to_timm, None),
}


def find_layout(weights: StateDict, name: str) -> Layout:
    """The first of ``LAYOUTS`` that fits; ``name`` is what messages call the file.

    Raises:
        CheckpointError: none does.
    """
    for layout in LAYOUTS:
        if layout.fits(weights):
            return layout
    block = re.compile(rf'(.+\.)({VIT_BLOCK}|{SWIN_BLOCK}|{SEPARATE_QKV}|{HF_QUERY})')
    prefixes = {match[1] for key in weights if (match := block.fullmatch(key))}
    advice = f'. Perhaps prefix={min(prefixes, key=len)!r}' if prefixes else ''
    raise CheckpointError(
        f'{name}: the layout of its keys is not known, they are {", ".join(list(weights)[:4])}, '
        f'...; known are {", ".join(layout.name for layout in LAYOUTS)}{advice}'
    )
