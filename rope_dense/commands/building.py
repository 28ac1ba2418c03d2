"""Parts of a config, built with errors of one line that name the key of the part."""

from __future__ import annotations

import copy
import inspect
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from mmengine.config import Config, ConfigDict
from mmengine.registry import MODELS, Registry, root

from ..checkpoints import CheckpointError
from ..integrations.hub_config import is_stored, registered_only
from .config import component_of, nodes
from .errors import UsageError, nearest

REGISTRIES = [registry for registry in vars(root).values() if isinstance(registry, Registry)]
UNKNOWN_TYPE = re.compile(r'(\S+) is not in the (\w+)::(.+?) registry')  # mmengine's message
NO_TYPE = 'must contain the key "type"'  # mmengine's message, too
UNKNOWN_ARGUMENT = re.compile(r"\.__init__\(\) got an unexpected keyword argument '(\w+)'")


def build_part(
    cfg: Config, key: str, registry: Registry, settings: dict, **arguments: object
) -> Any:
    """Build the part of a config at a key, in the scope of the config; errors as in ``building``.

    Args:
        settings: of the part. They are copied, because some parts change theirs (DINO's head).
        arguments: added to the settings.
    """
    guard = registered_only() if is_stored(cfg) else nullcontext()
    scope = registry.switch_scope_and_registry(cfg.default_scope)
    with guard, building(cfg, key), scope as scoped:
        return scoped.build(ConfigDict(copy.deepcopy(settings), **arguments))


@contextmanager
def building(cfg: Config, *keys: str) -> Iterator[None]:
    """Within this context, an error in building parts of a config becomes a UsageError.

    It names the part with the unknown type or argument, else the innermost part that fails in the
    same way when it is built alone, else the part at the first key.

    Args:
        keys: of the parts. An empty key is the whole config, whose parts are not built alone.
    """
    try:
        yield
    except (UsageError, CheckpointError, OSError):  # the last names its file
        raise
    except Exception as error:  # a component can fail in any way
        logging.disable(logging.WARNING)  # mmengine warns of registries that a task does not have
        try:
            reason = explain(cfg, keys or ('',), error)
        finally:
            logging.disable(logging.NOTSET)
        raise UsageError(reason) from error


def explain(cfg: Config, keys: tuple[str, ...], error: Exception) -> str:
    """The key of the part that cannot be built, and the reason."""
    parts = [(key, part_at(cfg, key)) for key in keys]
    typed = [
        (key, node)
        for start, part in parts
        for key, node in (nodes(part, start) if start else ())
        if node.get('type')
    ]
    message = str(error.args[0]) if error.args else ''
    if match := UNKNOWN_TYPE.match(message):
        key = next((f'{key}.type' for key, node in typed if node['type'] == match[1]), keys[0])
        registry = next((known for known in REGISTRIES if known.name == match[3]), MODELS)
        known = names_in(cfg, registry)
        return (
            f'{key}: no {match[1]!r} in the registry {match[2]}::{match[3]}'
            f'{nearest(match[1], known)}'
        )
    if NO_TYPE in message:
        message, _, _ = message.partition('\n')  # the arguments that code adds follow
        for key, node in (pair for start, part in parts for pair in nodes(part, start)):
            if 'type' not in node and message.endswith(f'but got {node}'):
                return f'{key}: a type is missing, the keys are {", ".join(map(str, node))}'
    if match := UNKNOWN_ARGUMENT.search(message):
        for key, node in reversed(typed):
            for component in components(cfg, node) if match[1] in node else ():
                if match[1] not in (allowed := arguments_of(component)):
                    return (
                        f'{key}: unknown argument {match[1]!r} of {component.__name__}'
                        f'{nearest(match[1], allowed)}; allowed: {", ".join(allowed) or "none"}'
                    )
    if isinstance(error, KeyError) and ' ' not in message:
        message = f'no {message!r} in a part that needs it'
    alone = ((key, node) for key, node in reversed(typed) if fails_alone(cfg, node, error))
    key, part = next(alone, parts[0])
    kind = part.get('type') if isinstance(part, dict) else None
    named = f'{key}: {kind}' if kind else key or 'the config'
    return f'{named} cannot be built: {message or type(error).__name__}'


def part_at(cfg: Config, key: str) -> object:
    """The part of a config at a dotted key; the whole config for an empty key."""
    part = cfg._cfg_dict
    for name in key.split('.') if key else ():
        part = part[int(name)] if isinstance(part, (list, tuple)) else (part or {}).get(name)
    return part


def names_in(cfg: Config, registry: Registry) -> set[str]:
    """The names that a config of the task of `cfg` can use."""
    with registry.switch_scope_and_registry(cfg.get('default_scope')) as task_registry:
        parent = task_registry.parent
        return {*task_registry.module_dict, *(parent.module_dict if parent else ())}


def components(cfg: Config, node: ConfigDict) -> list[type]:
    """The classes that the type of a part names, in whatever registry it is."""
    found = [component_of(cfg, registry, node) for registry in REGISTRIES]
    return [component for component in dict.fromkeys(found) if inspect.isclass(component)]


def fails_alone(cfg: Config, node: ConfigDict, error: Exception) -> bool:
    """True if building a part alone raises the same error."""
    for registry in REGISTRIES:
        if component_of(cfg, registry, node) is None:
            continue
        with registry.switch_scope_and_registry(cfg.get('default_scope')) as task_registry:
            try:
                task_registry.build(copy.deepcopy(node))
            except Exception as other:  # of any code
                if (type(other), str(other)) == (type(error), str(error)):
                    return True
    return False


def arguments_of(component: type) -> list[str]:
    """Names of the arguments of a class and of the base classes to which it passes arguments."""
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
