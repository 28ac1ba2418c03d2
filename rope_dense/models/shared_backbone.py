"""One frozen backbone under the trained heads of several tasks, in one pass.

Letters: B images, N tokens, H x W token grid, C channels.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from importlib import import_module
from inspect import signature
from typing import Any, Literal

import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.model import BaseModel, ImgDataPreprocessor
from mmengine.registry import MODELS
from mmengine.structures import BaseDataElement, PixelData
from torch import Tensor, nn

from ..backbones.block import Block
from ..backbones.layers import to_map
from ..backbones.vit import RoPEViT, is_norm
from ..checkpoints.detectors import convert_detector
from ..checkpoints.errors import CheckpointError
from ..checkpoints.fetch import fetch
from ..checkpoints.incompatible import compare_weights
from ..checkpoints.read import read_checkpoint
from ..utils.sizes import Size
from ..utils.validation import checked_settings
from .eomt.queries import EoMT

FEATURES = 'features'  # the name of an output, and of no task
# Arguments of a backbone that may differ between the tasks.
PER_TASK = (
    'arch', 'settings', 'out_indices', 'output_prefix', 'drop_path_rate', 'frozen_stages',
    'with_cp', 'init_cfg', 'pretrained',
)  # fmt: skip
# Likewise of its architecture: the weights tell whether these fit.
OF_WEIGHTS = ('final_norm', 'layer_scale_init_value', 'qkv_bias')
AUGMENTATION = dict.fromkeys(('shift', 'jitter', 'rescale'))
PIXELS = dict(mean=None, std=None, bgr_to_rgb=False, rgb_to_bgr=False)


@MODELS.register_module()
class SharedBackbone(BaseModel):
    """Detectors, segmentors and depth estimators of mmdet and mmseg on one plain ViT.

    Each task is a trained model with a config and a checkpoint of its own. All were trained on the
    same frozen backbone, which is in memory once and runs once. Each head gets the maps, norms and
    prefix tokens that its config asks for, and predicts what its model alone predicts for the same
    input: normalised by the common ``data_preprocessor``, and padded to a multiple that fits all
    tasks. Segmentors take whole images, whatever ``test_cfg.mode`` is. The model does not train.
    Checked against each model alone, and by counted launches, in
    tests/models/test_shared_backbone.py.

    ``PMT`` shares a backbone. ``EoMT`` is refused: its queries pass the last blocks, whose tokens
    are then of no use to other heads.

    Args:
        tasks: by name, ``dict(config=..., checkpoint=...)``: the path of a config, such as the one
            in the work folder of the training, and a path, address or name on the hub. Without a
            checkpoint a head has random weights, on the backbone of the first task.
        features: also give the map of the last block, after the last norm and scaled to length 1
            at each place: products of places are cosine similarities.

    Attributes:
        backbone: the shared one.
        tasks: the models by name. Each also runs alone.
        configs: of the tasks.
        dataset_metas: classes and colours of the tasks, as far as their checkpoints have them.

    Raises:
        ValueError: tasks that cannot share a backbone or an input; the message names the setting.
        CheckpointError: a checkpoint cannot be read, or does not fit its config, or the weights of
            the backbones differ; the message names the first such key, and both files.
    """

    def __init__(self, tasks: Mapping[str, dict], features: bool = False) -> None:
        configs = {name: read_task(name, task) for name, task in tasks.items()}
        if not configs:
            raise ValueError(
                'tasks: give one or more, NAME=dict(config=..., checkpoint=...)'
            )
        super().__init__(common_preprocessor(configs))
        self.configs = configs
        self.features = features
        self.dataset_metas: dict[str, dict] = {}
        self.tasks = nn.ModuleDict()
        needed = set[int]()
        for name, cfg in configs.items():
            model = build_task(name, cfg)
            checkpoint = tasks[name].get('checkpoint')
            meta = {} if checkpoint is None else load_task(model, checkpoint)
            self.dataset_metas[name] = meta
            if not self.tasks:
                settings = dict(cfg.model.backbone, type=RoPEViT, init_cfg=None)
                with torch.device('meta'):  # every weight is replaced
                    self.backbone = MODELS.build(settings)
                share_parts(model.backbone, self.backbone)
            self.check_settings(name, model.backbone)
            if checkpoint is not None:
                first = next(iter(tasks.values())).get('checkpoint') or 'random weights'
                check_equal_weights(self.backbone, model.backbone, (first, checkpoint))
            share_parts(self.backbone, model.backbone)
            needed.update(model.backbone.out_indices)
            self.tasks[name] = model
        if features:
            needed.add(len(self.backbone.blocks) - 1)
            if self.backbone.norm is None:
                raise ValueError(
                    'features: the backbone of the first task has no final norm'
                )
        self.indices = sorted(needed)
        self.eval().requires_grad_(False)

    def check_settings(self, name: str, backbone: RoPEViT) -> None:
        """Raise ValueError unless a task has the settings of the shared backbone."""
        first = next(iter(self.configs))
        needed = encoder_settings(self.configs[first], self.backbone)
        for key, value in encoder_settings(self.configs[name], backbone).items():
            if value != needed[key]:
                raise ValueError(
                    f'the backbones differ: {key} is {value!r} in tasks.{name}, {needed[key]!r} in '
                    f'tasks.{first}'
                )

    def init_weights(self) -> None:
        """Change nothing: all weights were read from checkpoints."""

    def forward(
        self,
        inputs: Tensor,
        data_samples: Sequence[BaseDataElement] | None = None,
        mode: Literal['tensor', 'predict', 'loss'] = 'tensor',
    ) -> dict[str, Any] | list[BaseDataElement]:
        """Run the backbone once and each head on its maps.

        Args:
            inputs: [B, 3, height, width], normalised.
            data_samples: with ``ori_shape``, ``img_shape`` and ``scale_factor``.
            mode: 'tensor' or 'predict'.

        Returns:
            Of 'tensor' what the model of each task returns, by its name, and ``features``
            [B, C, H, W]. Of 'predict' a sample for each image, with the sample of each task by its
            name, and ``features`` as ``PixelData`` of the places with pixels of the image.

        Raises:
            RuntimeError: mode 'loss'.
        """
        if mode == 'loss':
            raise RuntimeError(
                'SharedBackbone only predicts: train each head with its own config and '
                "frozen_stages='all'"
            )
        results: dict[str, Any] = {}
        height, width = inputs.shape[2:]
        with self.encoded(inputs):
            for name, task in self.tasks.items():
                samples = None
                if data_samples is not None:
                    scope = self.configs[name].default_scope
                    size = (height, width)
                    samples = [task_sample(scope, x, size) for x in data_samples]
                results[name] = task(inputs, samples, mode=mode)
            if self.features:
                results[FEATURES] = self.feature_map()
        if mode == 'tensor':
            return results
        assert data_samples is not None, 'predictions need samples'
        side = self.backbone.patch_embed.patch_size
        predictions = []
        for index, sample in enumerate(data_samples):
            found = {name: of_images[index] for name, of_images in results.items()}
            if self.features:
                found[FEATURES] = crop_padding(found[FEATURES], sample, side)
            predictions.append(BaseDataElement(metainfo=sample.metainfo, **found))
        return predictions

    @contextmanager
    def encoded(self, image: Tensor) -> Iterator[None]:
        """Within this context, the backbones of the tasks give the tokens of one pass of images.

        In this thread only: others may run the model at the same time.
        """
        tokens, grid = self.backbone.block_tokens(image, self.indices)
        by_index = dict(zip(self.indices, tokens, strict=True))
        before = PASS.set(Pass(self.backbone.blocks, by_index, grid))
        try:
            yield
        finally:
            PASS.reset(before)

    def feature_map(self) -> Tensor:
        """The normalised map [B, C, H, W] of the images of this pass."""
        current = PASS.get()
        assert current is not None, 'call it within encoded()'
        x = self.backbone.norm(current.tokens[self.indices[-1]])
        x = to_map(x[:, self.backbone.num_prefix_tokens :], current.grid)
        return F.normalize(x, dim=1)


@dataclass(frozen=True, eq=False)
class Pass:
    """The tokens of some images after each block that a head needs.

    Attributes:
        blocks: the blocks that the tokens passed, which all tasks of one model share.
        tokens: [B, N, C] by index of the block.
        grid: (H, W).
    """

    blocks: Sequence[Block]
    tokens: dict[int, Tensor]
    grid: Size


PASS: ContextVar[Pass | None] = ContextVar('PASS', default=None)  # of this thread


class TaskBackbone(RoPEViT):
    """The backbone of one task: makes its maps of the tokens of a pass, where there is one."""

    def block_tokens(
        self, image: Tensor, indices: Sequence[int]
    ) -> tuple[list[Tensor], Size]:
        current = PASS.get()
        if current is None or current.blocks is not self.blocks:  # of another model
            return super().block_tokens(image, indices)
        return [current.tokens[index] for index in indices], current.grid


def share_parts(source: RoPEViT, target: RoPEViT) -> None:
    """Replace the parts of a backbone by the parts of another."""
    parts = dict(source.named_children()) | dict(source.named_parameters(recurse=False))
    for name, part in parts.items():
        # A task may lack a norm.
        if getattr(target, name, None) is not None:
            setattr(target, name, part)


def read_task(name: str, task: dict) -> Config:
    """The config of a task."""
    if not name.isidentifier() or name == FEATURES:
        raise ValueError(
            f'tasks: {name!r} must be a Python name other than {FEATURES!r}'
        )
    settings = checked_settings(f'tasks.{name}', task, ('config', 'checkpoint'))
    if 'config' not in settings:
        raise ValueError(f'tasks.{name} has no config')
    return Config.fromfile(settings['config'])


def common_preprocessor(configs: Mapping[str, Config]) -> ImgDataPreprocessor:
    """The preprocessor of all tasks; its divisor is a multiple of theirs."""
    pixels: dict[str, dict[str, Any]] = {}
    divisors = []
    for name, cfg in configs.items():
        settings = cfg.model.get('data_preprocessor') or {}
        found = pixels[name] = {}
        for key, default in PIXELS.items():
            value: Any = settings.get(key, default)
            is_list = isinstance(value, (list, tuple))
            found[key] = list(map(float, value)) if is_list else value
        padding = (settings.get('test_cfg') or {}).get('size_divisor')
        divisors += [settings.get('pad_size_divisor') or 1, padding or 1]
    first, needed = next(iter(pixels.items()))
    for name, found in pixels.items():
        if found != needed:
            raise ValueError(
                f'one pass has one input, but data_preprocessor has {found} in tasks.{name}, '
                f'{needed} in tasks.{first}'
            )
    return ImgDataPreprocessor(**needed, pad_size_divisor=math.lcm(*divisors))


def build_task(name: str, cfg: Config) -> Any:
    """The model of a task, with a ``TaskBackbone``; ValueError if it cannot share a backbone."""
    scope = cfg.default_scope
    settings = copy.deepcopy(cfg.model)
    if scope in ('mmdet', 'mmseg'):
        import_module(f'{scope}.models')
    if scope == 'mmseg':
        settings.test_cfg = dict(settings.get('test_cfg') or {}, mode='whole')
    with MODELS.switch_scope_and_registry(scope) as registry:
        kind = settings.backbone.type
        if (registry.get(kind) if isinstance(kind, str) else kind) is not RoPEViT:
            raise ValueError(
                f'tasks.{name}: the backbone must be RoPEViT, it is {kind}'
            )
        settings.backbone.type = TaskBackbone
        model = registry.build(settings)
    if any(isinstance(part, EoMT) for part in model.modules()):
        raise ValueError(
            f'tasks.{name}: the queries of EoMT pass the last blocks of the backbone, whose tokens '
            'are then of no use to other heads; PMT (pmt=dict() in the head) shares a backbone'
        )
    return model


def load_task(model: BaseModel, checkpoint: str) -> dict:
    """Load the weights of a task strictly; returns the classes and colours beside them."""
    contents = read_checkpoint(fetch(checkpoint), checkpoint)
    contents = convert_detector(contents, checkpoint)
    weights = dict(contents.get('state_dict', contents))
    expected = model.state_dict()
    for state in (expected, weights):
        for key in list(state):
            if key.endswith('num_batches_tracked'):
                del state[key]
    incompatible = compare_weights(expected, weights)
    if incompatible:
        raise CheckpointError(f'{checkpoint} does not fit its config:\n{incompatible}')
    model.load_state_dict(weights, strict=False)
    return (contents.get('meta') or {}).get('dataset_meta') or {}


def encoder_settings(cfg: Config, backbone: RoPEViT) -> dict[str, Any]:
    """Settings that change the tokens of a backbone in evaluation, beside its weights."""
    settings = asdict(backbone.arch)
    for name in OF_WEIGHTS:
        del settings[name]
    rope = settings['rope']
    if rope and 'coordinates' in rope:
        settings['rope'] = rope | {'coordinates': rope['coordinates'] | AUGMENTATION}
    for name, parameter in signature(RoPEViT).parameters.items():
        if name not in PER_TASK:
            settings[name] = cfg.model.backbone.get(name, parameter.default)
    return settings


def check_equal_weights(
    first: RoPEViT,
    other: RoPEViT,
    files: tuple[str, str],
) -> None:
    """Raise CheckpointError unless the weights of two backbones have the same bytes.

    Either may lack norms of outputs, and biases of queries, keys and values that are 0 in the
    other: DINOv3's released ones are.
    """
    ours = first.state_dict()
    theirs = other.state_dict()
    for key in dict.fromkeys([*ours, *theirs]):
        if key in ours and key in theirs:
            own_bytes = ours[key].flatten().view(torch.uint8)
            equal = torch.equal(own_bytes, theirs[key].flatten().view(torch.uint8))
        else:
            lone = ours.get(key, theirs.get(key))
            equal = is_norm(key.split('.')[0]) or ('.qkv.' in key and not lone.any())
        if not equal:
            raise CheckpointError(
                f'the weights of the backbones differ, first in {key}: {files[0]} and {files[1]}. '
                "Heads share a backbone that all were trained on frozen (frozen_stages='all')"
            )


def task_sample(
    scope: str,
    sample: BaseDataElement,
    size: Size,
) -> BaseDataElement:
    """A sample of a task for an image that was padded to ``size``, (height, width)."""
    height, width = sample.metainfo['img_shape'][:2]
    padding = (0, size[1] - width, 0, size[0] - height)  # left, right, top, bottom
    meta = dict(
        sample.metainfo,
        batch_input_shape=size,
        pad_shape=size,
        img_padding_size=padding,
    )
    if scope == 'mmseg':
        kind = import_module('mmseg.structures').SegDataSample
    else:
        kind = import_module('mmdet.structures').DetDataSample
    return kind(metainfo=meta)


def crop_padding(
    feature_map: Tensor,
    sample: BaseDataElement,
    side: int,
) -> PixelData:
    """A map [C, H, W] without the places of padding alone."""
    height, width = sample.metainfo['img_shape'][:2]
    rows = -(-height // side)
    columns = -(-width // side)
    return PixelData(data=feature_map[:, :rows, :columns])
