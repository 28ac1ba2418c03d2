"""When classes are registered: as soon as OpenMMLab is there, and no earlier.

To import ``rope_dense`` imports neither PyTorch nor OpenMMLab, which take seconds: its mathematics,
its commands' arguments and the reading of labels do without. Where mmengine is imported already, as
where a config is read, ``register`` registers at once. Else it waits for the first look into one of
mmengine's registries. mmengine's own classes wait for the same call, ``import_from_location``.
"""

import sys
from collections.abc import Sequence
from functools import wraps
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from .utils.imports import leave_out_import_noise

_WAITING: list[str] = []  # modules, in their order


def register(module: str) -> None:
    """Import a module, which registers classes, now or at the first look into a registry."""
    if sys.modules.get('mmengine'):
        import_module(module)
    else:
        _WAITING.append(module)


class _OpenMMLabImports(MetaPathFinder):
    """Acts when modules of OpenMMLab are imported: before mmcv.ops, and after mmengine.registry."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname == 'mmcv.ops':  # reads the operators, which have to be there
            import_module('rope_dense.operators').provide_extension()
        if fullname != 'mmengine.registry':
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            leave_out_import_noise()
            _wait_for_first_look(module.Registry)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _wait_for_first_look(kind: Any) -> None:
    """Let mmengine's ``Registry`` import the waiting modules before it looks for a name.

    Each time: a second thread has to wait until the first one has imported them.
    """
    import_locations = kind.import_from_location

    @wraps(import_locations)
    def import_from_location(registry: object) -> None:
        for module in _WAITING:
            import_module(module)
        import_locations(registry)

    kind.import_from_location = import_from_location


sys.meta_path.insert(0, _OpenMMLabImports())
