"""Rotary position embedding (RoPE) vision backbones for OpenMMLab.

Importing the package registers everything in mmengine's registries; a config asks for it with
`custom_imports = dict(imports=['rope_dense'])`. What needs mmdet or mmseg is registered where that
package is installed. With torch alone, `rope_dense.rope` works and a warning says what to install.
"""

import warnings
from importlib.util import find_spec

from .requirements_check import installation_advice, missing_packages
from .version import __version__

__all__ = ['__version__']

if missing := missing_packages():
    warnings.warn(installation_advice(missing), stacklevel=2)
else:
    from . import backbones, checkpoints, engine, evaluation, heads, necks  # noqa: F401

    if find_spec('mmdet'):
        from . import detectors  # noqa: F401
        from .datasets import transforms  # noqa: F401
    if find_spec('mmdet') and find_spec('mmseg'):
        from . import segmentors  # noqa: F401
