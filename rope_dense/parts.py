"""The modules that register classes in mmengine's registries; importing this one imports them.

What needs mmdet or mmseg is registered where that package can be imported; where it is broken, a
warning says so. Sharded training (`rope_dense.engine.fsdp`) registers itself where the tools import
it, `research` where a config asks for it.
"""

import warnings
from importlib import import_module
from importlib.util import find_spec

from .utils.imports import leave_out_import_noise

PARTS = (
    'backbones.nat', 'backbones.swin', 'backbones.vit', 'checkpoints', 'engine',
    'models.plain_vit_fpn', 'models.eomt.annealing', 'models.shared_backbone',
    'models.channel_preprocessors', 'models.fine_features', 'models.positional_debias',
    'models.unlabelled',
)  # fmt: skip

# The parts that need the package of a task, or of both.
TASKS = {
    ('mmdet',): (
        'models.dino', 'models.eomt.detector',
        'models.deim.detector', 'models.deim.encoder', 'models.deim.head', 'models.deim.oriented',
        'models.ignoring_assigner', 'models.instance_tta', 'models.channel_detection',
        'models.partial_labels',
    ),
    ('mmseg',): (
        'models.depth', 'models.seg_tta',
        'models.channel_segmentation',
    ),
    ('mmdet', 'mmseg'): (
        'models.mask2former_head', 'models.eomt.segmentor',
    ),
}  # fmt: skip


leave_out_import_noise()
for _part in PARTS:
    import_module(f'{__package__}.{_part}')
for _packages, _parts in TASKS.items():
    try:
        if all(map(find_spec, _packages)):
            for _part in _parts:
                import_module(f'{__package__}.{_part}')
    except Exception as error:  # an incomplete or wrong installation fails in any way
        reason = f'{" or ".join(_packages)} does not import'
        cause = f'{type(error).__name__}: {error}'
        warnings.warn(
            f'rope_dense without {", ".join(_parts)}: {reason} ({cause})', stacklevel=2
        )
