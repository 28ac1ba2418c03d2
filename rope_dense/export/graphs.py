"""The module that is exported: a copy of a model, from images to results, that can be traced.

Letters: B images, H x W pixels, K classes, C channels.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from mmengine.model import BaseDataPreprocessor, revert_sync_batchnorm
from torch import Tensor, nn

from ..backbones.base import Backbone, backbone_of
from ..backbones.layers import round_up
from ..models.channel_preprocessors import AnyChannels
from ..models.maps import size_of
from ..utils.sizes import ImageSize
from .client import Frame, Resize, sizes_like
from .parts import replace_parts

Outputs = tuple[Tensor, ...]  # of a graph, as it names them
TOO_MUCH = 1e-2
THRESHOLD = (
    'threshold'  # name of the score in a file below which detections are left out
)


class Graph(nn.Module, ABC):
    """A model in evaluation mode on the CPU. The model that it is made of is not changed.

    Args:
        model: see the subclasses.
        dtype: precision, except of ``float32_parts``.

    Attributes:
        channels: C of the images.
        float32_parts: what stays in float32, whatever ``dtype`` is.
        task: 'backbone', 'classification', 'segmentation', 'depth', 'detection', 'masks' or
            'several'.
        outputs: names of what ``forward`` returns.
        num_classes: K; None if there are none.
        generic: (height, width) from which on no map or window is a special case; a larger image
            is traced, and one of this size compared with the model.
        is_special: whether smaller images are special cases, and refused.
        tokens: of the smallest side; 2 where a neck halves the map.
        formats: of the files that it can be written to.
        tolerance: of a file in float32, relative to the largest value.
        resize: of images that have any size; None if they come at the size of the model.
        top: detections of an image at most, without a limit None.
        threshold: score [1, 1], detections below it are left out; None without one.

    Raises:
        ValueError: a part of the model cannot be exported.
    """

    model: Any  # of mmdet or mmseg, too, which have no types
    preprocess: Preprocess
    task: str
    outputs: tuple[str, ...]
    float32_parts: tuple[str, ...] = (
        'preprocessing',
        'frequencies and angles',
        'necks and heads',
    )
    num_classes: int | None = None
    formats: tuple[str, ...] = ('onnx', 'pt2')
    tolerance: float = TOO_MUCH
    resize: Resize | None = None
    top: int | None = None
    threshold: Tensor | None

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.register_buffer(THRESHOLD, None)
        backbone = backbone_of(model)
        stem = backbone.patch_embed
        self.patch_size = stem.patch_size
        self.pads = stem.pad
        self.channels = stem.in_channels
        self.generic = generic_size(backbone)
        self.is_special = backbone.has_windows and not backbone.shift_single_window
        model = copy.deepcopy(model).cpu().eval().requires_grad_(False)
        self.model = replace_parts(revert_sync_batchnorm(model))
        if self.task != 'backbone':
            self.preprocess = Preprocess(self.model.data_preprocessor)
        self.tokens = 1
        for part in self.model.modules():
            if isinstance(part, nn.MaxPool2d):
                pool: Any = part  # whose numbers may be pairs elsewhere
                self.tokens = max(self.tokens, pool.kernel_size - 2 * pool.padding)
            if isinstance(part, (nn.ReLU, nn.ReLU6, nn.SiLU, nn.Dropout)):
                part.inplace = False
            if isinstance(part, (nn.Conv2d, nn.ConvTranspose2d)):
                part.register_forward_pre_hook(contiguous)

    def forward(self, image: Tensor, resized: Tensor | None = None) -> Outputs:
        """``outputs`` of an ``example``, and of the same after ``resize``, by default computed."""
        size = size_of(image)
        x = image
        frame = Frame(size, size)
        if self.resize is not None:
            x = self.resize(image) if resized is None else resized
            frame = Frame(size_of(x), self.resize.padded(size))
        results = self.results(self.preprocess(x), frame)
        found = dict(zip(self.outputs, results, strict=True))
        if frame.input is not size:
            self.cut(found, size)
        for names in self.detections:
            kept = self.filtered(names, *map(found.__getitem__, names))
            found |= zip(names, kept, strict=True)
        return tuple(found.values())

    @abstractmethod
    def results(self, x: Tensor, frame: Frame) -> Outputs:
        """``outputs`` of preprocessed images, whose sizes were ``frame`` before padding."""

    @property
    def detections(self) -> list[list[str]]:
        """The outputs of each detector, its scores first."""
        return [list(self.outputs)] if self.task == 'detection' else []

    def cut(self, found: dict[str, Tensor], size: ImageSize) -> None:
        """Take what is in repeated pixels out of outputs, by name."""
        for scores, boxes, *_ in self.detections:
            most = sizes_like(found[boxes], size)
            outside = (found[boxes][..., :2] >= most).any(-1)
            found[scores] = found[scores].masked_fill(outside, 0.0)
            found[boxes] = torch.minimum(found[boxes], most.repeat(2))
        for name, x in found.items():
            is_map = name.endswith(('masks', 'logits', 'depth'))
            if is_map or (name.endswith('labels') and x.ndim == 3):
                found[name] = crop_maps(x, size)

    def filtered(self, names: Sequence[str], *outputs: Tensor) -> list[Tensor]:
        """Outputs of a detector without detections after ``top``, or below ``threshold``.

        Where another image of the batch has more of them, the scores of an image are 0. What has a
        score of 0 has the label -1, and zeros as box and mask.
        """
        scores, *others = map(self.first, outputs)
        if self.threshold is not None:
            best = scores.amax(0, keepdim=True)
            # TensorRT has NonZero of numbers alone.
            index = (best >= self.threshold).float().nonzero()[:, 1]
            scores = scores.where(scores >= self.threshold, 0.0)
            scores, *others = [x.index_select(1, index) for x in (scores, *others)]
        empty = scores <= 0
        found = [scores]
        for name, x in zip(names[1:], others, strict=True):
            places = empty.view(*empty.shape, *[1] * (x.ndim - 2))
            if x.dtype == torch.bool:
                # ONNX Runtime has no Where of truths.
                found.append(x & ~places)
            else:
                fill = -1 if name.endswith('labels') else 0
                found.append(x.masked_fill(places, fill))
        return found

    def first(self, x: Tensor) -> Tensor:
        """``top`` detections of x [B, M, ...]."""
        return x if self.top is None else x[:, : self.top]

    @property
    def divisor(self) -> int:
        """The sides of images are padded to multiples of it."""
        return self.preprocess.divisor

    @property
    def min_side(self) -> int:
        """Pixels of the smallest side at dynamic sizes: ``tokens`` patches, before padding."""
        if self.is_special:
            return max(self.generic)
        patches = self.tokens - 1 if self.pads else self.tokens
        padded = patches * self.patch_size + self.pads
        return (padded - 1) // self.divisor * self.divisor + 1

    def example(self, batch: int, height: int, width: int) -> Tensor:
        """Images of noise, [B, C, H, W]: uint8, or float32 if pixels may have more bits."""
        shape = (batch, self.channels, height, width)
        pixels = torch.randint(0, 256, shape, dtype=torch.uint8)
        made_for = self.preprocess
        if not made_for.any_channels:
            return pixels
        relative = pixels / 127.5 - 1
        if not made_for.normalize:
            return relative
        return relative * made_for.std + made_for.mean

    def description(self) -> dict:
        """Properties of the input, for the metadata of the file."""
        return dict(
            dtype='float32' if self.preprocess.any_channels else 'uint8',
            layout='batch, channel, height, width',
            channels=self.channels,
            **self.preprocess.description(self.channels),
        )

    def details(self) -> dict:
        """More metadata of the file."""
        return {}

    def cast_backbone(self) -> None:
        """Run the backbone in ``dtype``, between float32 and float32."""
        if self.dtype != torch.float32:
            self.model.backbone = CastBackbone(self.model.backbone, self.dtype)


class BackboneGraph(Graph):
    """A backbone alone: normalised images, float32 [B, C, H, W], to its maps."""

    task = 'backbone'
    float32_parts = ('frequencies and angles',)
    preprocess: Any = staticmethod(lambda image: image)  # normalised by the user
    divisor = 1

    def __init__(self, model: Backbone, dtype: torch.dtype) -> None:
        super().__init__(model, dtype)
        self.outputs = tuple(f'map{index}' for index in range(len(model.out_channels)))
        if dtype != torch.float32:
            self.model = CastBackbone(self.model, dtype)

    def results(self, x: Tensor, frame: Frame) -> Outputs:
        return tuple(self.model(x))[: len(self.outputs)]  # not an image behind them

    def example(self, batch: int, height: int, width: int) -> Tensor:
        return torch.randn(batch, self.channels, height, width)

    def description(self) -> dict:
        layout = 'batch, channel, height, width, normalised'
        return dict(dtype='float32', layout=layout, channels=self.channels)


class Preprocess(nn.Module):
    """The pixels of a data preprocessor of mmengine, mmdet or mmseg.

    Orders the channels, subtracts the mean, divides by the standard deviation, and pads images at
    the bottom and right.

    Attributes:
        divisor: of the sides that images are padded to.
        pad_value: of padding, in normalised pixels.
        any_channels: whether it is of images whose channels and bits are not a picture's.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, preprocessor: BaseDataPreprocessor) -> None:
        super().__init__()
        settings = vars(preprocessor)  # mmseg has other names than mmengine
        self.any_channels = isinstance(preprocessor, AnyChannels)
        self.order = 'BGR'  # as mmcv reads images
        flip = settings.get('_channel_conversion', False)
        self.flip = settings.get('channel_conversion', flip)
        padding = settings.get('test_cfg') or {}  # of mmseg's
        if padding.get('size'):
            raise ValueError(
                f'data_preprocessor.test_cfg must have a size_divisor and no size, got {padding}'
            )
        divisor = settings.get('pad_size_divisor', 1)
        self.divisor = padding.get('size_divisor') or divisor
        self.pad_value = settings.get('pad_val', settings.get('pad_value', 0))
        self.normalize = settings.get('_enable_normalize', False)
        if self.normalize:
            self.register_buffer('mean', preprocessor.mean.detach().clone().float())
            self.register_buffer('std', preprocessor.std.detach().clone().float())

    def forward(self, image: Tensor) -> Tensor:
        """Pixels, [B, C, H, W], to float32, normalised and padded."""
        image = image.float()
        if self.flip:
            image = image.flip(1)
        if self.normalize:
            image = (image - self.mean) / self.std
        if self.divisor == 1:
            return image
        height, width = image.shape[2:]
        bottom = round_up(height, self.divisor) - height
        right = round_up(width, self.divisor) - width
        return F.pad(image, (0, right, 0, bottom), value=self.pad_value)

    def description(self, channels: int) -> dict:
        """Properties of the pixels; mean and deviation follow the model's order of channels."""
        mean = torch.zeros(channels)
        std = torch.ones(channels)
        if self.normalize:
            mean = self.mean
            std = self.std
        order = 'as trained' if self.any_channels else self.order
        model_order = order
        if self.flip and not self.any_channels:
            model_order = order[::-1]
        return dict(
            channel_order=order,
            model_channel_order=model_order,
            mean=mean.flatten().tolist(),
            std=std.flatten().tolist(),
            normalised_in_graph=True,
        )


