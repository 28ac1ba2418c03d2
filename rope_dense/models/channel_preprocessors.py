"""The data preprocessor for images of any number of channels."""

from collections.abc import Sequence
from typing import Any

import torch
from mmengine.model import ImgDataPreprocessor
from mmengine.registry import MODELS
from torch import Tensor

from ..backbones.vit import GROUND
from ..utils.validation import refuse


class AnyChannels:
    """Mean and deviation of any number of channels; mmengine's preprocessor takes 1 or 3.

    The channels keep their order; without ``mean`` and ``std`` the pixels stay as they are. The
    batch gets the ``ground_distance`` of its samples. Other arguments: see the other base class.
    ValueError unless there is a deviation above 0 for each mean.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        if mean is None and std is None:
            return
        if not mean or not std or len(mean) != len(std) or min(std) <= 0:
            refuse('std', std, f'a number above 0 for each value of mean={mean}')
        for name, values in dict(mean=mean, std=std).items():
            tensor = torch.tensor(list(values), dtype=torch.float32)
            tensor = tensor.view(-1, 1, 1)  # [n, 1, 1]
            self.register_buffer(name, tensor, False)  # type: ignore[attr-defined]
        self._enable_normalize = True

    def forward(self, data: dict, training: bool = False) -> dict:
        """Normalise a batch; ValueError for images of another number of channels than ``mean``."""
        number = len(self.mean) if self._enable_normalize else None
        for image in data['inputs'] if number else ():
            if image.shape[-3] != number:
                raise ValueError(
                    f'images have {image.shape[-3]} channels, data_preprocessor.mean has '
                    f'{number} values'
                )
        data = super().forward(data, training)  # type: ignore[misc]
        samples = data.get('data_samples') or []
        distances = [sample.get('ground_distance') for sample in samples]
        if distances and None not in distances:
            images = data['inputs']
            setattr(images, GROUND, torch.tensor(distances, device=images.device))
        return data


@MODELS.register_module()
class ChannelImgDataPreprocessor(AnyChannels, ImgDataPreprocessor):
    """mmengine's ``ImgDataPreprocessor`` for any number of channels, see ``AnyChannels``."""
