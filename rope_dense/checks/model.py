"""Build models and optimizers, check their sizes and classes, and load trained models."""

import copy
import logging
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from mmengine.config import Config, ConfigDict
from mmengine.logging import MMLogger
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.optim import OptimWrapper, build_optim_wrapper
from mmengine.registry import DATASETS, MODELS, OPTIM_WRAPPERS
from torch import nn

from ..backbones.base import Backbone
from ..project.building import build_part, building
from ..project.errors import UsageError
from ..project.load import component_of, datasets_of
from ..project.task import check_convention
from ..project.weights import load_tested_weights
from ..utils.config_parts import nodes, size_steps

Colour = tuple[int, int, int]  # red, green, blue
SIZES = ('size', 'crop_size', 'scale', 'scales')  # settings of transforms, in pixels


def build_model(cfg: Config) -> BaseModel:
    """Build the model as the Runner will, without initial weights; UsageError if it fails."""
    return build_part(cfg, 'model', MODELS, cfg.model)


def build_shapes(cfg: Config) -> BaseModel:
    """``build_model`` on the meta device, without memory for weights.

    On the CPU where parts of mmdet and mmseg read values of tensors when they are built.
    """
    try:
        with torch.device('meta'):
            return build_model(cfg)
    except UsageError:
        return build_model(cfg)


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


def build_optimizer(cfg: Config, model: nn.Module) -> OptimWrapper:
    """Build the optimizer with its parameter groups, without the log of each parameter."""
    logging.disable(logging.INFO)
    scope = OPTIM_WRAPPERS.switch_scope_and_registry(cfg.default_scope)
    try:
        with building('optim_wrapper'), scope:
            return build_optim_wrapper(model, copy.deepcopy(cfg.optim_wrapper))
    finally:
        logging.disable(logging.NOTSET)


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


def check_classes(cfg: Config, key: str, classes: Sequence[str]) -> None:
    """Raise UsageError unless the heads predict as many classes as the data set at `key` has."""
    for head, node in heads(cfg):
        if node.get('num_classes') not in (None, len(classes)):
            raise UsageError(
                f'{head}.num_classes={node.num_classes}, but {key} has {len(classes)} classes: set '
                f'--cfg-options {head}.num_classes={len(classes)}, or change the classes by '
                f'{key}.metainfo'
            )


def heads(cfg: Config) -> Iterator[tuple[str, ConfigDict]]:
    """(Key, settings) of each head of the model, those within other heads too."""
    for key, node in nodes(cfg.model, 'model'):
        *_, outer, name = key.split('.') if '.' in key else ('', key)
        if (outer if name.isdigit() else name).endswith('_head'):
            yield key, node


def load_trained(cfg: Config, checkpoint: str) -> tuple[BaseModel, list[str], list[Colour]]:
    """The model of a config with its weights, names and colours of its classes; or UsageError."""
    model = build_model(cfg)
    return model, *classes_and_colours(cfg, load_tested_weights(checkpoint, model))


def classes_and_colours(cfg: Config, checkpoint: dict) -> tuple[list[str], list[Colour]]:
    """Classes and colours from the checkpoint, else the test data set; else random colours.

    UsageError for another number of classes than the heads of the model have.
    """
    check_convention(cfg, checkpoint)
    key, dataset = next(datasets_of(cfg, 'test_dataloader'))
    known = dict(getattr(component_of(cfg, DATASETS, dataset), 'METAINFO', {}))
    known |= dataset.get('metainfo') or {}
    stored = (checkpoint.get('meta') or {}).get('dataset_meta') or {}
    known |= {name.lower(): value for name, value in stored.items() if value}  # once CLASSES
    classes: Sequence[str] = known.get('classes') or ()
    palette = known.get('palette') or ()
    check_classes(cfg, key, classes)
    if len(palette) < len(classes):
        palette = np.random.default_rng(0).integers(256, size=(len(classes), 3)).tolist()
    return list(classes), [tuple(colour) for colour in palette[: len(classes)]]
