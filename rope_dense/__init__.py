"""Rotary position embedding (RoPE) vision backbones for OpenMMLab.

Importing the package registers what models and their training are made of in mmengine's registries;
a config asks for it with `custom_imports = dict(imports=['rope_dense'])`. Sharded training
(`rope_dense.engine.fsdp`) registers itself where the tools import it, `research` where a
config asks for it. What needs mmdet or
mmseg is registered where that package can be imported; where it is broken, a warning says so. Where
mmcv has no compiled operators, `rope_dense.operators` takes their place. With
torch alone, `rope_dense.rope` works and a warning says what to install.
"""

import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from . import moved  # noqa: F401  # finds modules under their old names
from .operators import provide_extension
from .utils.imports import installation_advice, leave_out_import_noise, missing_packages
from .version import __version__

__all__ = ['__version__', 'load', 'train']

# The parts that need the package of a task, or of both.
TASKS = {
    ('mmdet',): (
        'models.dino', 'models.eomt.detector',
        'models.deim.detector', 'models.deim.encoder', 'models.deim.head', 'models.deim.oriented',
        'models.instance_tta', 'models.channel_detection',
    ),
    ('mmseg',): (
        'models.depth', 'models.seg_tta',
        'models.channel_segmentation',
    ),
    ('mmdet', 'mmseg'): (
        'models.mask2former_head', 'models.eomt.segmentor',
    ),
}  # fmt: skip


PARTS = (
    'backbones', 'checkpoints', 'engine',
    'models.plain_vit_fpn', 'models.eomt.annealing', 'models.shared_backbone',
    'models.channel_preprocessors', 'models.fine_features', 'models.positional_debias',
    'models.unlabelled',
)  # fmt: skip


def _import_parts() -> None:
    for part in PARTS:
        import_module(f'.{part}', __name__)
    for packages, parts in TASKS.items():
        try:
            for part in parts if all(map(find_spec, packages)) else ():
                import_module(f'.{part}', __name__)
        except (
            Exception
        ) as error:  # an incomplete or wrong installation fails in any way
            reason = f'{" or ".join(packages)} does not import ({type(error).__name__}: {error})'
            warnings.warn(
                f'rope_dense without {", ".join(parts)}: {reason}', stacklevel=3
            )


def __getattr__(name: str) -> Any:
    """``train`` and ``load`` of ``rope_dense.api``, imported when they are used."""
    if name in ('train', 'load'):
        return getattr(import_module('.api', __name__), name)
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


if missing := missing_packages():
    warnings.warn(installation_advice(missing), stacklevel=2)
else:
    leave_out_import_noise()
    provide_extension()
    _import_parts()
