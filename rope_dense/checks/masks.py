"""Check masks of class numbers and depth maps of a data set of mmseg before a run."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from mmengine.config import Config, ConfigDict
from mmengine.dataset import BaseDataset
from mmengine.registry import TRANSFORMS

from ..datasets.depth_maps import survey_depths
from ..datasets.mask_labels import mask_lines, survey_masks
from ..engine.runner import NamingPipeline
from ..project.building import build_part, building
from ..project.errors import UsageError
from ..project.load import evaluators
from .model import heads

SURVEYED, LOADED = 200, 20  # files of a data set whose numbers are looked at, or that are loaded


def check_maps(cfg: Config, key: str, dataset: ConfigDict, built: BaseDataset) -> None:
    """Check a sample of the masks or depth maps of a data set.

    Raises:
        UsageError: a file that is no mask or depth map, or has another size than its image; a label
            that is neither a class nor ignored; depths in another unit than the model's; or nothing
            to be trained.
        LoadError: a file cannot be loaded.
    """
    steps = {s.type: s for s in dataset.get('pipeline') or () if str(s.type).startswith('Load')}
    split = 'train' if key.startswith('train') else 'val'
    few = range(0, len(built), max(1, len(built) // SURVEYED))
    infos = [built.get_data_info(index) for index in few]
    if 'LoadDepth' in steps:
        pairs = [(Path(info['img_path']), Path(info['depth_map_path'])) for info in infos]
        largest = [head.max_depth for _, head in heads(cfg) if head.get('max_depth')]
        with building(key):
            unit = steps['LoadDepth'].get('unit', 1.0)
            survey_depths(pairs, split, unit, min(largest, default=None))
    elif 'LoadClassMask' in steps:
        pairs = [(Path(info['img_path']), Path(info['seg_map_path'])) for info in infos]
        classes = built.metainfo['classes']
        with building(key):
            survey = survey_masks(pairs, split, infos[0]['label_map'], classes)
        for line in mask_lines(survey, classes):
            print(f'{key}: {line}', file=sys.stderr)
    elif 'LoadAnnotations' in steps and cfg.default_scope == 'mmseg':
        check_loaded(cfg, key, [*steps.values()], built)


def check_loaded(cfg: Config, key: str, steps: list[ConfigDict], built: BaseDataset) -> None:
    """Load ``LOADED`` masks by the steps of a pipeline, and compare them with images and heads."""
    load = NamingPipeline([build_part(cfg, f'{key}.pipeline', TRANSFORMS, s) for s in steps])
    readers = [(name, head, head.get('num_classes')) for name, head in heads(cfg)]
    if not key.startswith('train'):
        metrics = evaluators(cfg, key.split('.')[0].replace('dataloader', 'evaluator'))
        number = len(built.metainfo.get('classes') or ())
        readers += [(name, m, number) for name, m in metrics if m.get('type') == 'IoUMetric']
    known = [(name, number, x.get('ignore_index', 255)) for name, x, number in readers if number]
    for index in range(0, len(built), max(1, len(built) // LOADED)):
        loaded = load(built.get_data_info(index)) or {}
        path, mask = loaded['seg_map_path'], loaded['gt_seg_map']
        if loaded['ori_shape'] != mask.shape:
            raise UsageError(
                f'{key}: {path} and its image {loaded["img_path"]} differ in size, {mask.shape} '
                f'and {loaded["ori_shape"]} (height, width)'
            )
        for label in np.unique(mask).tolist():
            refused = [
                f'{name} ({number} classes, ignore_index={ignored})'
                for name, number, ignored in known
                if label >= number and label != ignored
            ]
            if refused:
                raise UsageError(
                    f'{key}: {path} has label {label}, which is neither a class nor ignored: '
                    f'{", ".join(refused)}; check the mask, num_classes, ignore_index, and '
                    f'{key}.reduce_zero_label'
                )
