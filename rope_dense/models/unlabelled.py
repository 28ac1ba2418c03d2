"""Training of a backbone on pictures without labels: DIET, and distillation from a teacher.

Letters: B images, C channels, N pictures of the data set, h x w token grid, K windows of an image.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import product
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor, nn

from ..utils.sizes import tile_starts
from ..utils.validation import checked_number, checked_size

Mode = Literal['tensor', 'predict', 'loss']
Losses = dict[str, Tensor]  # by name


class UnlabelledModel(BaseModel):
    """A backbone that learns without labels.

    Its feature of an image is the class token of the last output with ``output_prefix='cls'``,
    else the mean of the map.
    """

    def __init__(self, backbone: dict, data_preprocessor: dict) -> None:
        super().__init__(data_preprocessor)
        self.backbone = MODELS.build(backbone)
        self.head: Any = None  # which names pictures by their features
        self.teacher: Any = None  # frozen, in evaluation mode

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.teacher is not None:
            self.teacher.eval()
        return self

    @abstractmethod
    def losses(self, inputs: Tensor, numbers: Tensor) -> Losses:
        """The losses of images [B, 3, height, width], of the pictures with these numbers [B]."""

    def forward(
        self,
        inputs: Tensor,
        data_samples: Sequence[Any] | None = None,
        mode: Mode = 'tensor',
    ) -> Any:
        """The features [B, C] ('tensor'), a dict for each image ('predict') or losses ('loss')."""
        given = [x.number for x in data_samples or ()]
        numbers = torch.tensor(given, device=inputs.device)
        if mode == 'loss':
            return self.losses(inputs, numbers)
        features = last_of(self.backbone, inputs)[1]
        if mode == 'tensor':
            return features
        found = [dict(feature=x) for x in features]
        if self.head is not None:
            is_named = self.head(features).argmax(1) == numbers
            found = [dict(x, is_named=y) for x, y in zip(found, is_named, strict=True)]
        return found


@MODELS.register_module()
class PictureClassifier(UnlabelledModel):
    """DIET: each picture is a class of its own, which a linear layer without bias names.

    Ibrahim et al., "Occam's razor for self supervised learning: what is sufficient to learn good
    representations?" (DIET, arXiv 2302.10260), and DIET-CP (arXiv 2509.06990), which continues
    published backbones: cross entropy with label smoothing 0.3, and MixUp or CutMix in 0.8 of the
    batches. The targets of a mixed image are its two numbers, never N shares. The loss was checked
    against a formula in float64.

    Args:
        num_pictures: N. The layer has N x C weights.
        smoothing: of the labels.
        mixed: share of the batches that are mixed.
        settings: of ``UnlabelledModel``.
    """

    def __init__(
        self,
        num_pictures: int,
        smoothing: float = 0.3,
        mixed: float = 0.8,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.smoothing = smoothing
        self.mixed = mixed
        self.head = nn.Linear(self.backbone.out_channels[-1], num_pictures, bias=False)

    def losses(self, inputs: Tensor, numbers: Tensor) -> Losses:
        others = torch.arange(len(inputs))
        share = 1.0
        if torch.rand(()).item() < self.mixed:
            others = torch.randperm(len(inputs))
            inputs, share = mix(inputs, others)
        scores = self.head(last_of(self.backbone, inputs)[1])  # [B, N]
        smoothing = self.smoothing
        first = F.cross_entropy(scores, numbers, label_smoothing=smoothing)
        second = F.cross_entropy(scores, numbers[others], label_smoothing=smoothing)
        return dict(loss=share * first + (1 - share) * second)


@MODELS.register_module()
class FeatureDistiller(UnlabelledModel):
    """Distillation: maps of the backbone, after a linear layer, are made like a frozen teacher's.

    The loss is 1 - cosine of both maps' vectors, the mean over the grid of the backbone, to which
    the teacher's map is resized (bilinear). Where both have a class token, these are compared, too.
    The linear layers are dropped afterwards. Gradients were checked against autograd of the
    formula.

    Args:
        teacher: config of a backbone, with its weights.
        teacher_pixels: mean and deviation of its images, in the order of the channels.
        teacher_scale: factor on the sides of the images for the teacher.
        settings: of ``UnlabelledModel``.
    """

    pixels: Tensor

    def __init__(
        self,
        teacher: dict,
        teacher_pixels: Sequence[Sequence[float]],
        teacher_scale: float = 1.0,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.teacher = MODELS.build(teacher).requires_grad_(False)
        self.scale = teacher_scale
        own = self.backbone.out_channels[-1]
        others = self.teacher.out_channels[-1]
        self.map_layer = nn.Conv2d(own, others, 1)
        self.token_layer = None
        both = (self.backbone, self.teacher)
        if all(getattr(part, 'output_prefix', None) == 'cls' for part in both):
            self.token_layer = nn.Linear(own, others)
        values = torch.tensor(teacher_pixels)[..., None, None]  # [2, C, 1, 1]
        self.register_buffer('pixels', values, persistent=False)

    def losses(self, inputs: Tensor, numbers: Tensor) -> Losses:
        maps, token = last_of(self.backbone, inputs)
        given, (mean, std) = self.data_preprocessor, self.pixels
        images = (inputs * given.std + given.mean - mean) / std
        if self.scale != 1:
            images = F.interpolate(
                images, scale_factor=self.scale, mode='bilinear', antialias=True
            )
        with torch.no_grad():
            target, target_token = last_of(self.teacher, images)
        target = F.interpolate(target, maps.shape[-2:], mode='bilinear', antialias=True)
        losses = dict(loss_maps=distance(self.map_layer(maps), target))
        if self.token_layer is not None:
            losses['loss_tokens'] = distance(self.token_layer(token), target_token)
        return losses


@MODELS.register_module()
class SlidingDistiller(UnlabelledModel):
    """The backbone learns in one pass what it says of the sliding windows of an image.

    After SPAR (arXiv 2604.02252), without its code. The teacher is the backbone as it starts,
    frozen, on windows of the size that it was trained at; its map is the mean over the windows at
    each place. A batch has one random height and width, whole steps of the coarsest map, and the
    windows of all its images are one batch of the teacher. The loss of a map is its squared
    distance from the teacher's, over the teacher's variance: 1 for its mean vector everywhere. All
    maps of ``out_indices`` count equally. Checked against a loop over places in float64.

    Args:
        window: (height, width) in pixels of the teacher's windows, or the side of squares. One is
            no larger than the image.
        smallest: pixels, of the least side of an image; the largest is the given images' side.
        overlap: of neighbouring windows, at least, a share of their sides.
        settings: of ``UnlabelledModel``.
    """

    def __init__(
        self,
        window: int | Sequence[int],
        smallest: int,
        overlap: float = 0.5,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        start = dict(settings['backbone'], lora=None)
        self.teacher = MODELS.build(start).requires_grad_(False)
        self.step = max(self.teacher.out_strides)
        self.window = checked_size('window', window)
        self.smallest = smallest
        self.overlap = checked_number('overlap', overlap, 0, below=1)
        if self.backbone.output_prefix is not None:
            raise ValueError(
                'model.backbone.output_prefix: of an image, not of a sliding window; leave it out'
            )

    def losses(self, inputs: Tensor, numbers: Tensor) -> Losses:
        images = self.resized(inputs)
        maps = self.backbone(images)
        targets = self.stitched(images)
        parts = [unexplained(x, y) for x, y in zip(maps, targets, strict=True)]
        return dict(loss=torch.stack(parts).mean())

    def resized(self, images: Tensor) -> Tensor:
        """A part of resized images [B, C, side, side], with a random height and width."""
        most = max(1, images.shape[-1] // self.step)
        least = min(most, -(-self.smallest // self.step))
        height, width = (self.step * torch.randint(least, most + 1, (2,))).tolist()
        side = max(height, width)
        images = F.interpolate(images, (side, side), mode='bilinear', antialias=True)
        top = int(torch.randint(side - height + 1, ()))
        left = int(torch.randint(side - width + 1, ()))
        return images[..., top : top + height, left : left + width]

    @torch.no_grad()
    def stitched(self, images: Tensor) -> list[Tensor]:
        """The teacher's maps [B, C, h, w] of images of whole steps: the mean over its windows."""
        sides = [side // self.step for side in images.shape[-2:]]
        size = []
        starts = []
        for side, window in zip(sides, self.window, strict=True):
            length = min(side, max(1, window // self.step))
            size.append(length)
            starts.append(tile_starts(side, length, int(self.overlap * length)))
        places = [*product(*starts)]
        crops = [images[window_at(place, size, self.step)] for place in places]
        stitched = []
        outputs = self.teacher(torch.cat(crops))
        for maps, stride in zip(outputs, self.teacher.out_strides, strict=True):
            tokens = self.step // stride
            shape = [side * tokens for side in sides]
            total = maps.new_zeros(len(images), maps.shape[1], *shape)
            count = maps.new_zeros(shape)
            windows = maps.split(len(images))  # K of [B, C, height, width]
            for place, window in zip(places, windows, strict=True):
                part = window_at(place, size, tokens)
                total[part] += window
                count[part] += 1
            stitched.append(total / count)
        return stitched


def window_at(place: Sequence[int], size: Sequence[int], step: int) -> tuple[Any, ...]:
    """The index of a window in images or maps [..., H, W], whose steps are so many long."""
    rows, columns = (
        slice(step * start, step * (start + length))
        for start, length in zip(place, size, strict=True)
    )
    return ..., rows, columns


def last_of(backbone: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """The last map of a backbone [B, C, h, w], and its class token or the map's mean [B, C]."""
    last = backbone(images)[-1]
    return last if isinstance(last, tuple) else (last, last.mean((2, 3)))


def distance(features: Tensor, target: Tensor) -> Tensor:
    """The mean of 1 - cosine of the vectors along the second dimension."""
    return 1 - F.cosine_similarity(features, target, dim=1).mean()


def unexplained(features: Tensor, target: Tensor) -> Tensor:
    """The squared distance of maps [B, C, h, w] over the variance of the target, in float32."""
    features = features.float()
    target = target.float()
    spread = (target - target.mean((0, 2, 3), keepdim=True)).square().mean()
    return (features - target).square().mean() / spread.clamp(min=1e-6)


def mix(images: Tensor, others: Tensor) -> tuple[Tensor, float]:
    """MixUp or CutMix, with equal chances: images [B, ...] mixed with ``images[others]``.

    The share is uniform (Beta(1, 1)); of CutMix it is the part outside of the box that is pasted.

    Returns:
        The mixed images, and the share of the first of each pair.
    """
    share, is_cut = torch.rand(2).tolist()
    if is_cut < 0.5:
        return torch.lerp(images[others], images, share), share
    height, width = images.shape[-2:]
    side, (y, x) = (1 - share) ** 0.5 / 2, torch.rand(2).tolist()
    top = round(max(0.0, y - side) * height)
    bottom = round(min(1.0, y + side) * height)
    left = round(max(0.0, x - side) * width)
    right = round(min(1.0, x + side) * width)
    mixed = images.clone()
    mixed[..., top:bottom, left:right] = images[others, ..., top:bottom, left:right]
    return mixed, 1 - (bottom - top) * (right - left) / (height * width)
