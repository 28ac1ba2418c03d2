"""Key layouts of the ViTs of real-time detectors: DEIMv2's small ones and EdgeCrafter's ECViT.

Names are those of the published code (EdgeCrafter: Apache-2.0); of DEIMv2, those that transformers'
conversion reads. Files of whole detectors have them after a prefix, see ``models.deim.weights``.
"""

from __future__ import annotations

from ..keys import VIT_BLOCK, KeyTable, Layout
from .dinov3 import PERIODS

DEIMV2_KEYS: KeyTable = {r'rope_embed\.periods': PERIODS}
ECVIT_KEYS: KeyTable = {
    r'register_token': 'reg_token',
    r'(patch_embed\.convs\.\d\.)norm\.(.+)': r'\1bn.\2',
    r'rope_embed\.periods': PERIODS,
}
LAYOUTS = (
    Layout('EdgeCrafter ECViT', (VIT_BLOCK, 'register_token'), ECVIT_KEYS),
    Layout(
        'DEIMv2 ViT',
        (VIT_BLOCK, r'rope_embed\.periods'),
        DEIMV2_KEYS,
        test=lambda weights: not any(key.endswith('gamma') for key in weights),
    ),
)
