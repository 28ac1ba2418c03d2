"""The backbones, as modules of mmengine's registry: RoPEViT, RoPESwin, RoPENAT.

They are imported when they are used: the commands read ``archs`` without PyTorch.

Others import::

    archs: DEFAULT, DINOV3, DINOV3_ROPE, VIT_ARCHS, ViTArch, WindowSetting,
        find_arch
    archs.foundation: DINOV3_ROPE
    attention: Attention, AttentionLayers, GlobalPrefixAttention, Place
    base: BIAS_TABLE, Backbone, WindowPrefix, backbone_of, image_channels
    block: Block, Plan, recompute
    from_config: build_block
    layers: PositionConv, RMSNorm, build_norm, init_transformer, module_list,
        resize_grid, round_up, sines_and_cosines, to_map
    lora: find_adapters
    neighbours: AxisTiles, NeighbourPlan
    position_bias: DecomposedBiasAttention, offset_counts
    swin: RoPESwin
    vit: GROUND, RoPEViT, is_norm
    windows: WindowPlan
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .nat import RoPENAT
    from .swin import RoPESwin
    from .vit import RoPEViT

__all__ = ['RoPENAT', 'RoPESwin', 'RoPEViT']

_MODULES = dict(RoPENAT='nat', RoPESwin='swin', RoPEViT='vit')


def __getattr__(name: str) -> Any:
    """A backbone, imported with its module."""
    if name in _MODULES:
        return getattr(import_module(f'.{_MODULES[name]}', __name__), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
