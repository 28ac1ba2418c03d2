"""EoMT for semantic segmentation, and its sliding windows.

Letters: B images, K classes, H x W pixels.
"""

from itertools import product
from typing import Any

from mmengine.registry import MODELS
from mmseg.models.decode_heads import Mask2FormerHead
from mmseg.models.segmentors import EncoderDecoder
from torch import Tensor

from ...utils.sizes import tile_starts
from .detector import EoMTHead
from .queries import Prediction


@MODELS.register_module()
class EoMTSegHead(EoMTHead, Mask2FormerHead):
    """``EoMTHead`` for mmseg: one mask for each class of an image, as mmseg's ``Mask2FormerHead``.

    Logits of a class are its probabilities in the queries times their masks, summed up. Pixels of
    the label ``ignore_index`` belong to no class. Other arguments: see ``EoMTHead``.
    """

    align_corners = False

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        ignore_index: int = 255,
        **settings: Any,
    ) -> None:
        super().__init__(
            in_channels, num_things_classes=num_classes, num_stuff_classes=0, **settings
        )
        self.out_channels = num_classes
        self.ignore_index = ignore_index


@MODELS.register_module()
class EoMTSegmentor(EncoderDecoder):
    """mmseg's ``EncoderDecoder`` with the queries in the last blocks of the backbone.

    With ``test_cfg=dict(mode='slide', crop_size=...)`` the fewest windows that cover a side are
    spread evenly along it, and logits are averaged where they overlap, as in the source
    (tue-mps/eomt, training/lightning_module.py); there is no stride. Takes the arguments of
    ``EncoderDecoder``; ``decode_head`` is an ``EoMTSegHead``, and there is no neck.
    """

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.decode_head.eomt.join(self.backbone)

    def extract_feat(self, inputs: Tensor) -> list[Prediction]:
        """The predictions that the head takes, see ``EoMT.forward``."""
        return self.decode_head.eomt(self.backbone, inputs)

    def slide_inference(self, inputs: Tensor, batch_img_metas: list[dict]) -> Tensor:
        """[B, K, H, W], the mean of the logits of all windows of ``test_cfg.crop_size``."""
        sides = inputs.shape[2:]
        crops = self.test_cfg.crop_size
        total = inputs.new_zeros(inputs.shape[0], self.out_channels, *sides)
        count = inputs.new_zeros(sides)
        tops = tile_starts(sides[0], crops[0], 0)
        lefts = tile_starts(sides[1], crops[1], 0)
        for top, left in product(tops, lefts):
            window = ..., slice(top, top + crops[0]), slice(left, left + crops[1])
            crop = inputs[window]
            size = crop.shape[2:]
            sizes = dict(img_shape=size, pad_shape=size)
            metas = [dict(meta, **sizes) for meta in batch_img_metas]
            total[window] += self.encode_decode(crop, metas)
            count[window] += 1
        return total / count
