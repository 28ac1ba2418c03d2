"""A linear classifier of the tokens of a map."""

from collections.abc import Sequence

from mmcv.cnn import build_norm_layer
from mmengine.registry import MODELS
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from torch import Tensor


@MODELS.register_module()
class LinearHead(BaseDecodeHead):
    """The linear head with which DINOv3 and EUPE evaluate frozen backbones.

    Dropout of whole channels, batch norm and a 1 x 1 convolution take the map [B, C, H, W] at
    ``in_index`` to class scores [B, num_classes, H, W]. mmseg's ``FCNHead(num_convs=0)`` is the
    same without the norm. Source:
    facebookresearch/dinov3, dinov3/eval/segmentation/models/models/linear_head.py. Checked against
    plain torch operators in tests/models/test_linear_head.py.

    Args:
        in_channels: C.
        norm_cfg: batch norm, in mmcv's form; the source has SyncBN.
        settings: of mmseg's ``BaseDecodeHead``: num_classes, dropout_ratio, loss_decode and so on.
    """

    def __init__(self, in_channels: int, *, norm_cfg: dict, **settings: object) -> None:
        super().__init__(in_channels, in_channels, norm_cfg=norm_cfg, **settings)
        self.norm = build_norm_layer(norm_cfg, in_channels)[1]

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        x = self._transform_inputs(maps)  # [B, C, H, W]
        if self.dropout is not None:
            x = self.dropout(x)
        return self.conv_seg(self.norm(x))
