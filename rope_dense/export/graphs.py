"""The module that is exported: a copy of a model, from images to results, that can be traced.

Letters: B images, H x W pixels, K classes, C channels.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from mmengine.model import BaseDataPreprocessor, revert_sync_batchnorm
from torch import Tensor, nn

from ..backbones.base import Backbone, backbone_of
from ..utils.sizes import ImageSize
from .parts import replace_parts


class Graph(nn.Module, ABC):
    """A model in evaluation mode on the CPU. The model that it is made of is not changed.

    Args:
        model: see the subclasses.
        dtype: precision, except of ``float32_parts``.

    Attributes:
        float32_parts: what stays in float32, whatever ``dtype`` is.
        task: 'backbone', 'classification', 'segmentation', 'depth', 'detection', 'masks' or
            'several'.
        outputs: names of what ``forward`` returns.
        num_classes: K; None if there are none.
        least: (height, width) of the smallest image at dynamic sizes.
        multiple: of which the sides of an image must be a multiple.
        oblivious: whether torch skips, while tracing, the special cases of sides of 0 and 1, which
            halves the time. Its einsum, in Mask2Former, then demands two images or more.
        formats: of the files that it can be written to.

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
    multiple = 1
    oblivious = True
    formats: tuple[str, ...] = ('onnx', 'pt2')

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        backbone = backbone_of(model)
        self.patch_size, self.least = backbone.patch_embed.patch_size, smallest_size(backbone)
        model = copy.deepcopy(model).cpu().eval().requires_grad_(False)
        self.model = replace_parts(revert_sync_batchnorm(model))
        for part in self.model.modules():
            if isinstance(part, (nn.ReLU, nn.ReLU6, nn.SiLU, nn.Dropout)):
                part.inplace = False

    @abstractmethod
    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``outputs`` of an ``example``."""

    def example(self, batch: int, height: int, width: int) -> Tensor:
        """Images of noise: uint8 [B, 3, H, W]."""
        return torch.randint(0, 256, (batch, 3, height, width), dtype=torch.uint8)

    def description(self) -> dict:
        """Properties of the input, for the metadata of the file."""
        settings = dict(dtype='uint8', layout='batch, channel, height, width')
        return settings | self.preprocess.description()

    @property
    def compared(self) -> list[str]:
        """The outputs that tell whether a file computes the same.

        Of detections only scores, because those with nearly equal scores may swap.
        """
        if self.task == 'detection':
            return ['scores']
        return [name for name in self.outputs if name != 'labels']

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

    def __init__(self, model: Backbone, dtype: torch.dtype) -> None:
        super().__init__(model, dtype)
        self.outputs = tuple(f'map{index}' for index in range(len(model.out_channels)))
        self.in_channels = model.patch_embed.in_channels
        if dtype != torch.float32:
            self.model = CastBackbone(self.model, dtype)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return tuple(self.model(image))

    def example(self, batch: int, height: int, width: int) -> Tensor:
        return torch.randn(batch, self.in_channels, height, width)

    def description(self) -> dict:
        return dict(dtype='float32', layout='batch, channel, height, width, normalised')


class Preprocess(nn.Module):
    """The pixels of a data preprocessor of mmengine, mmdet or mmseg.

    Orders the channels, subtracts the mean and divides by the standard deviation.

    Attributes:
        divisor: of the sides that they pad images to, at the bottom and right.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, preprocessor: BaseDataPreprocessor) -> None:
        super().__init__()
        settings = vars(preprocessor)  # mmseg has other names than mmengine
        self.flip = settings.get('channel_conversion', settings.get('_channel_conversion', False))
        self.divisor = settings.get('pad_size_divisor', 1)
        self.normalize = settings.get('_enable_normalize', False)
        if self.normalize:
            self.register_buffer('mean', preprocessor.mean.detach().clone().float())
            self.register_buffer('std', preprocessor.std.detach().clone().float())

    def forward(self, image: Tensor) -> Tensor:
        """uint8 [B, 3, H, W] to float32."""
        image = image.float()
        if self.flip:
            image = image.flip(1)
        return (image - self.mean) / self.std if self.normalize else image

    def description(self) -> dict:
        """Properties of the pixels; mean and deviation follow the model's order of channels."""
        mean, std = (self.mean, self.std) if self.normalize else (torch.zeros(3), torch.ones(3))
        return dict(
            channel_order='BGR',  # as mmcv reads images
            model_channel_order='RGB' if self.flip else 'BGR',
            mean=mean.flatten().tolist(),
            std=std.flatten().tolist(),
            normalised_in_graph=True,
        )


class CastBackbone(nn.Module):
    """A backbone in half precision between float32 images and float32 maps."""

    def __init__(self, backbone: Backbone, dtype: torch.dtype) -> None:
        super().__init__()
        self.backbone, self.dtype = backbone.to(dtype), dtype

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.float() for x in self.backbone(image.to(self.dtype)))


class InFloat32(nn.Module):
    """A part in float32 in a model of another precision.

    Args:
        part: of the model.
        out: of the part's output.
    """

    def __init__(self, part: nn.Module, out: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.part, self.out = part, out

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x.float()).to(self.out)


def check_methods(model: nn.Module, kind: type, *names: str) -> None:
    """Raise ValueError if a subclass of ``kind`` predicts by methods of its own."""
    for name in names:
        if getattr(type(model), name) is not getattr(kind, name):
            raise ValueError(
                f'model must be {kind.__name__} or a subclass with its {name}; '
                f'{type(model).__name__} has its own'
            )


def smallest_size(backbone: Backbone) -> ImageSize:
    """Smallest image for which a graph with dynamic sizes is right.

    A side of one window, or of one token without windows, would be traced as a special case.
    """
    stride = backbone.block_strides[-1]
    tokens = 1, 1
    if backbone.has_windows and isinstance(backbone.window_size, tuple):
        tokens = backbone.window_size
    height, width = (stride * (side + 1) for side in tokens)
    return height, width


DETECTOR_MODULES = ('detector', 'retinanet', 'deim', 'rcnn')  # modules beside this one
# Models that can be exported. A package that has others adds them where it registers these models.
GRAPHS: dict[type, type[Graph]] = {Backbone: BackboneGraph}


def graph_of(model: nn.Module, dtype: torch.dtype = torch.float32) -> Graph:
    """The graph of a model.

    Raises:
        ValueError: such a model, or a part of it, cannot be exported.
    """
    for kind, graph in graphs().items():
        if isinstance(model, kind):
            return graph(model, dtype)
    known = ', '.join(kind.__name__ for kind in graphs())
    raise ValueError(f'model must be one of {known}, it is {type(model).__name__}')


def graphs() -> dict[type, type[Graph]]:
    """``GRAPHS``, and detectors and segmentors where their packages are there."""
    found = dict(GRAPHS)
    modules = dict(segmentor='mmseg', shared='mmengine') | dict.fromkeys(DETECTOR_MODULES, 'mmdet')
    for module, package in modules.items():
        if find_spec(package):
            found |= import_module(f'.{module}', __package__).GRAPHS
    return found