class CastBackbone(nn.Module):
    """A backbone in half precision between float32 images and float32 maps."""

    def __init__(self, backbone: Backbone, dtype: torch.dtype) -> None:
        super().__init__()
        self.backbone = backbone.to(dtype)
        self.dtype = dtype

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.float() for x in self.backbone(image.to(self.dtype)))


class InFloat32(nn.Module):
    """A part in float32 in a model of another precision; its output gets the type ``out``."""

    def __init__(self, part: nn.Module, out: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.part = part
        self.out = out

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x.float()).to(self.out)


def contiguous(part: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
    """The input of a convolution, copied; to know the layout torch compares its sides with 1."""
    (x,) = inputs
    return (x.clone(memory_format=torch.contiguous_format),)


def check_methods(model: nn.Module, kind: type, *names: str) -> None:
    """Raise ValueError if a subclass of ``kind`` predicts by methods of its own."""
    for name in names:
        if getattr(type(model), name) is not getattr(kind, name):
            raise ValueError(
                f'model must be {kind.__name__} or a subclass with its {name}; '
                f'{type(model).__name__} has its own'
            )


def crop_maps(x: Tensor, size: ImageSize) -> Tensor:
    """Maps [..., H', W'] without the rows and columns from ``size`` (H, W) on.

    Not a slice: whether it is the whole of a padded map would be settled while tracing.
    """
    rows, columns = map(torch.arange, size)
    return x.index_select(-2, rows).index_select(-1, columns)


def generic_size(backbone: Backbone) -> ImageSize:
    """The smallest image with sides of more than one token, and of more than one window."""
    stride = backbone.block_strides[-1]
    rows = 1
    columns = 1
    if backbone.has_windows and isinstance(backbone.window_size, tuple):
        rows, columns = backbone.window_size
    return stride * (rows + 1), stride * (columns + 1)


DETECTOR_MODULES = ('detector', 'deim', 'rcnn')  # modules beside this one
# Models that can be exported. A package that has others adds them where it registers these models.
GRAPHS: dict[type, type[Graph]] = {Backbone: BackboneGraph}


def graph_of(model: nn.Module, dtype: torch.dtype = torch.float32) -> Graph:
    """The graph of a model; ValueError if it, or a part of it, cannot be exported."""
    for kind, graph in graphs().items():
        if isinstance(model, kind):
            return graph(model, dtype)
    known = ', '.join(kind.__name__ for kind in graphs())
    raise ValueError(f'model must be one of {known}, it is {type(model).__name__}')


def graphs() -> dict[type, type[Graph]]:
    """``GRAPHS``, and detectors and segmentors where their packages are there."""
    found = dict(GRAPHS)
    modules = dict(segmentor='mmseg', shared='mmengine')
    modules |= dict.fromkeys(DETECTOR_MODULES, 'mmdet')
    for module, package in modules.items():
        if find_spec(package):
            found |= import_module(f'.{module}', __package__).GRAPHS
    return found
