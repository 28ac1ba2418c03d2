"""The architectures of the backbones: sizes, and what distinguishes the published families.

An architecture is a dataclass (``ViTArch``, ``SwinArch``, ``NATArch``), and a table of named ones
has for each name a dict of its attributes; ``find_arch`` looks them up. The backbones check values.

Checked against the number of parameters and the outputs of timm's models in
tests/backbones/test_vit_families.py; those that timm does not have against transformers in
tests/checkpoints/test_sam3.py and tests/backbones/test_realtime_archs.py.
"""

from .foundation import DINOV3, DINOV3_ROPE
from .kinds import (
    DEFAULT,
    Ape,
    Default,
    Dilations,
    FinalNorm,
    MlpKind,
    NATArch,
    QkvBias,
    SwinArch,
    ViTArch,
    WindowSetting,
    find_arch,
)
from .staged import NAT_ARCHS, SWIN_ARCHS
from .vit import VIT_ARCHS

__all__ = [
    'DEFAULT',
    'DINOV3',
    'DINOV3_ROPE',
    'NAT_ARCHS',
    'SWIN_ARCHS',
    'VIT_ARCHS',
    'Ape',
    'Default',
    'Dilations',
    'FinalNorm',
    'MlpKind',
    'NATArch',
    'QkvBias',
    'SwinArch',
    'ViTArch',
    'WindowSetting',
    'find_arch',
]
