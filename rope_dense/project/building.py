"""Build parts of a config; any error becomes one line with the key of the part."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from mmengine.config import Config, ConfigDict
from mmengine.device import get_device
from mmengine.registry import Registry

from ..checkpoints import CheckpointError
from ..data.loading import LoadError
from ..utils.errors import UsageError, message_of
from ..utils.results import ForeignFileError
from .hub_config import is_stored_config, registered_only

# Their messages name what is wrong.
NAMED = UsageError, CheckpointError, LoadError, ForeignFileError, OSError


@contextmanager
def building(key: str) -> Iterator[None]:
    """Within this context, any error becomes a UsageError of one line, with the key of a part."""
    try:
        yield
    except NAMED:
        raise
    except Exception as error:  # a part can fail in any way
        raise UsageError(f'{key}: {message_of(error)}') from error


def build_part(
    cfg: Config, key: str, registry: Registry, settings: dict, **arguments: object
) -> Any:
    """Build the part of a config at a key, in the scope of the config; UsageError if it fails.

    The settings are copied, because some parts change theirs (DINO's head).
    """
    guard = registered_only() if is_stored_config(cfg) else nullcontext()
    scope = registry.switch_scope_and_registry(cfg.default_scope)
    with building(key), guard, scope as scoped:
        return scoped.build(ConfigDict(copy.deepcopy(settings), **arguments))


def checked_device(name: str | None = None) -> torch.device:
    """The device of a name such as 'cuda:1', by default a GPU; UsageError if it is not there."""
    with building(f'device (--device) {name}'):
        device = torch.device(name or get_device())
        torch.empty(0, device=device)
    return device
