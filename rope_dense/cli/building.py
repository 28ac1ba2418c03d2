"""One line for a part of a config that cannot be built, with its key."""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from mmengine.config import Config, ConfigDict
from mmengine.registry import DATASETS, MODELS

from ..checkpoints import CheckpointError
from .config import component_of, items_of, nearest_in
from .errors import UsageError, nearest

UNKNOWN_ARGUMENT = re.compile(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'")
UNKNOWN_TYPE = re.compile(r'(\S+) is not in the (?:(\S+)::)?(.+?) registry')
LOCALS = ('cfg', 'dataloader')  # what functions of mmengine call the config of what they build


@contextmanager
def building(cfg: Config) -> Iterator[None]:
    """Within it an error in building a part of the config is one line with the key of the part.

    Raises:
        UsageError: a part cannot be built.
    """
    try:
        yield
    except (UsageError, CheckpointError):
        raise
    except Exception as error:  # a component can fail in any way
        part = failed_part(error)
        if part is None:
            raise
        raise UsageError(explain(cfg, part, error)) from error


def failed_part(error: Exception) -> dict | None:
    """The config of the innermost part that mmengine was building, or None."""
    part = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if 'mmengine' not in code.co_filename or not code.co_name.startswith('build'):
            continue
        for name in LOCALS:
            if isinstance(given := frame.f_locals.get(name), dict):
                part = given
    return part


def explain(cfg: Config, part: dict, error: Exception) -> str:
    """Which key cannot be built, and why."""
    key, message = key_of(cfg, part), str(error.args[0]) if error.args else ''
    if match := UNKNOWN_ARGUMENT.search(message):
        component, argument = component_named(cfg, part), match[2]
        if argument in part and component is not None:
            allowed = arguments_of(component)
            return (
                f'{key}: unknown argument {argument!r} of {component.__name__}'
                f'{nearest(argument, allowed)}; allowed: {", ".join(allowed)}'
            )
    if match := UNKNOWN_TYPE.search(message):
        registry = DATASETS if match[3] == 'dataset' else MODELS
        return (
            f'{key}.type: no {match[1]!r} in the registry {match[2] or "mmengine"}::{match[3]}'
            f'{nearest_in(registry, match[1])}'
        )
    if isinstance(error, KeyError):
        message = f'no {message!r} in a part that needs it'
    return f'{key}: {part.get("type", "it")} cannot be built: {message or type(error).__name__}'


def key_of(cfg: Config, part: dict) -> str:
    """The key of a part, some of whose entries may have been changed while it was built: the dict
    of the same type that shares most entries with it."""
    alike = {
        key: sum(name in part and part[name] == node[name] for name in node)
        for key, node in nodes(cfg._cfg_dict, '')
        if node.get('type') == part.get('type')
    }
    return max(alike, key=alike.get, default=str(part.get('type', 'the config')))


def nodes(node: object, key: str) -> Iterator[tuple[str, dict]]:
    """(key, dict) of each dict below a node of a config, the outer ones first."""
    if isinstance(node, dict) and key:
        yield key, node
    for name, item in items_of(node):
        yield from nodes(item, f'{key}.{name}' if key else str(name))


def component_named(cfg: Config, part: dict) -> type | None:
    """The class of a part, if it is a model or a data set."""
    found = (component_of(cfg, registry, ConfigDict(part)) for registry in (MODELS, DATASETS))
    return next((component for component in found if inspect.isclass(component)), None)


def arguments_of(component: type) -> list[str]:
    """Names of the arguments of a class, those that it hands on to its base classes included."""
    names: dict[str, None] = {}
    for cls in inspect.getmro(component):
        if '__init__' not in vars(cls):
            continue
        _, *parameters = inspect.signature(cls.__init__).parameters.values()
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        names |= {p.name: None for p in parameters if p.kind not in variadic}
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            break
    return list(names)
