"""mmrotate, the OpenMMLab package for oriented boxes, imported beside the pins of this package.

A config asks for it with ``custom_imports = dict(imports=['rope_dense',
'rope_dense.models.mmrotate'])``.
"""

import contextlib
import io
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.pool import ThreadPool
from types import ModuleType, SimpleNamespace

from mmengine.registry import FUNCTIONS, OPTIM_WRAPPERS, Registry

NEEDED = {'mmrotate': 'onedl-mmrotate', 'faster_coco_eval': 'faster-coco-eval'}


def import_mmrotate() -> None:
    """Register mmrotate's models, data sets and metrics.

    One of its detectors, H2RBox-v2, imports torchvision. Where torchvision is not installed, that
    detector alone raises an error, when it is used. ImportError if mmrotate, or what its metrics
    need, is not installed.
    """
    missing = [package for name, package in NEEDED.items() if find_spec(name) is None]
    if missing:
        raise ImportError(
            f'oriented boxes need {" and ".join(missing)}: pip install --no-deps '
            f'{" ".join(missing)} (the extra rope_dense[oriented])'
        )
    import_module('mmdet.models')  # its optional imports see no stand-in
    with torchvision_or_stand_in(), contextlib.redirect_stdout(io.StringIO()):
        for part in ('models', 'datasets', 'evaluation', 'visualization'):
            import_module(f'mmrotate.{part}')
    # Or mmengine warns each time that it looks there.
    for parent in (FUNCTIONS, OPTIM_WRAPPERS):
        if 'mmrotate' not in parent.children:
            Registry(parent.name, parent=parent, scope='mmrotate')
    # At every resize.
    warnings.filterwarnings('ignore', 'The `clip` function does nothing')
    # Its metric starts four processes for each threshold, which import all of it anew.
    threads = SimpleNamespace(Pool=ThreadPool)
    metric = import_module('mmrotate.evaluation.functional.mean_ap')
    metric.get_context = lambda method: threads  # type: ignore[attr-defined]


class NoTorchvision(ModuleType):
    """Satisfies ``from torchvision import transforms`` and raises an error when it is used."""

    def __getattr__(self, name: str) -> object:
        if name.startswith('__'):
            raise AttributeError(name)
        raise ImportError('H2RBox-v2 needs torchvision, which is not installed')


@contextlib.contextmanager
def torchvision_or_stand_in() -> Iterator[None]:
    """Let ``from torchvision import transforms`` succeed; nothing stays in ``sys.modules``."""
    if find_spec('torchvision') is not None:
        yield
        return
    package = NoTorchvision('torchvision')
    package.transforms = NoTorchvision('torchvision.transforms')  # type: ignore[attr-defined]
    sys.modules['torchvision'] = package
    try:
        yield
    finally:
        del sys.modules['torchvision']


import_mmrotate()
