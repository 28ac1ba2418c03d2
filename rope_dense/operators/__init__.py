"""mmcv's operators in PyTorch, for an mmcv without compiled ones. Needs torch alone.

Importing ``rope_dense`` calls ``provide_extension``. Each operator has the name and arguments of
the function in ``mmcv._ext`` that it replaces, and is compared with it in tests/operators.

Others import::

    deformable_attention: sample_maps
    extension: Extension
"""

from .extension import provide_extension

__all__ = ['provide_extension']
