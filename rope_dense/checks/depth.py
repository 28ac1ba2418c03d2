"""Check depth maps before a run: files, sizes, known depths, and the unit of depth."""

from __future__ import annotations

import os

import mmcv
import numpy as np
from mmengine.config import Config, ConfigDict
from mmengine.dataset import BaseDataset
from mmengine.registry import TRANSFORMS

from ..engine.runner import NamingPipeline
from ..project.building import build_part
from ..project.errors import UsageError
from .model import heads

READ = 20  # of a data set are looked at
LEAST_SHARE = 0.01  # of the largest depth that a head predicts; a smaller median has another unit


def check_depths(cfg: Config, key: str, dataset: ConfigDict, built: BaseDataset) -> None:
    """Check that each image has a depth file, and ``READ`` of the files as they are loaded.

    Raises:
        UsageError: a file is not there, has 8 bits, no known depth, or depths in another unit
            than the model's.
        LoadError: a file cannot be loaded, or has another size than its image.
    """
    steps = [s for s in dataset.get('pipeline') or () if str(s.type).startswith('Load')]
    if 'LoadDepth' not in [step.type for step in steps]:
        return
    for index in range(len(built)):
        path = built.get_data_info(index)['depth_map_path']
        if not os.path.isfile(path):
            raise UsageError(f'{key}: {path} does not exist, the depth map of an image')
    load = NamingPipeline([build_part(cfg, f'{key}.pipeline', TRANSFORMS, s) for s in steps])
    for index in range(0, len(built), max(1, len(built) // READ)):
        loaded = load(built.get_data_info(index)) or {}
        depth, path = loaded['gt_depth_map'], loaded['depth_map_path']
        if has_8_bits(path):
            raise UsageError(
                f'{key}: {path} has 8 bits, which are too few for metres: save depths as a PNG of '
                '16 bits (millimetres), a TIFF or .npy'
            )
        if not depth.any():
            raise UsageError(
                f'{key}: {path} has no known depth: all its numbers are 0 or less, or not finite'
            )
        check_unit(cfg, f'{key}: {path}', float(np.median(depth[depth > 0])))


def has_8_bits(path: str) -> bool:
    """Return whether a depth file has 8 bits a number."""
    is_array = path.lower().endswith('.npy')
    stored = np.load(path, mmap_mode='r') if is_array else mmcv.imread(path, 'unchanged')
    return stored.dtype == np.uint8


def check_unit(cfg: Config, file: str, median: float) -> None:
    """Raise UsageError if a head cannot predict a depth that is usual in a file."""
    for name, head in heads(cfg):
        most = head.get('max_depth')
        if most and not LEAST_SHARE * most <= median <= most:
            setting = 'own.unit or own.max_depth' if cfg.get('own') else 'LoadDepth.unit'
            raise UsageError(
                f'{file} has a median depth of {median:.4g} m, and {name}.max_depth is {most:g} m: '
                f'check {setting} (metres of a 1 in the file; 0.001 for millimetres)'
            )
