"""Monocular depth from the maps of a backbone: DINOv3's linear head, and the DPT head of CHMv2.

Both are for mmseg's ``DepthEstimator``; beside them are their loss, and the linear head for
classes. Depths have the unit of the data, metres unless it has another.

Letters: B images, H x W places of a map, C channels, K bins.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from mmcv.cnn import ConvModule, build_norm_layer
from mmengine.logging import MessageHub
from mmengine.registry import MODELS
from mmseg.models.decode_heads import DPTHead, VPDDepthHead
from mmseg.models.decode_heads.decode_head import BaseDecodeHead
from torch import Tensor, nn

from ..utils.validation import check_choice, checked_integer, checked_number


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


# Of the squared mean; 1 would be the mean square, 0 invariant to scale.
MEAN_SHARE = 0.15


@MODELS.register_module()
class BatchSiLogLoss(nn.Module):
    """sqrt(var(g) + 0.15 mean(g)^2) of g = log(prediction) - log(target), over a whole batch.

    Pixels whose target is not above 0 count for nothing; a batch without valid pixels has the loss
    0. mmseg's ``SiLogLoss``, which the heads take too, is the mean of the losses of the images, and
    its share of the squared mean is 0.5. Source: facebookresearch/dinov3, dinov3/eval/depth/loss.py
    (``SigLoss``). Checked against it in tests/models/test_depth_loss.py.

    Args:
        warm_up: iterations that train the mean alone, so that the scale is learned first.
        eps: added to both depths before the logarithm.
        loss_name: key among the losses.
    """

    def __init__(
        self,
        warm_up: int = 100,
        eps: float = 1e-3,
        loss_name: str = 'loss_silog',
    ) -> None:
        super().__init__()
        self.warm_up = warm_up
        self.eps = eps
        self.loss_name = loss_name

    def forward(self, depth: Tensor, target: Tensor) -> Tensor:
        """Depth and target of the same shape to a scalar."""
        valid = target > 0  # to select these pixels would wait for a GPU
        number = valid.sum()
        depth = torch.where(valid, depth, 1.0)  # log 1 - log 1 = 0
        target = torch.where(valid, target, 1.0)
        g = (depth + self.eps).log() - (target + self.eps).log()
        mean = g.sum() / number.clamp(min=1)
        square = MEAN_SHARE * mean**2
        if MessageHub.get_current_instance().get_info('iter', 0) >= self.warm_up:
            squares = ((g - mean) ** 2 * valid).sum()
            square = square + squares / (number - 1).clamp(min=1)
        loss = square.clamp(min=1e-12).sqrt()  # the root has no gradient at 0
        return torch.where(number < 2, 0.0 * loss, loss)  # one pixel has no variance


BinKind = Literal['linear', 'mixed']
CHMV2_SCALE = 8.0  # CHMv2 is trained on depths divided by this


class DepthBins(nn.Module):
    """Depth as a mean of K fixed depths, weighted by the scores of a place.

    The weights are relu(score) + floor, divided by their sum. Source: facebookresearch/dinov3,
    dinov3/eval/depth/models/__init__.py and utils.py, after AdaBins (Bhat et al., 2021). Checked
    with transformers' CHMv2 in tests/models/test_depth_head.py.

    Args:
        num_bins: K.
        min_depth, max_depth: the first and the last of the depths.
        kind: 'linear': even steps, floor 0.1. 'mixed', of CHMv2: steps that change from even
            in the logarithm to even, floor 1e-8.
    """

    depths: Tensor

    def __init__(
        self,
        num_bins: int,
        min_depth: float,
        max_depth: float,
        kind: BinKind,
    ) -> None:
        super().__init__()
        checked_integer('num_bins', num_bins, 2)
        checked_number('min_depth', min_depth, above=0)
        checked_number('max_depth', max_depth, above=min_depth)
        check_choice('bins', kind, ('linear', 'mixed'))
        depths = torch.linspace(min_depth, max_depth, num_bins)
        self.floor = 0.1
        if kind == 'mixed':
            depths = mixed_depths(num_bins, min_depth, max_depth)
            self.floor = 1e-8
        depths = depths[:, None, None]  # [K, 1, 1]
        self.register_buffer('depths', depths, persistent=False)

    def forward(self, scores: Tensor) -> Tensor:
        """Scores [B, K, H, W] to depths [B, 1, H, W], float32 whatever the scores are."""
        weights = scores.float().relu() + self.floor
        total = (weights * self.depths).sum(1, keepdim=True)
        return total / weights.sum(1, keepdim=True)


def mixed_depths(
    num_bins: int,
    min_depth: float,
    max_depth: float,
) -> Tensor:
    """CHMv2's depths [K], which its authors space for depths divided by ``CHMV2_SCALE``."""
    last = max_depth / CHMV2_SCALE
    linear = torch.linspace(min_depth, last, num_bins)
    logarithmic = torch.linspace(math.log(min_depth), math.log(last), num_bins).exp()
    share = torch.linspace(1, 0, num_bins)
    return CHMV2_SCALE * (share * logarithmic + (1 - share) * linear)


