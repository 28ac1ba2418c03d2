"""Backbones of configs/own, selected by size or by architecture name."""

from dataclasses import dataclass

from ...backbones.archs import VIT_ARCHS, ViTArch, find_arch
from ...utils.validation import did_you_mean

LINGBOT = 'hf-hub:robbyant/lingbot-vision-vit-'
PE_TINY = 'hf-hub:timm/vit_pe_spatial_tiny_patch16_512.fb'
# Architectures and published weights under the Apache-2.0 licence.
WORDS = {
    'tiny': ('pe_spatial_tiny', PE_TINY),
    'small': ('lingbot_small', f'{LINGBOT}small'),
    'base': ('lingbot_base', f'{LINGBOT}base'),
    'large': ('lingbot_large', f'{LINGBOT}large'),
}
HALF = (127.5,) * 3, (127.5,) * 3
CLIP = (122.771, 116.746, 104.094), (68.501, 66.632, 70.323)
IMAGENET = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
# Mean and standard deviation of red, green and blue, by the beginning of the architecture's name.
COLOURS = dict.fromkeys(('pe_', 'sam3', 'rope_reg1', 'qwen3_'), HALF)
COLOURS |= dict.fromkeys(('rope_reg4', 'eva02_', 'mlcd_', 'rice_'), CLIP)
WINDOWS = {'pe_spatial': 32, 'pe_lang': 32, 'sam3': 24}  # tokens of a side; others 16


@dataclass(frozen=True)
class OwnBackbone:
    """A plain ViT, as far as recipes depend on it."""

    arch: str  # its name among the architectures of ``RoPEViT``
    weights: str | None  # published ones under a free licence, or None
    channels: int
    depth: int
    patch_size: int
    has_layer_scale: bool
    has_cls_token: bool
    # Of the colours (red, green, blue) that its weights were trained with.
    mean: tuple[float, ...]
    std: tuple[float, ...]
    window_size: int  # tokens of a side: the grid of the crops of its pre-training

    @property
    def quarters(self) -> list[int]:
        """The last block of each quarter."""
        return [self.depth * part // 4 - 1 for part in (1, 2, 3, 4)]

    @property
    def scale(self) -> str:
        """The word for its size, after which settings of training are chosen."""
        if self.depth >= 24:
            return 'large'
        if self.channels > 512:
            return 'base'
        return 'small' if self.channels > 256 else 'tiny'


def find_backbone(name: str, setting: str = 'own.backbone') -> OwnBackbone:
    """The backbone of a key of ``WORDS`` or of an architecture's name; ValueError if neither."""
    arch, weights = WORDS.get(name, (name, None))
    if arch not in VIT_ARCHS:
        allowed = dict.fromkeys([*WORDS, *VIT_ARCHS])
        raise ValueError(
            f'{setting}={name!r}: no such architecture{did_you_mean(name, allowed)}; allowed: '
            f'{", ".join(allowed)}'
        )
    vit = find_arch(ViTArch, VIT_ARCHS, arch)
    mean, std = IMAGENET
    for start, colours in COLOURS.items():
        if arch.startswith(start):
            mean, std = colours
    window = 16
    for start, size in WINDOWS.items():
        if arch.startswith(start):
            window = size
    return OwnBackbone(
        arch=arch,
        weights=weights,
        channels=vit.embed_dims,
        depth=vit.depth,
        patch_size=vit.patch_size,
        has_layer_scale=vit.layer_scale_init_value is not None,
        has_cls_token=vit.with_cls_token,
        mean=mean,
        std=std,
        window_size=window,
    )
