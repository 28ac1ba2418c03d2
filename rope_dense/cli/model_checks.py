"""Checks of the model section of a config, and of the image sizes it has to cope with."""

import copy
import inspect
from collections.abc import Iterator, Sequence

from mmengine.config import Config, ConfigDict
from mmengine.logging import MMLogger
from mmengine.model import revert_sync_batchnorm
from mmengine.registry import MODELS, OPTIMIZERS
from torch import nn

from ..backbones.base import Backbone
from .building import building
from .config import component_of, items_of, leaf_datasets, nearest_in
from .errors import UsageError


def build_model(cfg: Config) -> nn.Module:
    """Build the model on the CPU as the Runner will, its weights not yet initialised.

    Raises:
        UsageError: an unknown component or argument, or a value that a component refuses.
    """
    with building(cfg), MODELS.switch_scope_and_registry(cfg.default_scope) as models:
        return models.build(copy.deepcopy(cfg.model))  # DINO edits its head's settings


def random_model(cfg: Config) -> nn.Module:
    """The model of a config with its random initial weights; none are fetched or read."""
    for _, node in typed_nodes(cfg.model, 'model'):
        init_cfg = node.get('init_cfg')
        if isinstance(init_cfg, dict) and init_cfg.get('type') == 'Pretrained':
            node.init_cfg = None
    model = build_model(cfg)
    MMLogger.get_current_instance().setLevel('WARNING')  # or every initialised weight is listed
    model.init_weights()
    return revert_sync_batchnorm(model)


def check_optimizer(cfg: Config) -> None:
    """The optimizer must be a known one; mmengine says no more than that None cannot be called.

    Raises:
        UsageError: it is not.
    """
    optimizer = cfg.optim_wrapper.get('optimizer')
    if optimizer and component_of(cfg, OPTIMIZERS, optimizer) is None:
        name = optimizer.type
        raise UsageError(
            f'optim_wrapper.optimizer.type: no optimizer {name!r}{nearest_in(OPTIMIZERS, name)}'
        )


def typed_nodes(node: object, key: str) -> Iterator[tuple[str, ConfigDict]]:
    """Yield (config key, dict) of each dict at or below `node` that names a `type`."""
    if isinstance(node, dict) and isinstance(node.get('type'), str):
        yield key, node
    for name, item in items_of(node):
        yield from typed_nodes(item, f'{key}.{name}')


def check_image_sizes(cfg: Config, model: nn.Module, loaders: tuple[str, ...]) -> None:
    """Crops, resizes, paddings and windows must be positive and hold a patch of the backbone.

    Raises:
        UsageError: with the config key of the first that does not.
    """
    parts = [('model.data_preprocessor', cfg.model.get('data_preprocessor'))]
    parts += [('model.test_cfg', cfg.model.get('test_cfg'))]
    for loader in loaders:
        parts += [(f'{k}.pipeline', d.get('pipeline')) for k, d in leaf_datasets(cfg, loader)]
    patch = _patch_size(cfg, model)
    for part, node in parts:
        for key, given, least in _sizes(node, part):
            if least < max(patch, 1):
                raise UsageError(
                    f'{key}={given}: leaves an image side of {least} pixels, and the backbone cuts '
                    f'images into patches of {patch} pixels; give {patch} or more'
                )


def _patch_size(cfg: Config, model: nn.Module) -> int:
    """Side of the backbone's patches in pixels; 1 for a backbone without any."""
    backbone = getattr(model, 'backbone', None)
    if backbone is None:
        return 1
    if isinstance(backbone, Backbone):
        return backbone.patch_embed.patch_size
    parameters = inspect.signature(type(backbone)).parameters
    default = parameters['patch_size'].default if 'patch_size' in parameters else 1
    patch = cfg.model.get('backbone', {}).get('patch_size', default)
    return patch if isinstance(patch, int) else max(patch)


def _sizes(node: object, key: str) -> Iterator[tuple[str, object, float]]:
    """Yield (config key, value, smallest side it leaves) of the image sizes at or below `node`."""
    if isinstance(node, dict):
        relative = str(node.get('crop_type', '')).startswith('relative')
        for name in ('size', 'crop_size', 'scale', 'scales'):
            for size in [] if relative else _as_pairs(node.get(name), name == 'scales'):
                # A resize that keeps the ratio bounds both sides; either may end up shorter.
                bound = max if name.startswith('scale') and node.get('keep_ratio') else min
                yield f'{key}.{name}', node[name], bound(size) if min(size) > 0 else min(size)
    for name, item in items_of(node):
        yield from _sizes(item, f'{key}.{name}')


def _as_pairs(value: object, several: bool) -> list[tuple[float, ...]]:
    """The sizes in a setting, each a number or a pair; `several`: a list of such."""
    sizes = value if several and isinstance(value, (list, tuple)) else [value]
    pairs = [size if isinstance(size, (list, tuple)) else (size,) for size in sizes]
    return [tuple(p) for p in pairs if p and all(isinstance(n, (int, float)) for n in p)]


def check_classes(cfg: Config, key: str, classes: Sequence[str]) -> None:
    """The heads must predict as many classes as the data set at `key` has.

    Raises:
        UsageError: with the config keys of both.
    """
    for name, part in cfg.model.items():
        for head in part if isinstance(part, list) else [part]:
            given = head.get('num_classes') if name.endswith('_head') and head else None
            if given not in (None, len(classes)):
                raise UsageError(
                    f'model.{name}.num_classes={given}, but {key} has {len(classes)} classes: set '
                    f'--cfg-options model.{name}.num_classes={len(classes)}, or change the classes '
                    f'by {key}.metainfo'
                )
