"""When classes are registered: as soon as OpenMMLab is there, and no earlier.

To import ``rope_dense`` imports neither PyTorch nor OpenMMLab, which take seconds: its mathematics,
its commands' arguments and the reading of labels do without. Where mmengine is imported already, as
where a config is read, ``register`` registers at once. Else it waits for the first look into one of
mmengine's registries. mmengine's own classes wait for the same call, ``import_from_location``.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
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
    """Finds no module, and acts before two modules of OpenMMLab are imported."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> None:
        if fullname == 'mmcv.ops':  # asks for its operators
            import_module('rope_dense.operators').provide_extension()
        elif fullname == 'mmengine.registry.root':  # has the registries
            leave_out_import_noise()
            _wait_for_first_look(import_module('mmengine.registry.registry').Registry)


def _wait_for_first_look(kind: Any) -> None:
    """Let mmengine's ``Registry`` import the waiting modules before it looks for a name.

    Each time: a second thread has to wait until the first one has imported them.
    """
    import_locations = kind.import_from_location

    def import_from_location(registry: object) -> None:
        for module in _WAITING:
            import_module(module)
        import_locations(registry)

    kind.import_from_location = import_from_location


sys.meta_path.insert(0, _OpenMMLabImports())
