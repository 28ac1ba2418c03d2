"""The task of a model, which decides its inferencer, files, pictures and report."""

from typing import Literal

from mmengine.config import Config

from .angles import angle_version

Task = Literal['boxes', 'oriented', 'panoptic', 'semantic', 'depth', 'several']


def task_of(cfg: Config) -> Task:
    """The task of the model of a config; UsageError as of ``angle_version``."""
    kind = str(cfg.model.type)
    if kind.endswith('SharedBackbone'):  # its config names a config and a checkpoint for each task
        return 'several'
    if kind.endswith('DepthEstimator'):
        return 'depth'
    if cfg.default_scope == 'mmseg':
        return 'semantic'
    if angle_version(cfg):
        return 'oriented'
    return 'panoptic' if (cfg.model.get('test_cfg') or {}).get('panoptic_on') else 'boxes'


def detects(cfg: Config) -> bool:
    """Return whether mmdet has the model, upright or rotated boxes, masks and panoptic labels."""
    return cfg.default_scope in ('mmdet', 'mmrotate')


def visualizer_of(cfg: Config, name: str, alpha: float) -> dict:
    """Settings of the visualizer of a task; `alpha` is the opacity of a segmentation."""
    if angle_version(cfg):
        return dict(type='mmrotate.RotLocalVisualizer', name=name)
    if detects(cfg):
        return dict(type='mmdet.DetLocalVisualizer', name=name)
    return dict(type='mmseg.SegLocalVisualizer', name=name, alpha=alpha)
