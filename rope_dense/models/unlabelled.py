"""Training of a backbone on pictures without labels: DIET, and distillation from a teacher.

Letters: B images, C channels, N pictures of the data set, h x w token grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor, nn

Mode = Literal['tensor', 'predict', 'loss']


class UnlabelledModel(BaseModel):
    """A backbone that learns without labels; its last output is the feature.

    Args:
        backbone, data_preprocessor: configs. With ``output_prefix='cls'`` the feature of an image
            is the class token, else the mean of the last map.
        train_cfg, test_cfg: of other models; not used.
    """

    def __init__(
        self,
        backbone: dict,
        data_preprocessor: dict,
        train_cfg: dict | None = None,
        test_cfg: dict | None = None,
    ) -> None:
        super().__init__(data_preprocessor)
        self.backbone = MODELS.build(backbone)

    def features(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The last map [B, C, h, w] and the feature [B, C] of images [B, 3, height, width]."""
        return last_of(self.backbone, inputs)

    def described(self, features: Tensor, numbers: Tensor) -> dict[str, Tensor]:
        """What an evaluation gets of each picture, [B, ...], by name."""
        return dict(feature=features)

    def losses(self, inputs: Tensor, numbers: Tensor) -> dict[str, Tensor]:
        """The losses of images with the numbers of their pictures, [B]."""
        raise NotImplementedError

    def forward(
        self, inputs: Tensor, data_samples: Sequence[Any] | None = None, mode: Mode = 'tensor'
    ) -> Any:
        """The features [B, C] ('tensor'), a dict for each image ('predict') or losses ('loss')."""
        if mode == 'tensor':
            return self.features(inputs)[1]
        numbers = torch.tensor([x.number for x in data_samples or ()], device=inputs.device)
        if mode == 'loss':
            return self.losses(inputs, numbers)
        about = self.described(self.features(inputs)[1], numbers)
        return [{name: values[i] for name, values in about.items()} for i in range(len(inputs))]


@MODELS.register_module()
class PictureClassifier(UnlabelledModel):
    """DIET: each picture is a class of its own, which a linear layer without bias names.

    Ibrahim et al., "Occam's razor for self supervised learning: what is sufficient to learn good
    representations?" (DIET, arXiv 2302.10260), and DIET-CP (arXiv 2509.06990), which continues the
    training of a published backbone so: cross entropy with label smoothing 0.3, and MixUp or CutMix
    in 0.8 of the batches. The targets of a mixed image are its two numbers, never N shares. The
    loss was checked against a formula in float64.

    Args:
        num_pictures: N. The layer has N x C weights, with AdamW's state 12 N C bytes.
        smoothing: of the labels.
        mixed: share of the batches that are mixed.
        **settings: of ``UnlabelledModel``.
    """

    def __init__(
        self, num_pictures: int, smoothing: float = 0.3, mixed: float = 0.8, **settings: Any
    ) -> None:
        super().__init__(**settings)
        self.smoothing, self.mixed = smoothing, mixed
        self.head = nn.Linear(self.backbone.out_channels[-1], num_pictures, bias=False)

    def described(self, features: Tensor, numbers: Tensor) -> dict[str, Tensor]:
        return dict(feature=features, is_named=self.head(features).argmax(1) == numbers)

    def losses(self, inputs: Tensor, numbers: Tensor) -> dict[str, Tensor]:
        others, share = torch.arange(len(inputs), device=inputs.device), 1.0
        if torch.rand(()).item() < self.mixed:
            others = torch.randperm(len(inputs)).to(inputs.device)
            inputs, share = mix(inputs, others)
        scores = self.head(self.features(inputs)[1])
        parts = [
            part * F.cross_entropy(scores, target, label_smoothing=self.smoothing)
            for part, target in ((share, numbers), (1 - share, numbers[others]))
        ]
        return dict(loss=parts[0] + parts[1])


@MODELS.register_module()
class FeatureDistiller(UnlabelledModel):
    """Distillation: maps of the backbone, after a linear layer, are made like a frozen teacher's.

    The loss is 1 - cosine of both maps' vectors, the mean over the grid of the backbone, to which
    the teacher's map is resized (bilinear). Where both have a class token, these are compared, too.
    The linear layers are dropped afterwards. Gradients were checked against autograd of the
    formula.

    Args:
        teacher: config of a backbone, with its weights.
        teacher_mean, teacher_std: of the teacher's images, in the order of the channels.
        teacher_scale: factor on the sides of the images for the teacher.
        **settings: of ``UnlabelledModel``.
    """

    def __init__(
        self,
        teacher: dict,
        teacher_mean: Sequence[float],
        teacher_std: Sequence[float],
        teacher_scale: float = 1.0,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.teacher = MODELS.build(teacher).requires_grad_(False)
        self.scale = teacher_scale
        channels = self.backbone.out_channels[-1], self.teacher.out_channels[-1]
        self.map_layer = nn.Conv2d(*channels, 1)
        self.token_layer = nn.Linear(*channels) if has_tokens(self) else None
        for name, given in (('mean', teacher_mean), ('std', teacher_std)):
            values = torch.tensor(given).view(-1, 1, 1)
            self.register_buffer(f'teacher_{name}', values, persistent=False)

    def train(self, mode: bool = True) -> FeatureDistiller:
        super().train(mode)
        self.teacher.eval()
        return self

    @torch.no_grad()
    def taught(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The teacher's last map and feature of images that are normalised for the backbone."""
        own = self.data_preprocessor
        pixels = inputs * own.std + own.mean
        images = (pixels - self.teacher_mean) / self.teacher_std
        if self.scale != 1:
            images = F.interpolate(images, scale_factor=self.scale, mode='bilinear', antialias=True)
        return last_of(self.teacher, images)

    def losses(self, inputs: Tensor, numbers: Tensor) -> dict[str, Tensor]:
        target, target_token = self.taught(inputs)
        maps, token = self.features(inputs)
        target = F.interpolate(target, maps.shape[-2:], mode='bilinear', antialias=True)
        similarity = F.cosine_similarity(self.map_layer(maps), target, dim=1)
        losses = dict(loss_maps=1 - similarity.mean())
        if self.token_layer is not None:
            similarity = F.cosine_similarity(self.token_layer(token), target_token, dim=1)
            losses['loss_tokens'] = 1 - similarity.mean()
        return losses


def has_tokens(model: FeatureDistiller) -> bool:
    """Return whether both backbones give their class token."""
    parts = model.backbone, model.teacher
    return all(getattr(part, 'output_prefix', None) == 'cls' for part in parts)


def last_of(backbone: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    """The last map of a backbone [B, C, h, w], and its class token or the map's mean [B, C]."""
    last = backbone(images)[-1]
    return last if isinstance(last, tuple) else (last, last.mean((2, 3)))


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
    top, bottom = round(max(0.0, y - side) * height), round(min(1.0, y + side) * height)
    left, right = round(max(0.0, x - side) * width), round(min(1.0, x + side) * width)
    mixed = images.clone()
    mixed[..., top:bottom, left:right] = images[others, ..., top:bottom, left:right]
    return mixed, 1 - (bottom - top) * (right - left) / (height * width)
