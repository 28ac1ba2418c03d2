"""Check masks of class numbers before a run: sizes, values, and classes that they lack."""

from __future__ import annotations

import numpy as np
from mmengine.config import Config, ConfigDict
from mmengine.dataset import BaseDataset
from mmengine.registry import TRANSFORMS

from ..engine.runner import NamingPipeline
from ..project.building import build_part
from ..project.config import evaluators
from ..project.errors import UsageError
from .model import heads

MASKS = 20  # of a data set are looked at


def check_masks(cfg: Config, key: str, dataset: ConfigDict, built: BaseDataset) -> None:
    """Check ``MASKS`` masks of a segmentation.

    UsageError for a mask of another size than its image, or a label that is neither a class nor
    ignored by every head and metric.
    """
    steps = [s for s in dataset.get('pipeline') or () if str(s.type).startswith('Load')]
    if cfg.default_scope != 'mmseg' or 'LoadAnnotations' not in [step.type for step in steps]:
        return
    transforms = [build_part(cfg, f'{key}.pipeline', TRANSFORMS, step) for step in steps]
    load, readers = NamingPipeline(transforms), label_readers(cfg, key, built)
    for index in range(0, len(built), max(1, len(built) // MASKS)):
        loaded = load(built.get_data_info(index)) or {}
        path, mask = loaded['seg_map_path'], loaded['gt_seg_map']
        if loaded['ori_shape'] != mask.shape:
            raise UsageError(
                f'{key}: {path} and its image {loaded["img_path"]} differ in size, {mask.shape} '
                f'and {loaded["ori_shape"]} (height, width)'
            )
        for label in np.unique(mask).tolist():
            refused = [
                f'{name} ({classes} classes, ignore_index={ignored})'
                for name, classes, ignored in readers
                if label >= classes and label != ignored
            ]
            if refused:
                raise UsageError(
                    f'{key}: {path} has label {label}, which is neither a class nor ignored: '
                    f'{", ".join(refused)}; check the mask, num_classes, ignore_index, and '
                    f'{key}.reduce_zero_label'
                )


def label_readers(cfg: Config, key: str, built: BaseDataset) -> list[tuple[str, int, int]]:
    """Name, number of classes and ignored label of the heads and metrics that read masks."""
    nodes = [(name, head, head.get('num_classes')) for name, head in heads(cfg)]
    loader = key.split('.')[0]
    if loader != 'train_dataloader':
        metrics = evaluators(cfg, loader.replace('dataloader', 'evaluator'))
        classes = len(built.metainfo.get('classes') or ())
        nodes += [(name, m, classes) for name, m in metrics if m.get('type') == 'IoUMetric']
    return [
        (name, classes, node.get('ignore_index', 255)) for name, node, classes in nodes if classes
    ]
