"""What a config says: its data sets, metrics and heads, its task, and the sizes of its images."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from mmengine.config import Config, ConfigDict
from mmengine.registry import DATASETS, Registry
from mmengine.utils import to_2tuple

from ..data.rotated import CONVENTIONS, fixed_convention
from ..data.tiles.plan import TilePlan
from ..utils.config_parts import (
    all_datasets,
    kind,
    leaf_datasets,
    nodes,
    pipelines,
    size_steps,
)
from ..utils.errors import UsageError
from ..utils.sizes import ImageSize
from ..utils.validation import is_integer

# mmengine needs all or none of these for each loop.
SECTIONS = {
    'train': ('train_dataloader', 'train_cfg', 'optim_wrapper'),
    'val': ('val_dataloader', 'val_cfg', 'val_evaluator'),
    'test': ('test_dataloader', 'test_cfg', 'test_evaluator'),
}
Task = Literal[
    'boxes', 'oriented', 'panoptic', 'semantic', 'depth', 'several', 'features'
]
PROPOSALS = (100, 300, 1000)  # of mmdet's ``CocoMetric``, by default
CONVENTION, VERSION = 'box_convention', 'angle_version'
# Times as long as wide: with DINO's queries for less, there are too few tokens.
MOST = 8.0
# Likewise where the shorter side has one size, and memory grows with the longer.
UNBOUNDED = 16.0


def used_loaders(cfg: Config, *loops: str) -> tuple[str, ...]:
    """The dataloaders of `loops`; UsageError if the first loop, or a part of one, is missing."""
    loaders = []
    for loop in loops:
        missing = [name for name in SECTIONS[loop] if cfg.get(name) is None]
        if missing and (loop == loops[0] or len(missing) < len(SECTIONS[loop])):
            raise UsageError(
                f'the config has no {", ".join(missing)}, for a {loop} loop'
            )
        if not missing:
            loaders.append(f'{loop}_dataloader')
    return tuple(loaders)


def datasets_of(cfg: Config, loader: str) -> Iterator[tuple[str, ConfigDict]]:
    """Yield (config key, data set) below a dataloader, through RepeatDataset, ConcatDataset etc."""
    return leaf_datasets(cfg[loader].dataset, f'{loader}.dataset')


def class_info(cfg: Config, dataset: ConfigDict) -> dict:
    """The names and colours of the classes of a data set: `metainfo`, else its class's own."""
    info = dict(getattr(component_of(cfg, DATASETS, dataset), 'METAINFO', {}))
    return info | (dataset.get('metainfo') or {})


def stored_classes(checkpoint: dict) -> dict:
    """The names and colours of the classes in a checkpoint."""
    stored = (checkpoint.get('meta') or {}).get('dataset_meta') or {}
    # Earlier versions of mmengine wrote CLASSES.
    return {name.lower(): value for name, value in stored.items() if value}


def evaluators(cfg: Config, name: str) -> list[tuple[str, ConfigDict]]:
    """(config key, metric) of each metric of `val_evaluator` or `test_evaluator`: one or a list."""
    metrics = cfg.get(name) or []
    if isinstance(metrics, dict):
        if 'metrics' not in metrics:
            return [(name, metrics)]
        name, metrics = f'{name}.metrics', metrics['metrics']  # of a ``TiledEvaluator``
    return [(f'{name}.{index}', metric) for index, metric in enumerate(metrics)]


def box_limit(cfg: Config) -> int | None:
    """How many boxes of a class in an image COCO's figures of the test count; None of others."""
    for _, metric in evaluators(cfg, 'test_evaluator'):
        if str(metric.type).endswith('CocoMetric'):
            return max(metric.get('proposal_nums') or PROPOSALS)
    return None


def component_of(cfg: Config, registry: Registry, node: ConfigDict) -> type | None:
    """The class that a config dict's `type` names, as the config's task finds it; None if none."""
    if not isinstance(node.type, str):
        return node.type
    with registry.switch_scope_and_registry(cfg.default_scope) as task_registry:
        return task_registry.get(node.type)


