"""The model and loaders of a config, after the checks that all commands share."""

from typing import NamedTuple

from mmengine.config import Config
from mmengine.model import BaseModel

from .checks.data import check_data, check_image_sizes
from .contents import check_angle_convention, used_loaders
from .model import build_model
from .weights import (
    check_class_names,
    check_initial_weights,
    load_tested_weights,
    preload_tested_weights,
)


class Ready(NamedTuple):
    """Model, loaders and checkpoint of a command.

    Attributes:
        loaders: keys of the dataloaders in the config.
        checkpoint: contents of the tested weights; {} in a training, and of weights to download.
    """

    model: BaseModel
    loaders: tuple[str, ...]
    checkpoint: dict


def ready(
    cfg: Config,
    *loops: str,
    weights: str | None = None,
    model: BaseModel | None = None,
    has_runner: bool = True,
    has_data: bool = True,
    has_weights: bool = True,
) -> Ready:
    """Model and loaders for loops of a config.

    Args:
        loops: 'train', 'val' or 'test'; the first one must be in the config.
        weights: to test; None for a training, which starts from weights of the config.
        model: of an inferencer; by default it is built.
        has_runner: a Runner reads the weights again, for which their contents are kept.
        has_data: the data of the loaders are used, too, not only their pipelines.
        has_weights: weights and data are read at all.

    Raises:
        UsageError, CheckpointError, LoadError: a part cannot be built, weights or data do not fit.
    """
    loaders = used_loaders(cfg, *loops)
    model = build_model(cfg) if model is None else model
    check_image_sizes(cfg, model, loaders)
    stored: dict = {}
    if not has_weights:
        return Ready(model, loaders, stored)
    if weights is None:
        check_initial_weights(cfg, model)
    else:
        stored = (preload_tested_weights if has_runner else load_tested_weights)(
            weights, model
        )
        check_angle_convention(cfg, stored)
    if has_data:
        check_data(cfg, loaders)
    if has_data and weights:
        check_class_names(cfg, loaders[0], stored)
    return Ready(model, loaders, stored)
