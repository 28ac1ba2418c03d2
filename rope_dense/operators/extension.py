"""The module that stands in for ``mmcv._ext``, the compiled operators of mmcv.

To add an operator, write a function with its name and arguments in ``mmcv._ext`` and name its
module in ``MODULES``.
"""

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from inspect import isfunction
from types import ModuleType
from typing import Any, NoReturn

from ..utils.configs import DOCS
from . import (
    deform_conv,
    deformable_attention,
    focal_loss,
    nms,
    oriented_features,
    polygons,
    roi_align,
    roi_align_rotated,
    roi_pool,
    rotated,
)

NAME = 'mmcv._ext'
MODULES: tuple[ModuleType, ...] = (
    deform_conv,
    deformable_attention,
    focal_loss,
    nms,
    oriented_features,
    polygons,
    roi_align,
    roi_align_rotated,
    roi_pool,
    rotated,
)

# First letters of the operators that are not built, and what needs them in mmdet, mmseg, mmrotate.
NEEDED_BY = {
    'carafe': 'necks and mask heads with CARAFE',
    'line_nms': 'CLRNet',
    'masked_': 'guided anchoring (GA-RPN, GA-RetinaNet)',
    'psamask': 'PSANet',
    'sync_bn': 'norm layers of type MMSyncBN (SyncBN is of PyTorch)',
}


class Extension(ModuleType):
    """A module with the functions of ``MODULES``; any other operator raises when it is called."""

    def __init__(self) -> None:
        super().__init__(NAME, __doc__)
        # Without a specification, `find_spec` fails for a module that is imported already.
        self.__spec__ = ModuleSpec(NAME, None, origin=__name__)
        for module in MODULES:
            for name, value in vars(module).items():
                if isfunction(value):
                    setattr(self, name, value)

    def get_compiler_version(self) -> str:
        return 'none (operators in PyTorch)'

    def get_compiling_cuda_version(self) -> str:
        return 'none (operators in PyTorch)'

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        # mmcv asks at import for some hundred names, most of them of operators that nobody calls.
        if name.startswith('_'):
            raise AttributeError(f'module {NAME!r} has no attribute {name!r}')

        def refuse(*args: Any, **kwargs: Any) -> NoReturn:
            user = ''
            for prefix, needs in NEEDED_BY.items():
                if name.startswith(prefix):
                    user = f', which {needs} needs'
            raise NotImplementedError(
                f'mmcv is installed without its compiled operator {name}{user}; the others run in '
                'PyTorch, this one has to be compiled: make setup OPERATORS=compiled '
                f'({DOCS}/operators.md)'
            )

        return refuse


def provide_extension() -> None:
    """Register operators in PyTorch as ``mmcv._ext`` where mmcv has no compiled ones that work.

    Call it before ``mmcv.ops`` is imported. Compiled operators for another torch do not import; a
    warning then says so. Any other error of theirs is raised.
    """
    if find_spec(NAME) is not None:
        try:
            import_module(NAME)
            return
        except ImportError as error:
            if 'undefined symbol' not in str(error):
                raise
        warnings.warn(
            'mmcv was compiled against another torch than the installed one; operators in PyTorch '
            'take the place of the compiled ones. To compile again: make setup OPERATORS=compiled',
            stacklevel=3,
        )
    sys.modules[NAME] = Extension()