def model_heads(cfg: Config) -> Iterator[tuple[str, ConfigDict]]:
    """(Key, settings) of each head of the model, those within other heads too."""
    for key, node in nodes(cfg.model, 'model'):
        *outer, name = key.split('.')
        if name.isdigit():  # one of several
            name = outer[-1]
        if name.endswith('_head'):
            yield key, node


def scheduler_settings(cfg: Config) -> list[ConfigDict]:
    """The schedulers of a config, one or several or none."""
    given = cfg.get('param_scheduler') or []
    return [given] if isinstance(given, dict) else given


def task_of(cfg: Config) -> Task:
    """The task of the model of a config; UsageError as of ``angle_version``."""
    kind = str(cfg.model.type)
    if kind.endswith('SharedBackbone'):
        return 'several'
    if kind.endswith('DepthEstimator'):
        return 'depth'
    if kind in ('PictureClassifier', 'FeatureDistiller', 'SlidingDistiller'):
        return 'features'
    if cfg.default_scope == 'mmseg':
        return 'semantic'
    if angle_version(cfg):
        return 'oriented'
    test_cfg = cfg.model.get('test_cfg') or {}
    is_panoptic = test_cfg.get('panoptic_on', True)  # as in mmdet
    if is_panoptic and cfg.model.get('panoptic_fusion_head'):
        return 'panoptic'
    return 'boxes'


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
    given = {}
    fixed = {}
    for key, node in list(nodes(cfg.get('model'), 'model')):
        if VERSION in node:
            given[f'{key}.{VERSION}'] = node[VERSION]
        convention = fixed_convention(node['type']) if 'type' in node else None
        if convention:
            fixed[key] = convention
    given |= fixed
    if not given and VERSION in cfg:  # else a name that mmrotate's configs use
        given = {VERSION: cfg[VERSION]}
    versions = sorted({*given.values()})
    if len(versions) > 1 or not set(versions) <= set(CONVENTIONS):
        said = ', '.join(f'{key}={version}' for key, version in given.items())
        raise UsageError(f'{said}: give one of {", ".join(CONVENTIONS)} for all')
    return versions[0] if versions else None


def write_convention(cfg: Config) -> None:
    """Add the convention to `metainfo` of the data sets; UsageError if another is there."""
    version = angle_version(cfg)
    if version is None:
        return
    about = version, 'radian'  # plain values: a dict would be a class in the checkpoint
    for key, dataset in all_datasets(cfg):
        stored = dataset.setdefault('metainfo', {}).setdefault(CONVENTION, about)
        if tuple(stored) != about:
            raise UsageError(
                f'{key}.metainfo.{CONVENTION}={stored}: the model has {about}'
            )


def check_angle_convention(cfg: Config, checkpoint: dict) -> None:
    """Raise UsageError if a checkpoint has another convention: its numbers would be other boxes."""
    stored = stored_classes(checkpoint).get(CONVENTION)
    version = angle_version(cfg)
    if stored and stored[0] != version:
        raise UsageError(
            f'the checkpoint was trained with {VERSION}={stored[0]}, the config has {version}: '
            'give the config of the training'
        )


def at_size(config: Config, size: int | ImageSize, tile: int | None = None) -> Config:
    """A copy of a config that tests at another size, and in other tiles.

    Every step of the test pipeline with a `scale` gets the new one and keeps its `keep_ratio`.

    Args:
        size: the shorter side in pixels, the longer one (or its limit) grows by the same factor; or
            height and width, which bound the image with `keep_ratio`.
        tile: side of the tiles in pixels of an image, whose overlap grows with it; None for the
            config's.

    Raises:
        ValueError: no step has a `scale`, or a step does not allow the new one; or a tile is given,
            and the config tests images as a whole.
    """
    config = copy.deepcopy(config)
    for step in resize_steps(config):
        if isinstance(size, tuple):
            if 'max_size' in step:
                raise ValueError(
                    f'{step.type} takes a shorter side only, not height and width'
                )
            step.scale = size[::-1]
        elif isinstance(step.scale, int):
            if 'max_size' in step:
                step.max_size = round(step.max_size * size / step.scale)
            step.scale = size
        else:
            least = min(step.scale)
            step.scale = tuple(round(side * size / least) for side in step.scale)
    if tile is not None:
        dataset = config.test_dataloader.dataset
        plan = tile_plan(config)
        if plan is None:
            raise ValueError(
                f'--tiles {tile}: only of a run that was trained on tiles (own.tile)'
            )
        dataset.update(tile=tile, overlap=round(plan.overlap * tile / plan.tile))
    return config