class DepthLoss:
    """The part of a decode head that compares depth with ``gt_depth_map``, as in mmseg's VPD."""

    bins: DepthBins
    loss_by_feat = VPDDepthHead.loss_by_feat

    def _stack_batch_gt(self, batch_data_samples: Sequence) -> Tensor:
        """The depths to learn: 0, unknown, where they are above the bins."""
        depth = VPDDepthHead._stack_batch_gt(self, batch_data_samples)
        return torch.where(depth > self.bins.depths[-1], 0.0, depth)


@MODELS.register_module()
class LinearDepthHead(DepthLoss, LinearHead):
    """The linear head with which DINOv3 is evaluated on depth: norm, 1 x 1 convolution, bins.

    The map [B, C, H, W] at ``in_index`` becomes depth [B, 1, H, W], which is resized for the loss
    and for the prediction. Source: facebookresearch/dinov3, dinov3/eval/depth/models. Checked
    against its code in tests/models/test_depth_head.py.

    Args:
        in_channels: C.
        norm_cfg: batch norm, in mmcv's form; the source has SyncBN.
        min_depth, max_depth, num_bins: see ``DepthBins``.
        settings: of mmseg's ``BaseDecodeHead``: loss_decode, dropout_ratio (0 in the source).
    """

    def __init__(
        self,
        in_channels: int,
        *,
        norm_cfg: dict,
        min_depth: float = 0.001,
        max_depth: float = 10.0,
        num_bins: int = 256,
        **settings: object,
    ) -> None:
        super().__init__(
            in_channels, norm_cfg=norm_cfg, num_classes=num_bins, **settings
        )
        self.bins = DepthBins(num_bins, min_depth, max_depth, 'linear')
        self.num_classes = self.out_channels = 1  # what mmseg allocates for the output

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        return self.bins(super().forward(maps))


@MODELS.register_module()
class DPTDepthHead(DepthLoss, DPTHead):
    """The DPT head of CHMv2, on four maps with their class tokens (``output_prefix='cls'``).

    mmseg's ``DPTHead`` without norms; residual units have biases, no convolution follows the
    fusion, and three convolutions with an upsampling between give the scores of ``DepthBins`` at
    half the size of the image. Sources: facebookresearch/dinov3, dinov3/hub/depthers.py and
    dinov3/eval/depth/models/dpt_head.py. Checked with transformers' ``CHMv2ForDepthEstimation``
    in tests/models/test_depth_head.py.

    Args:
        in_channels: C of each map.
        channels: of the fusion.
        post_process_channels: of the four maps at strides of a quarter to twice the backbone's.
        hidden_channels: before the last convolution.
        min_depth, max_depth, num_bins, bins: see ``DepthBins``.
        readout: 'project' as in CHMv2, or 'ignore' for maps alone, without class tokens.
        settings: of mmseg's ``BaseDecodeHead``: loss_decode, align_corners.
    """

    def __init__(
        self,
        in_channels: int,
        *,
        channels: int = 256,
        post_process_channels: Sequence[int] = (128, 256, 512, 1024),
        hidden_channels: int = 128,
        min_depth: float = 0.001,
        max_depth: float = 10.0,
        num_bins: int = 256,
        bins: BinKind = 'linear',
        readout: Literal['project', 'ignore'] = 'project',
        **settings: object,
    ) -> None:
        check_choice('readout', readout, ('project', 'ignore'))
        super().__init__(
            embed_dims=in_channels,
            post_process_channels=list(post_process_channels),
            readout_type=readout,
            norm_cfg=None,
            in_channels=[in_channels] * 4,
            in_index=[0, 1, 2, 3],
            input_transform='multiple_select',
            channels=channels,
            num_classes=num_bins,
            init_cfg=None,
            **settings,
        )
        del self.conv_seg
        for block in self.fusion_blocks:
            add_biases(block.res_conv_unit2)
        for block in self.fusion_blocks[1:]:  # the first has one unit
            add_biases(block.res_conv_unit1)
        self.project = nn.Identity()
        self.conv_depth = nn.Sequential(
            nn.Conv2d(channels, channels // 2, 3, padding=1),
            nn.Upsample(scale_factor=2, mode='bilinear', align_corners=True),
            nn.Conv2d(channels // 2, hidden_channels, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(hidden_channels, num_bins, 1),
        )
        self.bins = DepthBins(num_bins, min_depth, max_depth, bins)
        self.num_classes = self.out_channels = 1

    def forward(self, maps: Sequence[Tensor | Sequence[Tensor]]) -> Tensor:
        """Maps [B, C, H, W], each with its class token [B, C] unless that is ignored, to depth."""
        is_plain = self.reassemble_blocks.readout_type == 'ignore'
        return super().forward([(x, None) for x in maps] if is_plain else maps)

    def cls_seg(self, x: Tensor) -> Tensor:
        """The fused map [B, channels, H, W] to depth [B, 1, 2 H, 2 W]; called by ``DPTHead``."""
        return self.bins(self.conv_depth(x))


def add_biases(unit: nn.Module) -> None:
    """Give the convolutions of mmseg's ``PreActResidualConvUnit`` biases, which it has not."""
    for name in ('conv1', 'conv2'):
        old = getattr(unit, name)
        width = old.in_channels
        order = ('act', 'conv', 'norm')
        new = ConvModule(width, width, 3, padding=1, bias=True, order=order)
        setattr(unit, name, new)
