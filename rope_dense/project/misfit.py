"""Say which part of a model does not take the maps that its backbone gives."""

import re
import traceback

import torch
from torch import nn

from ..backbones.base import Backbone
from ..utils.errors import message_of

OF_SHAPES = re.compile('channels|shape|size|index')  # in messages of PyTorch


def misfit_text(model: nn.Module, error: Exception) -> str | None:
    """What fails in a part behind the backbone, with the backbone's maps; None elsewhere.

    Args:
        model: a detector or segmentor with a ``backbone`` of this package.
        error: as caught, of its first iteration.
    """
    backbone = getattr(model, 'backbone', None)
    is_of_memory = isinstance(error, torch.OutOfMemoryError)
    if not isinstance(backbone, Backbone) or is_of_memory:
        return None
    if str(error) and not OF_SHAPES.search(str(error)):  # mmdet's FPN says nothing
        return None
    names = {child: name for name, child in model.named_children()}
    for frame, _ in traceback.walk_tb(error.__traceback__):
        part = frame.f_locals.get('self')
        name = names.get(part, '') if isinstance(part, nn.Module) else ''
        if name and name not in ('backbone', 'data_preprocessor'):  # they see no maps
            channels = ', '.join(map(str, backbone.out_channels))
            return (
                f'model.{name} fails: {message_of(error)}; the maps of the backbone have '
                f'channels {channels}: see in_channels, in_index or embed_dim of its neck and heads'
            )
    return None
