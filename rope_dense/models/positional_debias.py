"""Maps without the directions in which a constant image varies.

Letters: B images, C channels, H x W grid of a map, K directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from cachetools import LRUCache
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor

from ..backbones import RoPEViT
from ..utils.memo import is_tracing
from ..utils.sizes import Size
from ..utils.validation import check_choice, checked_integer, checked_number

SIZES, MAPS = 16, 4  # whose tensors are remembered
UNKNOWN = 'PositionalDebias: no basis for maps of {}: run the model once at this fixed size before'


@MODELS.register_module()
class PositionalDebias(BaseModule):
    """Neck that projects the position of a token out of its features.

    Features of a constant image vary with position alone: through prefix tokens, absolute
    embeddings, padding. Their principal directions, less the mean over positions, are removed from
    all images of the same size. Cuttano et al., INSID3 (CVPR 2026, arXiv 2603.28480), who take the
    first 500 of 1024 directions at one size. Checked in tests/models/test_positional_debias.py
    against their formula in float64, and against their code where a checkout of visinf/INSID3 is.

    The neck takes the output of ``RoPEViTWithConstant``. Without prefix tokens it returns the maps
    as they are. A basis is made at the first image of a size, and anew where the backbone's weights
    or settings have changed; no gradient goes through it. An export has a fixed size, whose basis
    is a constant of the file: a basis of another size leaves a part of the bias.

    Args:
        share: of the squared deviation of a constant image that the directions have.
        num_directions: K, in place of a share.
        normalize: scale the features of each token to length 1, before and after, as the source.

    Raises:
        ValueError: an argument that is not allowed.
    """

    def __init__(
        self,
        share: float = 0.99,
        num_directions: int | None = None,
        normalize: bool = False,
    ) -> None:
        super().__init__()
        self.share = checked_number('share', share, above=0, below=1)
        if num_directions is not None:
            checked_integer('num_directions', num_directions, 1)
        check_choice('normalize', normalize, (True, False))
        self.num_directions = num_directions
        self.normalize = normalize
        # Constant and basis, by map and size.
        self.bases: LRUCache[tuple[int, Size], tuple[Tensor, Tensor]]
        self.bases = LRUCache(SIZES * MAPS)

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """``RoPEViTWithConstant``'s maps [B, C, H, W] without their directions of position."""
        number = len(maps) // 2
        if not isinstance(maps[0], Tensor) or maps[-1].ndim != 1:
            raise ValueError(
                'PositionalDebias needs RoPEViTWithConstant as the backbone, without output_prefix'
            )
        pairs = zip(maps[:number], maps[number:-1], strict=True)
        return tuple(self.debiased(index, *pair) for index, pair in enumerate(pairs))

    def debiased(
        self,
        index: int,
        x: Tensor,
        constant: Tensor,
    ) -> Tensor:
        """A map without its directions; as it is if ``constant`` is empty."""
        if not len(constant):
            return x
        basis = self.basis(index, constant).to(x)  # [C, K]
        x = F.normalize(x, dim=1) if self.normalize else x
        tokens = x.flatten(2)  # [B, C, H W]
        x = (tokens - basis @ (basis.T @ tokens)).view_as(x)
        return F.normalize(x, dim=1) if self.normalize else x

    def basis(self, index: int, constant: Tensor) -> Tensor:
        """The directions [C, K] of a map of the constant image, computed once."""
        height, width = constant.shape[2:]
        has_fixed_size = isinstance(height, int) and isinstance(width, int)
        key = index, (height, width)
        known = self.bases.get(key) if has_fixed_size else None
        if is_tracing() and known is None:
            raise ValueError(UNKNOWN.format(f'{height} x {width}'))
        if known is None or not (is_tracing() or known[0] is constant):
            directions = self.directions(constant).to(constant.dtype)
            known = self.bases[key] = constant, directions
        return known[1]

    @torch.no_grad()
    def directions(self, constant: Tensor) -> Tensor:
        """Principal directions [C, K] of a map [1, C, H, W], in float64, less its mean."""
        tokens = constant[0].detach().double().flatten(1)  # [C, H W]
        tokens = F.normalize(tokens, dim=0) if self.normalize else tokens
        deviations = tokens - tokens.mean(1, keepdim=True)
        u, s, _ = torch.linalg.svd(deviations, full_matrices=False)
        if self.num_directions is not None:
            return u[:, : self.num_directions]
        energy = s.square().cumsum(0)
        number = int((energy < self.share * energy[-1]).sum()) + 1
        return u[:, :number]


@MODELS.register_module()
class RoPEViTWithConstant(RoPEViT):
    """``RoPEViT`` that appends the maps [1, C, H, W] of a constant image, for PositionalDebias.

    Last is an empty tensor [0], as a sign. The image is zero after normalisation, of the size of
    the input, and seen in evaluation mode. Its maps are remembered, of the last 16 sizes, until
    weights, windows, scaling or the mode change. Without prefix tokens they are [0, C, H, W].
    """

    constants: LRUCache[Size, tuple[object, tuple[Tensor, ...]]]

    @property
    def has_fixed_size(self) -> bool:
        return self.num_prefix_tokens > 0

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        maps: Any = super().forward(image)
        has_bias = self.num_prefix_tokens > 0
        constants = self.constant_maps(image) if has_bias else [x[:0] for x in maps]
        return (*maps, *constants, image.new_empty(0))

    def constant_maps(self, image: Tensor) -> tuple[Tensor, ...]:
        """The maps of a constant image of the size of ``image`` [B, C, height, width]."""
        height, width = size = image.shape[2], image.shape[3]
        if is_tracing():
            has_fixed_size = isinstance(height, int) and isinstance(width, int)
            if not has_fixed_size or size not in self.constants:
                raise ValueError(UNKNOWN.format(f'images of {height} x {width}'))
            return self.constants[size][1]
        weights = tuple((x.data_ptr(), x._version) for x in self.parameters())
        state = weights, self.window_size, repr(self.rope_scaling), image.dtype
        if size not in self.constants or self.constants[size][0] != state:
            was_training = self.training
            super().train(False)
            with torch.inference_mode(False), torch.no_grad():
                maps: Any = super().forward(torch.zeros_like(image[:1]))
            super().train(was_training)
            self.constants[size] = state, maps
        return self.constants[size][1]

    def train(self, mode: bool = True) -> RoPEViTWithConstant:
        """Forget the maps, too: an average of weights is swapped in without a trace."""
        self.constants = LRUCache(SIZES)
        super().train(mode)
        return self
