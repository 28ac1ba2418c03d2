"""The feature pyramid of a plain backbone.

Letters: B batch, C channels, H x W grid of the stride-16 map.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor, nn

from ..rope.cache import is_tracing


@MODELS.register_module()
class SimpleFPN(BaseModule):
    """Pyramid of strides 8, 16, 32 and 64 from one stride-16 map, as DINO-ViTDet in detrex has it.

    Three branches (x2 transposed convolution, identity, x1/2 max-pooling), each followed by a 1 x 1
    and a 3 x 3 convolution without bias and a channel-wise LayerNorm after each; no activation. The
    stride-64 map is every second point of the stride-32 one. Branch outputs keep detectron2's
    sizes: an odd H gives 2 H, H and H // 2 rows. Method: Li et al., "Exploring Plain Vision
    Transformer Backbones for Object Detection" (ECCV 2022). Checked against plain torch
    operators in tests/test_simple_fpn.py.

    Args:
        in_channels: C of the input map; even.
        out_channels: channels of all outputs.
        init_cfg: mmengine initialisation.
    """

    out_strides = (8, 16, 32, 64)

    def __init__(
        self, in_channels: int, out_channels: int = 256, init_cfg: dict | None = None
    ) -> None:
        super().__init__(init_cfg)
        half = in_channels // 2
        up = nn.ConvTranspose2d(in_channels, half, kernel_size=2, stride=2)
        same, down = nn.Identity(), nn.MaxPool2d(2)
        self.branches = nn.ModuleList(
            nn.Sequential(
                scale,
                nn.Conv2d(channels, out_channels, kernel_size=1, bias=False),
                LayerNorm2d(out_channels),
                nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
                LayerNorm2d(out_channels),
            )
            for scale, channels in ((up, half), (same, in_channels), (down, in_channels))
        )

    def forward(self, maps: tuple[Tensor]) -> tuple[Tensor, ...]:
        """A 1-tuple of [B, C, H, W] to four maps of ``out_channels``.

        Raises:
            ValueError: more than one input map, or one too small for stride 32.
        """
        if len(maps) != 1:
            raise ValueError(
                f'SimpleFPN takes one map, got {len(maps)}: set out_indices=(-1,) in the backbone'
            )
        (x,) = maps
        if not is_tracing() and min(x.shape[-2:]) < 2:
            raise ValueError(
                f'SimpleFPN needs a map of 2 x 2 tokens or more, got {x.shape[-2]} x {x.shape[-1]}'
            )
        outs = [branch(x) for branch in self.branches]
        return *outs, F.max_pool2d(outs[-1], kernel_size=1, stride=2)


class LayerNorm2d(nn.Module):
    """LayerNorm over the channels of [B, C, H, W]."""

    def __init__(self, channels: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = F.layer_norm(x.permute(0, 2, 3, 1), self.weight.shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)
