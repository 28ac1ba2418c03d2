"""A small panoptic model on generated segments, and panopticapi, which no package registry has."""

import sys
from collections import defaultdict
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from mmdet.evaluation.functional import panoptic_utils
from mmdet.evaluation.metrics import coco_panoptic_metric
from mmengine.config import Config
from PIL import Image

from helpers.small_configs import CONFIGS
from rope_dense.data.generated import ShapesSettings, write_shapes
from rope_dense.project.model import random_model

CONFIG = CONFIGS / 'demo' / 'eomt_vit_rope_mixed_panoptic_shapes.py'


@dataclass
class Counts:
    """What panopticapi counts of a class."""

    iou: float = 0.0
    tp: int = 0
    fp: int = 0
    fn: int = 0


class Stat:
    """panopticapi's ``PQStat``, by the formulas of Kirillov et al., CVPR 2019."""

    def __init__(self) -> None:
        self.counts: defaultdict[int, Counts] = defaultdict(Counts)

    def __getitem__(self, category: int) -> Counts:
        return self.counts[category]

    def __iadd__(self, other: 'Stat') -> 'Stat':
        for category, counts in other.counts.items():
            for name, value in vars(counts).items():
                setattr(self[category], name, getattr(self[category], name) + value)
        return self

    def pq_average(self, categories: dict, isthing: bool | None) -> tuple[dict, dict]:
        rows = {}
        for category, about in categories.items():
            counts = self[category]
            number = counts.tp + (counts.fp + counts.fn) / 2
            if isthing in (None, bool(about['isthing'])):
                quality = dict(pq=0.0, sq=0.0, rq=0.0)
                if number:
                    quality = dict(pq=counts.iou / number, rq=counts.tp / number)
                    quality['sq'] = counts.iou / max(counts.tp, 1)
                rows[category] = dict(quality, number=number)
        used = [row for row in rows.values() if row['number']]
        mean = {
            key: float(np.mean([row[key] for row in used]))
            for key in ('pq', 'sq', 'rq')
        }
        return dict(mean, n=len(used)), rows


def rgb2id(colours: np.ndarray) -> np.ndarray:
    red, green, blue = (colours[..., part].astype(np.int64) for part in range(3))
    return red + 256 * green + 256**2 * blue


def id2rgb(ids: np.ndarray) -> np.ndarray:
    return np.stack([ids // 256**part % 256 for part in range(3)], -1).astype(np.uint8)


def read_ids(path: str | Path) -> np.ndarray:
    """The ids [H, W] in a PNG of a panoptic data set."""
    with Image.open(path) as image:
        return rgb2id(np.asarray(image.convert('RGB')))


def provide_panopticapi(patch: pytest.MonkeyPatch) -> None:
    """Let mmdet find panopticapi; where it is not installed, this module's."""
    if find_spec('panopticapi'):
        return
    api, utils = ModuleType('panopticapi'), ModuleType('panopticapi.utils')
    utils.__dict__.update(rgb2id=rgb2id, id2rgb=id2rgb)
    api.__dict__.update(utils=utils)
    patch.setitem(sys.modules, 'panopticapi', api)
    patch.setitem(sys.modules, 'panopticapi.utils', utils)
    for module in (coco_panoptic_metric, panoptic_utils):
        patch.setattr(module, 'PQStat', Stat)
        patch.setattr(module, 'rgb2id', rgb2id)
        patch.setattr(module, 'VOID', 0)
    patch.setattr(coco_panoptic_metric, 'panopticapi', api)
    patch.setattr(coco_panoptic_metric, 'id2rgb', id2rgb)


def small_panoptic(folder: Path, images: int = 3) -> tuple[str, str]:
    """Config and weights, random, of a model that finds segments and void in each image."""
    settings = ShapesSettings(train=1, val=images, size=(64, 96), layouts=('panoptic',))
    write_shapes(folder / 'data', settings)
    cfg = Config.fromfile(CONFIG)
    root = folder / 'data' / 'panoptic'
    for name in ('train', 'val', 'test'):
        cfg[f'{name}_dataloader'].dataset.data_root = str(root)
    labels = root / 'annotations' / 'panoptic_val2017'
    for name in ('val', 'test'):
        cfg[f'{name}_evaluator'].update(
            ann_file=f'{labels}.json', seg_prefix=f'{labels}/'
        )
    cfg.model.backbone.arch = dict(embed_dims=32, depth=3, num_heads=2)
    cfg.model.panoptic_head.update(in_channels=32, num_queries=12, num_blocks=1)
    cfg.model.test_cfg.update(object_mask_thr=0.0, iou_thr=0.0)
    path, weights = folder / 'panoptic.py', folder / 'panoptic.pth'
    cfg.dump(path)
    torch.manual_seed(3)
    model = random_model(cfg)
    for param in model.panoptic_head.parameters():
        if param.ndim > 1:
            torch.nn.init.normal_(param, std=0.3)
    torch.save(dict(state_dict=model.state_dict()), weights)
    return str(path), str(weights)
