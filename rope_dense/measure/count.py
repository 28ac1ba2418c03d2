"""Count multiply-adds and rotations of a prediction for one image."""

from contextlib import ExitStack
from dataclasses import dataclass

import torch
from mmengine.config import Config
from mmengine.structures import BaseDataElement
from torch import nn

from ..backbones.base import image_channels
from ..project.sizes import configured_size
from ..rope import Rotary, RotaryEmbedding
from ..utils.sizes import ImageSize
from .speed import count_operations


@dataclass(frozen=True)
class Products:
    """The products of a prediction for one image.

    Attributes:
        multiply_adds: what OpenMMLab's tables call FLOPs.
        rotations: complex products that rotate queries and keys, one for each pair of channels.
    """

    multiply_adds: int
    rotations: int


def count_products(model: nn.Module, *, height: int, width: int) -> Products:
    """The products of a prediction for one image of a size.

    The model runs once, on its device, under torch's counter, which sees convolutions, linear
    layers and attention, but no norms, activations, resizing, nor the bilinear sampling of
    deformable attention. (``mmengine.analysis`` counts norms and sampling too, but cannot trace
    mmdet's DINO.) Rotations are counted separately, for tokens of the grid without padding. Checked
    against products counted by hand in test_complexity.py, rotations against the 1.8 M of ViT-B in
    Heo et al. (section 3.3).
    """
    size, rotations = (height, width), []
    shapes = dict(ori_shape=size, img_shape=size, pad_shape=size, batch_input_shape=size)
    sample = BaseDataElement(metainfo=dict(shapes, scale_factor=(1.0, 1.0)))
    image = torch.rand(1, image_channels(model), *size, device=next(model.parameters()).device)

    def count(rope: nn.Module, args: tuple, rotary: Rotary) -> None:
        x, (rows, columns), *_ = args
        pairs = len(x) * rows * columns * rope.num_heads * rotary.angles.shape[-1]
        rotations.append(2 * pairs)  # of queries and of keys

    with ExitStack() as hooks, torch.no_grad():
        for module in model.modules():
            if isinstance(module, RotaryEmbedding):
                hooks.enter_context(module.register_forward_hook(count))
        operations = count_operations(lambda: model.eval()(image, [sample], mode='predict'))
    return Products(operations // 2, sum(rotations))


def measured_size(cfg: Config) -> ImageSize:
    """Height and width of the image that a config's model is counted at.

    The window of a sliding test, the size that a segmentor's batches are padded to, or else the
    size of the test images (the largest, where it varies). ValueError for a test pipeline without a
    size.
    """
    if (cfg.model.get('test_cfg') or {}).get('mode') == 'slide':
        return tuple(cfg.model.test_cfg.crop_size)
    if padded := (cfg.model.get('data_preprocessor') or {}).get('size'):
        return tuple(padded)
    return configured_size(cfg)
