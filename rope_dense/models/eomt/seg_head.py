"""EoMT for semantic segmentation."""

from typing import Any

from mmengine.registry import MODELS
from mmseg.models.decode_heads import Mask2FormerHead

from .head import EoMTHead


@MODELS.register_module()
class EoMTSegHead(EoMTHead, Mask2FormerHead):
    """``EoMTHead`` for mmseg: one mask for each class of an image, as mmseg's ``Mask2FormerHead``.

    Logits of a class are its probabilities in the queries times their masks, summed up. Pixels of
    the label ``ignore_index`` belong to no class. Other arguments: see ``EoMTHead``.
    """

    align_corners = False

    def __init__(
        self, in_channels: int, num_classes: int, ignore_index: int = 255, **settings: Any
    ) -> None:
        super().__init__(
            in_channels, num_things_classes=num_classes, num_stuff_classes=0, **settings
        )
        self.out_channels, self.ignore_index = num_classes, ignore_index
