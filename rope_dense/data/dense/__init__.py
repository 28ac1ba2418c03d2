"""Augmentation with many objects an image, "dense one-to-one", of detectors of the DEIM family.

A config imports it by ``custom_imports``; transforms and batch augments are registered by name.
Sources: Intellindust-AI-Lab/DEIMv2 at 0fff8d4 and EdgeCrafter at 706d037 (engine/data), and the
documentation of torchvision's transforms that they use. mmdet's ``Expand``, ``RandomFlip``,
``Resize`` and ``FilterAnnotations`` compute the same as these; each class here says in which way
mmdet's differs. Checked in tests/data/test_dense_augmentation.py.
"""

from .batch import MixUpCopyBlend, MultiScaleBatch, StageByEpoch
from .iou_crop import RandomIoUCrop
from .mosaic import AffineMosaic, MosaicCocoDataset
from .photometric import PhotometricJitter

__all__ = [
    'AffineMosaic',
    'MixUpCopyBlend',
    'MosaicCocoDataset',
    'MultiScaleBatch',
    'PhotometricJitter',
    'RandomIoUCrop',
    'StageByEpoch',
]
