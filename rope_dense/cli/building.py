"""One line for a part of a config that cannot be built, with its key."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from mmengine.config import Config

from ..checkpoints import CheckpointError
from .config import nodes
from .errors import UsageError, nearest

UNKNOWN_ARGUMENT = re.compile(r"\.__init__\(\) got an unexpected keyword argument '(\w+)'")
LOCALS = ('cfg', 'dataloader')  # what functions of mmengine call the config of what they build


@contextmanager
def building(cfg: Config) -> Iterator[None]:
    """Within it an error in building a part of the config is a UsageError with its key."""
    try:
        yield
    except (UsageError, CheckpointError, OSError):  # the last names its file
        raise
    except Exception as error:  # a component can fail in any way
        frames = building_frames(error)
        if not frames:
            raise
        raise UsageError(explain(cfg, frames, error)) from error


def building_frames(error: Exception) -> list[dict]:
    """Local variables of the functions of mmengine that were building from a config, the innermost
    first; the config is added as 'part'.
    """
    frames = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code, variables = frame.f_code, frame.f_locals
        if 'mmengine' in code.co_filename and code.co_name.startswith('build'):
            given = [variables.get(name) for name in LOCALS]
            parts = [part for part in given if isinstance(part, (dict, Config))]
            frames += [{**variables, 'part': parts[0]}] if parts else []
    return frames[::-1]


def explain(cfg: Config, frames: list[dict], error: Exception) -> str:
    """Which key cannot be built, and why. mmengine puts some parts together itself: then the key is
    that of the part around them.
    """
    variables, part = frames[0], frames[0]['part']
    component = variables.get('obj_cls')
    keys = [key_of(cfg, frame['part']) for frame in frames]
    key = next((key for key in keys if key), 'the config')
    message = str(error.args[0]) if error.args else ''
    match = UNKNOWN_ARGUMENT.search(message)
    if match and inspect.isclass(component) and match[1] in part:
        allowed = arguments_of(component)
        return (
            f'{key}: unknown argument {match[1]!r} of {component.__name__}'
            f'{nearest(match[1], allowed)}; allowed: {", ".join(allowed) or "none"}'
        )
    if 'obj_cls' in variables and component is None:
        registry = variables['registry']
        known = {*registry.module_dict, *(registry.parent.module_dict if registry.parent else ())}
        return (
            f'{key}{".type" if keys[0] else ""}: no {part["type"]!r} in the registry '
            f'{registry.scope}::{registry.name}'
            f'{nearest(part["type"], known)}'
        )
    if isinstance(error, KeyError) and ' ' not in message:
        message = f'no {message!r} in a part that needs it'
    what = f'{key}: {part["type"]}' if part.get('type') else key
    return f'{what} cannot be built: {message or type(error).__name__}'


def key_of(cfg: Config, part: dict | Config) -> str | None:
    """The key of a part, some of whose entries may have been changed while it was built: the dict
    of the same type that shares most entries with it. None if there is none.
    """
    if isinstance(part, Config):
        return 'the config'
    alike = {
        key: sum(name in part and part[name] == node[name] for name in node)
        for key, node in nodes(cfg._cfg_dict)
        if key and node.get('type') == part.get('type')
    }
    return max(alike, key=alike.__getitem__, default=None)


def arguments_of(component: type) -> list[str]:
    """Names of the arguments of a class, those that it hands on to its base classes included."""
    names: dict[str, None] = {}
    for cls in inspect.getmro(component):
        initialiser = vars(cls).get('__init__')
        if initialiser is None:
            continue
        _, *parameters = inspect.signature(initialiser).parameters.values()
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        names |= {p.name: None for p in parameters if p.kind not in variadic}
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            break
    return list(names)
