"""Heads that mmseg and mmdet lack, where these are installed."""

from importlib.util import find_spec

from .eomt import EoMT

__all__ = ['EoMT']

if find_spec('mmdet'):
    from .eomt_head import EoMTHead  # noqa: F401

    __all__ += ['EoMTHead']
if find_spec('mmseg'):
    from .linear_head import LinearHead  # noqa: F401

    __all__ += ['LinearHead']
if find_spec('mmdet') and find_spec('mmseg'):
    from .eomt_seg_head import EoMTSegHead  # noqa: F401

    __all__ += ['EoMTSegHead']
