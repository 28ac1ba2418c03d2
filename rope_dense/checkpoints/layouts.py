"""The key layouts of published checkpoints: which one it is, and pure conversions to ours and back.

A layout is a table of keys and a function. To add one, write both and add it to ``LAYOUTS``. A key
that no table names keeps its name; strict loading finds out whether the model has it. Key names and
shapes are those of the published files, checked against timm's models in
tests/test_checkpoint_layouts.py and tests/test_checkpoint_families.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from . import dinov3, isotropic, naver, perception, resformer, sam3, shi_labs, timm_vit
from .errors import CheckpointError
from .keys import SWIN_BLOCK, VIT_BLOCK, KeyTable, StateDict, has, new_keys, renamed


@dataclass(frozen=True)
class Layout:
    """How a published checkpoint names its weights.

    Attributes:
        name: for messages.
        signs: patterns; a state dict has this layout if each matches one of its keys.
        keys: what becomes of its keys.
        convert: the conversion, if it is more than what ``keys`` says.
        test: what else a state dict of this layout fulfils, if anything.
        has_reference: the grid of its pos_embed is the reference grid of its coordinates.
    """

    name: str
    signs: tuple[str, ...]
    keys: KeyTable
    convert: Callable[[StateDict], StateDict] | None = None
    test: Callable[[StateDict], bool] | None = None
    has_reference: bool = False

    def fits(self, weights: StateDict) -> bool:
        signs = all(has(weights, sign) for sign in self.signs)
        return signs and (self.test is None or self.test(weights))

    def drops(self, key: str) -> bool:
        return not new_keys(key, self.keys)

    def to_ours(self, weights: StateDict) -> StateDict:
        """Weights of this layout in ours; the argument is not changed.

        Raises:
            CheckpointError: they cannot be converted.
        """
        return renamed(weights, self.keys) if self.convert is None else self.convert(weights)


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
# Of a block in each layout.
BLOCKS = (
    *(VIT_BLOCK, SWIN_BLOCK, isotropic.BLOCK, shi_labs.NAT_BLOCK),
    *(SEPARATE_QKV, HF_QUERY, sam3.HF_QUERY, perception.IN_PROJ),
)
# Of earlier versions: frequencies of all blocks in one tensor, other names of q and v biases.
EARLIER_KEYS: KeyTable = {
    **timm_vit.NAMES,
    r'layers\.(\d+)\.rope\.freqs': r'layers.\1.blocks.*.attn.rope.freqs',
}
OURS = Layout('ours', (f'{VIT_BLOCK}|{SWIN_BLOCK}',), EARLIER_KEYS)
LAYOUTS = (
    Layout('naver Swin', (naver.NAVER_SWIN_FREQS,), naver.NAVER_SWIN_KEYS),
    Layout(
        'Swin with relative position bias',
        (SWIN_BLOCK, r'.+\.relative_position_index'),
        naver.NAVER_SWIN_KEYS,
    ),
    Layout('SHI-Labs NAT', (shi_labs.NAT_BLOCK,), shi_labs.KEYS, shi_labs.from_shi_labs),
    Layout(
        'SHI-Labs DiNAT-s',
        (SWIN_BLOCK, shi_labs.TABLE),
        shi_labs.KEYS,
        shi_labs.from_shi_labs,
    ),
    # Not their neighbourhood attention, which has smaller tables and no such buffer.
    Layout(
        'SHI-Labs ViT',
        (isotropic.BLOCK, isotropic.TABLE, r'.+\.relative_position_index'),
        isotropic.KEYS,
        isotropic.from_isotropic,
    ),
    Layout('ResFormer', (VIT_BLOCK, resformer.CONV), resformer.KEYS),
    Layout('naver ViT', (VIT_BLOCK, 'freqs'), naver.NAVER_VIT_KEYS, naver.from_naver_vit),
    Layout('Meta DINOv3', (VIT_BLOCK, 'storage_tokens'), dinov3.META_KEYS, dinov3.from_meta),
    Layout(
        'Hugging Face DINOv3 with SwiGLU',
        (HF_QUERY, dinov3.HF_BLOCK + r'mlp\.gate_proj\.weight'),
        dinov3.HF_SWIGLU_KEYS,
    ),
    Layout('Hugging Face DINOv3', (HF_QUERY,), dinov3.HF_GELU_KEYS),
    Layout('Meta SAM3', (VIT_BLOCK, r'ln_pre\..+'), sam3.META_KEYS, sam3.from_meta),
    Layout('Hugging Face SAM3', (sam3.HF_QUERY,), sam3.HF_KEYS),
    Layout(
        'Meta Perception Encoder',
        (perception.IN_PROJ, r'conv1\.weight|ln_pre\..+'),
        perception.KEYS,
        perception.from_meta,
        perception.is_perception_encoder,
        has_reference=True,
    ),
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
        timm_vit.TIMM_KEYS,
        timm_vit.from_timm,
        timm_vit.has_class_slot,
        has_reference=True,
    ),
    # Without learned frequencies naver's names are timm's.
    Layout(
        'timm or naver ViT',
        (VIT_BLOCK, r'(head|fc_norm|attn_pool)\..+'),
        timm_vit.TIMM_KEYS,
        timm_vit.from_timm,
    ),
    # timm's DINOv3 has names that are ours, or were in earlier versions, and nothing else.
    OURS,
)
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
    block = re.compile(rf'(.+\.)({"|".join(BLOCKS)})')
    prefixes = {match[1] for key in weights if (match := block.fullmatch(key))}
    advice = f'. Perhaps prefix={min(prefixes, key=len)!r}' if prefixes else ''
    raise CheckpointError(
        f'{name}: the layout of its keys is not known, they are {", ".join(list(weights)[:4])}, '
        f'...; known are {", ".join(layout.name for layout in LAYOUTS)}{advice}'
    )
