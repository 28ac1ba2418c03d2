"""The task of a model, which decides its inferencer and files, and its angle convention."""

from typing import Literal

from mmengine.config import Config

from ..datasets.rotated import CONVENTIONS, fixed_convention
from ..utils.config_parts import all_datasets, nodes
from .errors import UsageError

Task = Literal['boxes', 'oriented', 'panoptic', 'semantic', 'depth', 'several', 'features']
CONVENTION, VERSION = 'box_convention', 'angle_version'


def task_of(cfg: Config) -> Task:
    """The task of the model of a config; UsageError as of ``angle_version``."""
    kind = str(cfg.model.type)
    if kind.endswith('SharedBackbone'):  # its config names a config and a checkpoint for each task
        return 'several'
    if kind.endswith('DepthEstimator'):
        return 'depth'
    if kind in ('PictureClassifier', 'FeatureDistiller'):
        return 'features'
    if cfg.default_scope == 'mmseg':
        return 'semantic'
    if angle_version(cfg):
        return 'oriented'
    is_panoptic = (cfg.model.get('test_cfg') or {}).get('panoptic_on', True)  # as in mmdet
    return 'panoptic' if is_panoptic and cfg.model.get('panoptic_fusion_head') else 'boxes'


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


def angle_version(cfg: Config) -> str | None:
    """The convention of the angles that the model of a config predicts; None for upright boxes.

    UsageError if parts of the model have different ones, or one that is not known.
    """
    parts = list(nodes(cfg.get('model'), 'model'))
    given = {f'{key}.{VERSION}': node[VERSION] for key, node in parts if VERSION in node}
    given |= {key: x for key, node in parts if (x := fixed_convention(node.get('type')))}
    if not given and VERSION in cfg:  # else a name that mmrotate's configs use
        given = {VERSION: cfg[VERSION]}
    versions = sorted({*given.values()})
    if len(versions) > 1 or not set(versions) <= set(CONVENTIONS):
        said = ', '.join(f'{key}={version}' for key, version in given.items())
        raise UsageError(f'{said}: give one of {", ".join(CONVENTIONS)} for all')
    return versions[0] if versions else None


def write_convention(cfg: Config) -> None:
    """Add the convention to `metainfo` of the data sets; UsageError if another is there."""
    if (version := angle_version(cfg)) is None:
        return
    about = version, 'radian'  # plain values: a dict would be a class in the checkpoint
    for key, dataset in all_datasets(cfg):
        stored = dataset.setdefault('metainfo', {}).setdefault(CONVENTION, about)
        if tuple(stored) != about:
            raise UsageError(f'{key}.metainfo.{CONVENTION}={stored}: the model has {about}')


def check_angle_convention(cfg: Config, checkpoint: dict) -> None:
    """Raise UsageError if a checkpoint has another convention: its numbers would be other boxes."""
    stored = ((checkpoint.get('meta') or {}).get('dataset_meta') or {}).get(CONVENTION)
    version = angle_version(cfg)
    if stored and stored[0] != version:
        raise UsageError(
            f'the checkpoint was trained with {VERSION}={stored[0]}, the config has {version}: '
            'give the config of the training'
        )
