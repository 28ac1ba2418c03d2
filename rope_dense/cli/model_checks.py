"""Checks of the model section of a config, and of the image sizes it has to cope with."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from mmengine.config import Config, ConfigDict
from mmengine.logging import MMLogger
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.registry import MODELS, OPTIMIZERS
from torch import nn

from ..backbones.base import Backbone
from .building import building
from .config import leaf_datasets, nodes
from .errors import UsageError

SIZES = ('size', 'crop_size', 'scale', 'scales')  # settings of transforms, in pixels


def build_model(cfg: Config) -> BaseModel:
    """Build the model on the CPU as the Runner will, its weights not yet initialised."""
    with building(cfg), MODELS.switch_scope_and_registry(cfg.default_scope) as models:
        return models.build(copy.deepcopy(cfg.model))  # DINO edits its head's settings


def random_model(cfg: Config) -> BaseModel:
    """The model of a config with its random initial weights; none are fetched or read."""
    for _, node in nodes(cfg.model):
        init_cfg = node.get('init_cfg')
        if isinstance(init_cfg, dict) and init_cfg.get('type') == 'Pretrained':
            node.init_cfg = None
    model = build_model(cfg)
    MMLogger.get_current_instance().setLevel('WARNING')  # or every initialised weight is listed
    model.init_weights()
    return revert_sync_batchnorm(model)


def check_optimizer(cfg: Config) -> None:
    """Build the optimizer, for one parameter. (A wrapper that does not know its optimizer says no
    more than that None cannot be called.)
    """
    if optimizer := cfg.optim_wrapper.get('optimizer'):
        with building(cfg), OPTIMIZERS.switch_scope_and_registry(cfg.default_scope) as optimizers:
            optimizers.build(ConfigDict(optimizer, params=[nn.Parameter(torch.zeros(1))]))


def check_image_sizes(cfg: Config, model: nn.Module, loaders: tuple[str, ...]) -> None:
    """Crops, resizes, paddings and windows must be positive and hold a patch of the backbone."""
    parts = {f'model.{name}': cfg.model.get(name) for name in ('data_preprocessor', 'test_cfg')}
    for loader in loaders:
        parts |= {f'{key}.pipeline': d.get('pipeline') for key, d in leaf_datasets(cfg, loader)}
    patch = patch_size(model)
    for key, node in (found for part in parts.items() for found in nodes(part[1], part[0])):
        for name in SIZES:
            if (side := shortest_side(node, name)) < patch:
                raise UsageError(
                    f'{key}.{name}={node[name]}: leaves an image side of {side:g} pixels, and the '
                    f'backbone cuts images into patches of {patch} pixels; give {patch} or more'
                )


@torch.no_grad()
def check_maps(model: BaseModel) -> None:
    """The neck, and the heads of a segmentor, must take the maps of a backbone of this package:
    tried on a small image. The model is in evaluation mode then.
    """
    backbone = getattr(model, 'backbone', None)
    if not isinstance(backbone, Backbone) or not hasattr(model, 'extract_feat'):
        return
    side = max(8 * patch_size(model), 64)
    image = torch.zeros(1, backbone.patch_embed.in_channels, side, side)
    model.eval()
    given = f'maps of blocks or stages {backbone.out_indices}, of {backbone.out_channels} channels'
    with fitting('neck', given):
        maps = model.extract_feat(image)
    for name, part in model.named_modules():
        if hasattr(part, 'in_index'):  # a head of mmseg's own, which takes maps alone
            with fitting(name, f'{len(maps)} maps of backbone and neck'):
                part(maps)


@contextmanager
def fitting(name: str, given: str) -> Iterator[None]:
    """Within it an error says that a part does not take what it was given."""
    try:
        yield
    except Exception as error:  # of any code
        raise UsageError(
            f'model.{name} does not take the {given} (model.backbone.out_indices): '
            f'{str(error) or type(error).__name__}'
        ) from error


def patch_size(model: nn.Module) -> int:
    """Side of the backbone's patches in pixels; 1 for a backbone without any."""
    backbone = getattr(model, 'backbone', nn.Identity())
    if isinstance(backbone, Backbone):
        return backbone.patch_embed.patch_size
    first = next((part for part in backbone.modules() if isinstance(part, nn.Conv2d)), None)
    return max(first.stride) if first is not None and first.stride == first.kernel_size else 1


def shortest_side(node: ConfigDict, name: str) -> float:
    """The shortest side that a setting leaves: a number, a pair, or a list of these; infinity where
    it is no size in pixels.
    """
    if node.get(name) is None or str(node.get('crop_type', '')).startswith('relative'):
        return np.inf
    try:
        sizes = np.array(node[name], float)
    except (TypeError, ValueError):
        return np.inf
    if not sizes.size:
        return np.inf
    sizes = sizes.reshape(-1, 1) if name == 'scales' and sizes.ndim == 1 else np.atleast_2d(sizes)
    # A resize that keeps the ratio bounds both sides; either may end up shorter.
    bounds = name.startswith('scale') and node.get('keep_ratio') and (sizes > 0).all()
    return (sizes.max(1) if bounds else sizes.min(1)).min()


def check_classes(cfg: Config, key: str, classes: Sequence[str]) -> None:
    """The heads must predict as many classes as the data set at `key` has."""
    for name, part in cfg.model.items():
        for head in part if isinstance(part, list) else [part]:
            given = head.get('num_classes') if name.endswith('_head') and head else None
            if given not in (None, len(classes)):
                raise UsageError(
                    f'model.{name}.num_classes={given}, but {key} has {len(classes)} classes: set '
                    f'--cfg-options model.{name}.num_classes={len(classes)}, or change the classes '
                    f'by {key}.metainfo'
                )
