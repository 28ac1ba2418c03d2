"""The backbones in detectron2 and what builds on it (detrex), for LazyConfigs.

detectron2 has to be importable; it brings omegaconf. Weights have the names that they have in
OpenMMLab, so that checkpoints of either load in the other.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from detectron2.modeling.backbone import Backbone
from omegaconf import OmegaConf
from torch import Tensor

from .. import backbones
from ..checkpoints import load_pretrained
from ..utils.validation import checked_integer, refuse

# Parameters that the pre-training does not decay, as ``optimizer.params.overrides`` takes them.
NO_WEIGHT_DECAY = {
    name: {'weight_decay': 0.0}
    for name in (
        'pos_embed',
        'cls_token',
        'reg_token',
        'relative_position_bias_table',
        'freqs',
        'angle_offset',
    )
}
EMBEDDING = re.compile(r'\.(patch_embed|norm_pre)\.|\.(pos_embed|cls_token|reg_token)$')
BLOCK = re.compile(
    r'\.(layers\.(?P<stage>\d+)\.)?(blocks\.(?P<block>\d+)|downsample)\.'
)


class DictOutputs(backbones.base.Backbone):
    """Turns a backbone of ours into one of detectron2.

    The first of three base classes; the others are the backbone and detectron2's ``Backbone``.
    Checked against the backbone, with detectron2 at 02b5c4e, in
    tests/models/test_detectron2.py.

    ``forward`` takes normalised images [B, in_channels, height, width] of any size and returns a
    dict from names to maps, whose channels and strides are in ``output_shape()``.

    Args:
        checkpoint: weights to load when the model is built, strictly: a path, an address or
            'hf-hub:owner/name', see ``load_pretrained``. ``train.init_checkpoint`` stays empty.
        prefix: what the names of the weights in ``checkpoint`` begin with, where detectron2
            trained the detector: 'backbone.net.' behind its ``SimpleFeaturePyramid``,
            'backbone.bottom_up.' behind its ``FPN``.
        out_features: names of the maps, one for each of ``out_indices``.
        square_size: pixels of the square that ``padding_constraints`` asks for, 0 for none. (A
            pyramid around the backbone has its own, ``square_pad``.)
        arguments: of the backbone; lists and dicts may be omegaconf's. ``init_cfg``,
            ``pretrained`` and ``output_prefix`` are none of them.

    Raises:
        ValueError: arguments that do not fit each other.
        CheckpointError: the checkpoint cannot be fetched or read, or does not fit.
    """

    def __init__(
        self,
        *,
        checkpoint: str | None = None,
        prefix: str | None = None,
        out_features: Sequence[str] | None = None,
        square_size: int = 0,
        **arguments: Any,
    ) -> None:
        for name in ('init_cfg', 'pretrained', 'output_prefix'):
            if name in arguments:
                raise ValueError(
                    f'{name} is not an argument in detectron2: checkpoint names the weights, and '
                    'outputs are maps'
                )
        super().__init__(**{name: plain(value) for name, value in arguments.items()})
        names = self.default_names() if out_features is None else plain(out_features)
        number = len(self.out_indices)
        if isinstance(names, str) or len(set(names)) != number:
            allowed = f'{number} names, one for each of out_indices'
            refuse('out_features', out_features, allowed)
        self._out_features = list(names)
        self._out_feature_channels = dict(zip(names, self.out_channels, strict=True))
        self._out_feature_strides = dict(zip(names, self.out_strides, strict=True))
        self.square_size = checked_integer('square_size', square_size, 0)
        if checkpoint is not None:
            load_pretrained(self, checkpoint, prefix)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        return dict(zip(self._out_features, super().forward(image), strict=True))

    @abstractmethod
    def default_names(self) -> list[str]:
        """Of the maps."""

    @property
    @abstractmethod
    def size_divisibility(self) -> int:
        """Of which the sides of an image must be a multiple, 0 for any."""

    @property
    def padding_constraints(self) -> dict[str, int]:
        return {
            'size_divisibility': self.size_divisibility,
            'square_size': self.square_size,
        }


class RoPEViT(DictOutputs, backbones.RoPEViT, Backbone):  # type: ignore[misc]  # outputs a dict
    """``rope_dense.backbones.RoPEViT`` in detectron2, e.g. ``net`` of its ``SimpleFeaturePyramid``.

    Takes the arguments of both base classes, ``RoPEViT`` and ``DictOutputs``.
    The map of the last block is called 'last_feat', as in detectron2's ViT, others 'block<i>'.
    """

    def default_names(self) -> list[str]:
        last = len(self.blocks) - 1
        return [
            'last_feat' if index == last else f'block{index}'
            for index in self.out_indices
        ]

    @property
    def size_divisibility(self) -> int:
        """Whole patches, so that nothing of an image is cut off; the model takes any size."""
        return self.patch_embed.patch_size


class RoPESwin(DictOutputs, backbones.RoPESwin, Backbone):  # type: ignore[misc]  # the same
    """``rope_dense.backbones.RoPESwin`` in detectron2, e.g. ``bottom_up`` of its ``FPN``.

    Takes the arguments of both base classes, ``RoPESwin`` and ``DictOutputs``.
    The map of stage i is called 'p<i>', as in detectron2's SwinTransformer; some heads want
    ``out_features=['res2', 'res3', 'res4', 'res5']``.
    """

    def default_names(self) -> list[str]:
        return [f'p{index}' for index in self.out_indices]

    @property
    def size_divisibility(self) -> int:
        """None: the model pads what it needs itself."""
        return 0


def plain(value: Any) -> Any:
    """A list or dict where omegaconf has its own kinds of them."""
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=True)
    return value


def get_rope_lr_decay_rate(
    name: str,
    lr_decay_rate: float = 1.0,
    num_layers: int | Sequence[int] = 12,
) -> float:
    """Factor of a parameter's learning rate, for ``optimizer.params.lr_factor_func``.

    As detectron2's ``get_vit_lr_decay_rate``, but that a class token and registers belong to the
    embeddings, and for Swin too. The rule is ``Backbone.layer_of``'s. Checked against both in
    tests/models/test_detectron2.py.

    Args:
        name: of a parameter of the detector; outside ``backbone`` the factor is 1.
        lr_decay_rate: from one block to the block before it.
        num_layers: blocks of a ViT, or a list of the blocks in each stage of a Swin.
    """
    depths = [num_layers] if isinstance(num_layers, int) else num_layers
    layer = last = sum(depths) + 1
    if name.startswith('backbone.'):
        match = BLOCK.search(name)
        if match:
            stage = int(match['stage'] or 0)
            # A reduction goes with the last block.
            block = int(match['block'] or depths[stage] - 1)
            layer = sum(depths[:stage]) + block + 1
        elif EMBEDDING.search(name):
            layer = 0
    return lr_decay_rate ** (last - layer)
