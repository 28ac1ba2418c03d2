"""Build the model and the optimizer of a config, and name its classes."""

import copy
import logging
from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np
import torch
from mmengine.config import Config, ConfigDict
from mmengine.logging import MMLogger
from mmengine.model import BaseModel, revert_sync_batchnorm
from mmengine.optim import OptimWrapper, build_optim_wrapper
from mmengine.registry import DATASETS, MODELS, OPTIM_WRAPPERS
from torch import nn

from ..data.classes import IGNORED, distinct_colour
from ..data.mask_labels import class_numbers, stored_numbers
from ..utils.config_parts import nodes
from ..utils.errors import UsageError
from .building import build_part, building
from .contents import (
    check_angle_convention,
    class_info,
    component_of,
    datasets_of,
    model_heads,
    stored_classes,
)

Colour = tuple[int, int, int]  # red, green, blue


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
    # Or every initialised weight is listed
    MMLogger.get_current_instance().setLevel('WARNING')
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


def classes_and_colours(
    cfg: Config, checkpoint: dict
) -> tuple[list[str], list[Colour]]:
    """Classes and colours from the checkpoint, else the test data set; else distinct colours.

    UsageError for another number of classes than the heads of the model have.
    """
    check_angle_convention(cfg, checkpoint)
    key, dataset = next(datasets_of(cfg, 'test_dataloader'))
    known = class_info(cfg, dataset) | stored_classes(checkpoint)
    classes: Sequence[str] = known.get('classes') or ()
    palette = known.get('palette') or ()
    check_classes(cfg, key, classes)
    if len(palette) < len(classes):
        palette = [*map(distinct_colour, range(len(classes)))]
    return list(classes), [tuple(colour) for colour in palette[: len(classes)]]


def mask_numbers(cfg: Config) -> np.ndarray | None:
    """The number of each label in the masks of the test data set, see ``stored_numbers``.

    None for a data set without masks, or with more classes than labels have a byte. ValueError for
    numbers that no PNG can have.
    """
    _, dataset = next(datasets_of(cfg, 'test_dataloader'))
    if 'kind' in dataset:  # of a ``TiledDataset``
        dataset = ConfigDict(dataset, type=dataset.kind)
    kind: Any = component_of(cfg, DATASETS, dataset)
    classes = class_info(cfg, dataset).get('classes') or ()
    void = dataset.get('void') or ()
    if not hasattr(kind, 'get_label_map') or len(classes) > IGNORED:
        return None
    # The data set may have some of its class's only.
    known = kind.METAINFO.get('classes') or classes
    numbers = class_numbers(known, dataset.get('values'), void)
    default = signature(kind).parameters.get('reduce_zero_label')
    reduces = dataset.get('reduce_zero_label', default and default.default)
    own = [numbers[known.index(name)] + bool(reduces) for name in classes]
    return stored_numbers(own, void)


def num_things(cfg: Config) -> int:
    """The number of things among the classes of a panoptic model; they are the first."""
    return cfg.model.panoptic_fusion_head.get('num_things_classes', 80)  # as mmdet


def check_classes(cfg: Config, key: str, classes: Sequence[str]) -> None:
    """Raise UsageError unless the heads predict as many classes as the data set at `key` has."""
    for head, node in model_heads(cfg):
        if node.get('num_classes') not in (None, len(classes)):
            raise UsageError(
                f'{head}.num_classes={node.num_classes}, but {key} has {len(classes)} classes: set '
                f'--cfg-options {head}.num_classes={len(classes)}, or change the classes by '
                f'{key}.metainfo'
            )