def tile_plan(config: Config) -> TilePlan | None:
    """The tiles of a run on tiles (`own.tile`), in its tests; None for whole images."""
    dataset = config.test_dataloader.dataset
    if dataset.get('type') != 'TiledDataset':
        return None
    return TilePlan(dataset.tile, dataset.overlap, dataset.scales)


def resize_steps(config: Config) -> list[ConfigDict]:
    """The steps of test pipelines that resize; ValueError for none, or a pad to a fixed size."""
    steps: list[ConfigDict] = []
    for pipeline in pipelines(config.test_dataloader.dataset):
        steps += pipeline
    for step in steps:
        if step.type == 'Pad' and step.get('size'):
            raise ValueError(
                f'test pipeline: Pad(size={step.size}) fixes the size of the images; pad to a '
                'multiple with size_divisor instead'
            )
    resizes = [step for _, step, _ in size_steps(steps)]
    if resizes:
        return resizes
    raise ValueError(
        f'test pipeline of {config.filename}: no step has a `scale`, add a Resize'
    )


def max_aspect_ratio(pipeline: Sequence[Mapping], patch: int) -> float:
    """The largest ratio of sides for a test pipeline and a patch in pixels, or infinity."""
    for _, step, _ in size_steps(pipeline):
        name = kind(step)
        scale = step['scale']
        if name == 'Resize' and not step.get('keep_ratio'):
            continue
        if name not in ('Resize', 'ResizeShortestEdge'):
            continue
        short, long = sorted(scale) if isinstance(scale, (list, tuple)) else [scale] * 2
        if name == 'ResizeShortestEdge':
            long = step.get('max_size') or math.inf
        if 0 < long <= UNBOUNDED * short:
            return min(MOST, max(1.0, long / (2 * patch)))
        return UNBOUNDED
    return math.inf


def configured_size(config: Config) -> ImageSize:
    """Height and width of a config's test images; their bounds with `keep_ratio`."""
    scale = resize_steps(config)[0].scale
    return (scale, scale) if isinstance(scale, int) else (scale[1], scale[0])


def trained_size(config: Config) -> ImageSize:
    """Height and width of the images that the weights of a config's training last saw.

    They are of the last step of the training's pipeline that has a size in pixels, the largest by
    its shorter side; or, where none has, of the test images.
    """
    dataset = (config.get('train_dataloader') or {}).get('dataset') or {}
    last = None
    for _, step in nodes([*pipelines(dataset)]):
        last = largest_size(step) or last
    return last or configured_size(config)


def largest_size(step: ConfigDict) -> ImageSize | None:
    """The size (height, width) in pixels that a step crops or resizes to, the largest; or None."""
    scales = step.get('scales') or [step.get('scale')]
    if isinstance(scales[0], (tuple, list)) and isinstance(scales[0][0], (tuple, list)):
        scales = scales[0]  # a range
    order = sorted if step.get('keep_ratio') else reversed  # bounds, or (width, height)
    sizes = [tuple(order(to_2tuple(scale))) for scale in scales if scale is not None]
    if step.get('crop_type', 'absolute') == 'absolute':
        sizes.append(to_2tuple(step.get('crop_size')))
    pixels = []
    for size in sizes:
        if all(is_integer(side) and side > 1 for side in size):
            pixels.append(size)
    return max(pixels, key=min, default=None)
