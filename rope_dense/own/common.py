"""Settings of configs/own applied to a published recipe, fitted to a user's data set.

A config calls the function of its task, such as ``detection``, with its settings and inherits from
the returned dict; a copy of the config works in any folder. All values that depend on the data, the
image size or the training length are computed here: number of classes, iterations, warm-up,
milestones, intervals, learning rate, crops, sizes of test-time augmentation.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from mmengine.config import Config

from ..datasets.label_folders import find_labels
from ..datasets.own_data import (
    CLASSES_FILE,
    CocoSplit,
    annotation_files,
    choose_classes,
    distinct_colour,
    find_coco,
    read_classes,
)
from ..utils.config_parts import nodes
from ..utils.configs import CONFIGS
from ..utils.validation import check_choice, check_integer, check_number
from .augment import AUGMENTS, FLIPS, fit_augmentation
from .backbones import WORDS, OwnBackbone, find_backbone
from .value_range import fit_range

# Share of dropped paths, decay of the learning rate from block to block: of configs/foundation.
DETECTION = dict.fromkeys(('tiny', 'small', 'base'), (0.1, 0.7)) | {'large': (0.4, 0.8)}
RANDOM_LR = 5e-4  # from random values, as in configs/demo: recipes are for trained backbones
PIXELS = ('scale', 'scales', 'crop_size', 'max_size', 'size', 'stride', 'pad_size_divisor')
WARMUP = 500  # iterations, or a tenth of a shorter run
UNKNOWN = 'object'  # the class of data that are not there
MISSING = CocoSplit('annotations/train.json', 'train', (UNKNOWN,), (frozenset([UNKNOWN]),), 1)
CONVERTED = Path('work_dirs', 'own_data')  # where labels of other formats are written as COCO's


@dataclass(frozen=True)
class Own:
    """The settings of configs/own.

    Attributes:
        data_root: folder of the data set.
        classes: names to use, or None for all of the training file, or of classes.txt.
        void: semantic segmentation: numbers (or names) of classes in the masks that are neither
            trained nor evaluated. 255 is always such a number.
        negatives: boxes and masks of objects: train on images without objects, too.
        train, val: annotation file, or [folder of images, folder of masks], below `data_root`; None
            to look for the common names.
        backbone: 'tiny' (Perception Encoder), 'small', 'base' or 'large' (LingBot-Vision), or any
            architecture of ``RoPEViT``.
        weights: file or hub name of the backbone's weights, 'default' for the published ones of
            these words, or None to start from random values.
        epochs, batch_size: passes over the data; images of one GPU in an iteration.
        gpus: processes that train together (tools/dist_train.sh).
        size: shorter side of a test image in pixels; other sizes follow from it. Instance
            segmentation: side of the square that training crops to.
        lr: learning rate, or None for the recipe's times the square root of the ratio of the
            batches (Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient
            Algorithms", 2022); from random values 5e-4.
        val_epochs: evaluate, and save, after so many epochs.
        patience: evaluations without progress after which training ends, or None.
        ema: evaluate and save a moving average of the weights.
        report: write the report of the best checkpoint after training (docs/report.md).
        max_value: value that is white in 16-bit images, such as 4095; None for the range that the
            files name or use (``range_of``).
        augment: 'published' (the recipe's), 'light' (flips and small changes of size) or 'none'.
        flip: 'horizontal', 'vertical', 'both' or 'none'; None for the one of `augment`.
        hue: whether colours change their hue; None for the choice of `augment`.
        mosaic: real time: whether training joins images (mosaic, MixUp, CopyBlend); None for the
            choice of `augment`.
    """

    data_root: str
    classes: Sequence[str] | None = None
    void: Sequence[int | str] = ()
    train: str | Sequence[str] | None = None
    val: str | Sequence[str] | None = None
    negatives: bool = True
    backbone: str = 'small'
    weights: str | None = 'default'
    epochs: int = 50
    batch_size: int = 2
    gpus: int = 1
    size: int = 640
    lr: float | None = None
    val_epochs: int = 1
    patience: int | None = None
    ema: bool = False
    report: bool = True
    max_value: int | None = None
    augment: str = 'published'
    flip: str | None = None
    hue: bool | None = None
    mosaic: bool | None = None

    def __post_init__(self) -> None:
        for name in ('epochs', 'batch_size', 'gpus', 'val_epochs'):
            check_integer(name, getattr(self, name), 1)
        check_integer('size', self.size, 32)
        if self.weights == 'default' and find_backbone(self.backbone).weights is None:
            raise ValueError(
                f'own.weights: name the weights of {self.backbone} (docs/checkpoints.md), or None '
                f'for random values; only {", ".join(WORDS)} have weights of their own'
            )
        for name in ('ema', 'negatives', 'report'):
            check_choice(name, getattr(self, name), (True, False))
        check_choice('own.augment', self.augment, AUGMENTS)
        check_choice('own.flip', self.flip, (None, 'none', *FLIPS))
        for name in ('hue', 'mosaic'):
            check_choice(f'own.{name}', getattr(self, name), (None, True, False))
        if self.patience is not None:
            check_integer('patience', self.patience, 1)
        if self.max_value is not None:
            check_integer('own.max_value', self.max_value, 255)
        if self.lr is not None:
            check_number('lr', self.lr, above=0)

    @property
    def root(self) -> Path:
        return Path(self.data_root)

    @property
    def vit(self) -> OwnBackbone:
        return find_backbone(self.backbone)


OwnSettings = TypeVar('OwnSettings', bound=Own)


def settings_of(kind: type[OwnSettings], given: Mapping[str, object]) -> OwnSettings:
    """Read the settings of a config: of all tasks (``Own``), or of one.

    Raises:
        ValueError: an unknown setting, or a value that is not allowed.
    """
    allowed = [field.name for field in dataclasses.fields(kind)]
    for name in given:
        if name not in allowed:
            raise ValueError(f'own.{name}: no such setting; allowed: {", ".join(allowed)}')
    return kind(**given)  # type: ignore[arg-type]


def detection(given: Mapping[str, object]) -> dict:
    """A config of DINO on a plain ViT for boxes in COCO's format; see ``Own``.

    Raises:
        ValueError: a wrong setting, or annotations that cannot be used.
    """
    cfg = read_recipe('dino_vitdet/dino-vitdet_vit-b_rope-mixed_8xb2-90k_coco.py')
    return on_coco(given, cfg, recipe_size=800, recipe_batch=16, milestones=[11 / 12])


def instance(given: Mapping[str, object]) -> dict:
    """A config of Mask R-CNN on a plain ViT for masks in COCO's format; see ``Own``.

    Raises:
        ValueError: a wrong setting, or annotations that cannot be used.
    """
    cfg = read_recipe('stock_heads/mask-rcnn_vit-b_rope-mixed_8xb8-184k_coco.py')
    on_coco(given, cfg, recipe_size=1024, recipe_batch=64, milestones=[8 / 9, 26 / 27])
    cfg['default_hooks']['checkpoint']['save_best'] = 'coco/segm_mAP'
    scale = cfg['test_dataloader']['dataset']['pipeline'][1]['scale']
    cfg['tta_pipeline'][1]['transforms'][0] = [  # a larger view would be padded to two squares
        dict(type='Resize', scale=multiplied(scale, share), keep_ratio=True) for share in (1, 0.75)
    ]
    nms = dict(type='nms', iou_threshold=0.5)
    cfg['tta_model'] = dict(type='InstanceTTAModel', tta_cfg=dict(nms=nms, max_per_img=100))
    return cfg


def read_recipe(name: str) -> dict:
    """A config of this package as plain dicts, which share nothing."""
    return Config.fromfile(CONFIGS / name).to_dict()


def on_coco(
    given: Mapping[str, object],
    cfg: dict,
    recipe_size: int,
    recipe_batch: int,
    milestones: Sequence[float],
) -> dict:
    """Fit a recipe for COCO to the settings, in place.

    Args:
        recipe_size, recipe_batch: size of its test images, and images in an iteration.
        milestones: shares of the training at which its learning rate falls to a tenth.
    """
    own = settings_of(Own, given)
    images = fit_data(cfg, own)
    resize(cfg, own.size / recipe_size)
    model = cfg['model']
    vit = own.vit
    fit_backbone(cfg, own, *DETECTION[vit.scale])
    pyramid = model['neck'][0] if isinstance(model['neck'], list) else model['neck']
    pyramid['in_channels'] = vit.channels
    model['backbone'].update(
        window_size=vit.window_size,
        window_prefix='copy',
        window_block_indexes=[i for i in range(vit.depth) if (i + 1) % (vit.depth // 4)],
    )
    if 'num_queries' in model:  # no more than the smallest training image has tokens of 8 pixels
        model['num_queries'] = min(model['num_queries'], math.floor(0.6 * own.size / 8) ** 2)
        most = min(model['test_cfg']['max_per_img'], model['num_queries'])
        model['test_cfg']['max_per_img'] = most
    iterations = fit_schedule(cfg, own, images, recipe_batch, 'coco/bbox_mAP')
    cfg['param_scheduler'] = [
        *warm_up(iterations),
        dict(
            type='MultiStepLR',
            by_epoch=False,
            milestones=sorted({int(share * iterations) for share in milestones} - {0}),
            gamma=0.1,
        ),
    ]
    return finished(cfg, own)


def fit_data(cfg: dict, own: Own, find: FindSplits | None = None) -> int:
    """Set data sets, evaluators and classes for boxes in COCO's format, in place.

    Args:
        find: what finds the splits; by default ``find_splits``.

    Returns:
        The number of training images.

    Raises:
        ValueError: annotations that cannot be used.
    """
    train = val = MISSING
    if own.root.is_dir():  # else the tools say, before they begin, that the data is not there
        train, val, cfg['own_data'] = (find or find_splits)(own)
    file = own.root / CLASSES_FILE
    listed, colours = read_classes(file) if file.is_file() else (None, [])
    classes = choose_classes(train, val, own.classes or listed)
    by_name = dict(zip(listed or (), colours, strict=True))
    palette = [by_name.get(name, distinct_colour(i)) for i, name in enumerate(classes)]

    for name, split in (('train', train), ('val', val), ('test', val)):
        cfg[f'{name}_dataloader']['dataset'].update(
            data_root=f'{own.root}{os.sep}',
            ann_file=split.ann_file,
            data_prefix=dict(img=f'{split.images}/' if split.images else ''),
            metainfo=dict(classes=classes, palette=palette),
        )
    filter_cfg = dict(filter_empty_gt=not own.negatives, min_size=1)
    cfg['train_dataloader']['dataset']['filter_cfg'] = filter_cfg
    for evaluator in ('val_evaluator', 'test_evaluator'):
        if 'ann_file' in cfg[evaluator]:  # DOTA's metric takes objects from the data set
            cfg[evaluator]['ann_file'] = str(own.root / val.ann_file)
    set_everywhere(cfg['model'], 'num_classes', len(classes))
    images = train.count(classes)
    if not images:
        raise ValueError(f'{own.root / train.ann_file}: no image has an object of {classes}')
    return train.num_images if own.negatives else images


FindSplits = Callable[[Own], tuple[CocoSplit, CocoSplit, str]]


def find_splits(own: Own) -> tuple[CocoSplit, CocoSplit, str]:
    """The training and the validation split, and what they are, in words.

    Raises:
        ValueError: annotations that are not there or cannot be read.
    """
    given = {split: as_file(split, getattr(own, split)) for split in ('train', 'val')}
    is_coco = any((own.root / name).is_file() for name in annotation_files('train'))
    labels = None if is_coco or any(given.values()) else find_labels(own.root)
    if labels is not None:
        splits, report = labels.as_coco(CONVERTED)
        return splits['train'], splits['val'], report
    train, val = (find_coco(own.root, split, file) for split, file in given.items())
    negatives = train.num_images - len(train.with_objects)
    text = f'COCO, {train.num_images} training and {val.num_images} validation images'
    return train, val, f'{text}; {negatives} training images have no object'


def as_file(split: str, given: str | Sequence[str] | None) -> str | None:
    """`train` or `val` of a COCO data set, checked."""
    if given is None or isinstance(given, str):
        return given
    raise ValueError(f'own.{split}={given!r}: give the annotation file, below data_root')


def as_folders(split: str, given: str | Sequence[str] | None) -> Sequence[str] | None:
    """`train` or `val` of images and masks, checked."""
    if given is None or (not isinstance(given, str) and len(given) == 2):
        return given
    raise ValueError(f'own.{split}={given!r}: give [folder of images, folder of masks]')


def resize(cfg: dict, factor: float) -> None:
    """Multiply every size in pixels of the pipelines and of the model's crops."""
    parts = [cfg[f'{name}_dataloader']['dataset']['pipeline'] for name in ('train', 'val', 'test')]
    parts += [cfg.get('tta_pipeline'), cfg['model']['data_preprocessor']]
    parts += [cfg['model'].get('test_cfg')] if cfg.get('default_scope') == 'mmseg' else []
    for part in parts:
        for _, node in nodes(part):
            for name in PIXELS:
                if node.get(name) not in (None, 1):  # a divisor of 1 does not pad
                    node[name] = multiplied(node[name], factor)


def multiplied(value: object, factor: float) -> Any:
    """A number of pixels, or lists of these, times a factor; 10**6, no limit, stays."""
    if isinstance(value, (list, tuple)):
        return type(value)(multiplied(item, factor) for item in value)
    if not isinstance(value, (int, float)) or value >= 10**6:
        return value
    return max(1, round(value * factor))


def set_everywhere(part: object, name: str, value: object) -> None:
    """Set a key wherever it is."""
    for _, node in nodes(part):
        if name in node:
            node[name] = value


def fit_backbone(cfg: dict, own: Own, drop_path: float, layer_decay: float) -> None:
    """Set architecture, weights and what goes with them. Random weights have one learning rate."""
    backbone, paramwise = cfg['model']['backbone'], cfg['optim_wrapper']['paramwise_cfg']
    backbone.update(arch=own.vit.arch, rope='default', with_cls_token='default')
    backbone['drop_path_rate'] = drop_path
    decay = dict(layer_decay=layer_decay)
    fit_weights(cfg, own)
    if own.weights is None:
        backbone.update(drop_path_rate=0.0, img_size=own.size)
        decay = {}
    kept = {name: value for name, value in paramwise.items() if name == 'no_decay'}
    cfg['optim_wrapper']['paramwise_cfg'] = dict(**decay, **kept)


def fit_weights(cfg: dict, own: Own) -> None:
    """Set the weights of the backbone, and the colours and sizes that they were trained with."""
    vit, model = own.vit, cfg['model']
    model['data_preprocessor'].update(mean=[*vit.mean], std=[*vit.std])
    if model['data_preprocessor'].get('pad_size_divisor') == 16:  # of the recipe's patches
        model['data_preprocessor']['pad_size_divisor'] = vit.patch_size
    checkpoint = vit.weights if own.weights == 'default' else own.weights
    pretrained = dict(type='Pretrained', checkpoint=checkpoint)
    model['backbone']['init_cfg'] = pretrained if checkpoint else None
    if own.weights is None and vit.has_layer_scale:
        # LayerScale of 1e-5, with which the weights were trained, would hide the blocks.
        model['backbone']['layer_scale_init_value'] = 1.0


def fit_schedule(
    cfg: dict, own: Own, images: int, recipe_batch: int, metric: str, rule: str = 'greater'
) -> int:
    """Set what depends on the number of images and on epochs; returns the number of iterations.

    Args:
        metric, rule: what chooses the best checkpoint: 'greater' or 'less'.
    """
    together = own.batch_size * own.gpus
    per_epoch = math.ceil(images / together)
    iterations, interval = own.epochs * per_epoch, own.val_epochs * per_epoch
    interval = min(interval, iterations)
    cfg['train_cfg'].update(max_iters=iterations, val_interval=interval)
    hooks = cfg['default_hooks']
    hooks['logger']['interval'] = max(1, min(50, per_epoch // 2))
    hooks['checkpoint'].update(interval=interval, max_keep_ckpts=1, save_best=metric)
    cfg['train_dataloader']['batch_size'] = own.batch_size
    workers = min(4, os.cpu_count() or 1)
    for name in ('train', 'val', 'test'):
        cfg[f'{name}_dataloader'].update(num_workers=workers, persistent_workers=True)
    optimizer = cfg['optim_wrapper']['optimizer']
    scale = math.sqrt(together / recipe_batch)
    optimizer['lr'] = own.lr or float(f'{optimizer["lr"] * scale:.3g}')
    if own.lr is None and own.weights is None:
        optimizer['lr'] = RANDOM_LR
    cfg['auto_scale_lr'] = dict(enable=False, base_batch_size=together)
    custom = []
    if own.patience is not None:
        custom.append(
            dict(type='EarlyStoppingHook', monitor=metric, rule=rule, patience=own.patience)
        )
    if own.ema:
        custom.append(dict(type='EMAHook', ema_type='MomentumAnnealingEMA', momentum=0.0002))
    cfg['custom_hooks'] = custom
    return iterations


def warm_up(iterations: int) -> list[dict]:
    """A linear rise from a thousandth, which mmengine completes at iteration ``end`` - 1."""
    end = min(WARMUP, max(2, iterations // 10))
    rise = dict(type='LinearLR', by_epoch=False, start_factor=0.001, begin=0, end=end)
    return [rise] if end <= iterations else []


def finished(cfg: dict, own: Own) -> dict:
    """The config with its augmentation, its settings, and TensorBoard where that is installed."""
    if find_spec('tensorboard'):
        cfg['visualizer']['vis_backends'].append(dict(type='TensorboardVisBackend'))
    cfg['own'] = dataclasses.asdict(own)
    fit_augmentation(cfg, own.augment, own.flip, own.hue, own.mosaic)
    fit_range(cfg, own.max_value)
    return cfg
