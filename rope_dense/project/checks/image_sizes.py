"""Check image sizes against the patches of a backbone."""

import numpy as np
from mmengine.config import Config, ConfigDict
from torch import nn

from ...backbones.base import Backbone
from ...utils.config_parts import size_steps
from ..errors import UsageError
from ..parts import datasets_of

SIZES = ('size', 'crop_size', 'scale', 'scales')  # settings of transforms, in pixels


def check_image_sizes(cfg: Config, model: nn.Module, loaders: tuple[str, ...]) -> None:
    """Raise UsageError for an image size below a patch, or a stride that leaves gaps."""
    patch = patch_size(model)
    parts = {f'model.{name}': cfg.model.get(name) for name in ('data_preprocessor', 'test_cfg')}
    for loader in loaders:
        parts |= {f'{key}.pipeline': d.get('pipeline') for key, d in datasets_of(cfg, loader)}
    sizes = (size for key, part in parts.items() for size in size_steps(part, key, SIZES))
    for key, node, name in sizes:
        if (side := shortest_side(node, name)) < patch:
            raise UsageError(
                f'{key}.{name}={node[name]}: leaves an image side of {side:g} pixels, and the '
                f'backbone cuts images into patches of {patch} pixels; give {patch} or more'
            )
    test_cfg = cfg.model.get('test_cfg') or ConfigDict()
    if test_cfg.get('mode') == 'slide' and test_cfg.get('stride'):
        stride, crop = test_cfg.stride, test_cfg.crop_size
        if any(step > side for step, side in zip(stride, crop, strict=True)):
            raise UsageError(
                f'model.test_cfg.stride={stride} is more than model.test_cfg.crop_size={crop}: '
                'pixels between the windows would get no label'
            )


def patch_size(model: nn.Module) -> int:
    """Side of the backbone's patches in pixels; 1 for a backbone without any."""
    backbone = getattr(model, 'backbone', nn.Identity())
    if isinstance(backbone, Backbone):
        return backbone.patch_embed.patch_size
    first = next((part for part in backbone.modules() if isinstance(part, nn.Conv2d)), None)
    return max(first.stride) if first is not None and first.stride == first.kernel_size else 1


def shortest_side(node: ConfigDict, name: str) -> float:
    """The shortest side that a number, a pair, or a list of these leaves; else infinity."""
    is_relative = str(node.get('crop_type', '')).startswith('relative')
    try:
        sizes = np.array([] if is_relative else node[name], float)
    except (TypeError, ValueError):  # no size in pixels
        return np.inf
    if not sizes.size:
        return np.inf
    sizes = sizes.reshape(-1, 1) if name == 'scales' and sizes.ndim == 1 else np.atleast_2d(sizes)
    # A resize that keeps the ratio bounds both sides; either may end up shorter.
    bounds = name.startswith('scale') and node.get('keep_ratio') and (sizes > 0).all()
    return (sizes.max(1) if bounds else sizes.min(1)).min()
