"""detectron2 for the tests: the real one where it can be imported, else a stand-in of the contract
that its documentation has, as far as rope_dense and configs/detectron2 use it.

Configs of detectron2's model zoo (at 02b5c4e) and of detrex (at e244e6c) are reduced to what ours
change, with the values that they are shipped with.
"""

from __future__ import annotations

import copy
import importlib
import sys
from abc import ABCMeta, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from types import ModuleType

from omegaconf import DictConfig
from torch import Tensor, nn

NAMES = ('detectron2', 'fvcore', 'projects', 'rope_dense.models.detectron2')


@cache
def is_real() -> bool:
    """True if detectron2 itself can be imported."""
    try:
        importlib.import_module('detectron2.modeling.backbone')
    except ModuleNotFoundError as error:
        if error.name != 'detectron2':
            raise
        return False
    return True


@contextmanager
def importable() -> Iterator[None]:
    """Let detectron2 be importable, if need be as a stand-in, which is taken away afterwards."""
    if is_real():
        yield
        return
    sys.modules |= standins()
    try:
        yield
    finally:
        for name in [
            name for name in sys.modules if name.startswith((*NAMES, 'lazy_configs'))
        ]:
            del sys.modules[name]


@dataclass
class ShapeSpec:
    channels: int | None = None
    height: int | None = None
    width: int | None = None
    stride: int | None = None


class Backbone(nn.Module, metaclass=ABCMeta):
    """Its outputs are a dict of maps, described by three attributes of the subclass."""

    @abstractmethod
    def forward(self) -> dict[str, Tensor]: ...

    _out_feature_channels: dict[str, int]
    _out_feature_strides: dict[str, int]

    @property
    def size_divisibility(self) -> int:
        return 0

    @property
    def padding_constraints(self) -> dict[str, int]:
        return {}

    def output_shape(self) -> dict[str, ShapeSpec]:
        channels, strides = self._out_feature_channels, self._out_feature_strides
        return {
            name: ShapeSpec(channels[name], None, None, strides[name])
            for name in channels
        }


class LazyCall:
    """A call as a config: arguments, and the callable under '_target_'."""

    def __init__(self, target: object) -> None:
        self.target = target

    def __call__(self, **arguments: object) -> DictConfig:
        return DictConfig(
            arguments | {'_target_': self.target}, flags={'allow_objects': True}
        )


class LazyConfig:
    """Runs a config file, whose relative imports are of files beside it."""

    numbers = count()

    @classmethod
    def load(cls, filename: str, keys: tuple[str, ...] | None = None) -> object:
        path = Path(filename)
        if path.stem in DETREX:
            contents = copy.deepcopy(DETREX[path.stem])
        else:  # in a package of its own, so that every load makes new objects
            package = ModuleType(f'lazy_configs{next(cls.numbers)}')
            package.__path__ = [str(path.parent)]
            sys.modules[package.__name__] = package
            contents = vars(importlib.import_module(f'{package.__name__}.{path.stem}'))
        configs = {
            name: as_config(value)
            for name, value in contents.items()
            if isinstance(value, (dict, DictConfig)) and not name.startswith('_')
        }
        return (
            as_config(configs) if keys is None else tuple(configs[key] for key in keys)
        )


def as_config(value: object) -> DictConfig:
    return DictConfig(value, flags={'allow_objects': True})


class Named:
    """Stands for a class that a config only names."""

    def __init__(self, **arguments: object) -> None:
        self.arguments = arguments


TRAIN = dict(
    output_dir='./output',
    init_checkpoint='',
    max_iter=90000,
    amp=dict(enabled=False),
    ddp=dict(fp16_compression=False),
)
ADAMW = dict(
    params=dict(weight_decay_norm=0.0), lr=1e-4, betas=(0.9, 0.999), weight_decay=0.1
)
PYRAMID = dict(net=dict(out_feature='last_feat'), in_feature='${.net.out_feature}')
MAPPER = dict(image_format='BGR', augmentations=[])
MODEL_ZOO = {
    'common/models/mask_rcnn_vitdet.py': dict(model=dict(backbone=PYRAMID)),
    'common/data/coco.py': dict(
        dataloader=dict(
            train=dict(total_batch_size=16, mapper=MAPPER),
            test=dict(mapper=dict(MAPPER)),
        )
    ),
    'common/train.py': dict(train=TRAIN),
    'common/optim.py': dict(AdamW=ADAMW),
}


def dino(
    backbone: dict, channels: tuple[int, ...], warm_up: float, milestones: list[int]
) -> dict:
    first = 3 if len(channels) == 4 else 1
    names = [f'p{first + i}' for i in range(len(channels))]
    shapes = {n: dict(channels=c) for n, c in zip(names, channels, strict=True)}
    return dict(
        model=dict(
            backbone=backbone, neck=dict(input_shapes=shapes, in_features=names)
        ),
        train=TRAIN | dict(init_checkpoint='/path/to/weights'),
        dataloader=dict(evaluator=dict(output_dir='./output')),
        optimizer=ADAMW | dict(weight_decay=1e-4),
        lr_multiplier=dict(
            scheduler=dict(values=[1.0, 0.1], milestones=milestones),
            warmup_length=warm_up,
            warmup_factor=0.001,
        ),
    )


SWIN = dict(out_indices=(1, 2, 3))
DETREX = {
    'dino_vitdet_base_4scale_12ep': dino(PYRAMID, (256,) * 4, 0.0, [82500, 90000]),
    'dino_vitdet_large_4scale_12ep': dino(
        PYRAMID, (256,) * 4, 250 / 90000, [300000, 375000]
    ),
    'dino_swin_tiny_224_4scale_12ep': dino(SWIN, (192, 384, 768), 0.0, [82500, 90000]),
    'dino_swin_small_224_4scale_12ep': dino(SWIN, (192, 384, 768), 0.0, [82500, 90000]),
    'dino_swin_base_384_4scale_12ep': dino(SWIN, (256, 512, 1024), 0.0, [82500, 90000]),
}


def standins() -> dict[str, ModuleType]:
    """The modules, under their names."""
    parts: dict[str, dict[str, object]] = {
        'detectron2.layers': dict(ShapeSpec=ShapeSpec),
        'detectron2.modeling': {},
        'detectron2.modeling.backbone': dict(Backbone=Backbone),
        'detectron2.config': dict(LazyCall=LazyCall, LazyConfig=LazyConfig),
        'detectron2.model_zoo': dict(
            get_config=lambda name: as_config(copy.deepcopy(MODEL_ZOO[name]))
        ),
        'detectron2.data': {},
        'detectron2.data.transforms': dict.fromkeys(
            ('RandomFlip', 'ResizeScale', 'FixedSizeCrop', 'ResizeShortestEdge'), Named
        ),
        'detectron2.solver': dict(WarmupParamScheduler=Named),
        'fvcore.common': {},
        'fvcore.common.param_scheduler': dict(MultiStepParamScheduler=Named),
        'projects.dino': dict(__path__=['/detrex/projects/dino']),
    }
    modules: dict[str, ModuleType] = {}
    for name, contents in parts.items():
        package = name.partition('.')[0]
        for made in (package, name):
            modules.setdefault(made, ModuleType(made)).__path__ = []
        vars(modules[name]).update(contents)
    for name, module in modules.items():
        parent, _, child = name.rpartition('.')
        if parent:
            setattr(modules[parent], child, module)
    return modules
