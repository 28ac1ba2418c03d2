"""What the backbones share as OpenMMLab modules: embeddings, freezing, pre-trained weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from mmengine.model import BaseModule, PretrainedInit
from mmengine.registry import MODELS
from torch import nn

from ..rope import AxialRoPE, MixedRoPE, RopeScaling
from .windows import Size

# Registered here because rope/ depends on torch alone.
for embedding in (AxialRoPE, MixedRoPE):
    MODELS.register_module(module=embedding)


class Backbone(BaseModule):
    """An mmengine module whose frozen parts stay in evaluation mode, and which loads strictly."""

    def frozen_modules(self) -> list[nn.Module | nn.Parameter | None]:
        """Parts that do not train; None stands for a part that the model does not have."""
        raise NotImplementedError

    def freeze(self, parts: Iterable[nn.Module | nn.Parameter | None]) -> None:
        for part in parts:
            if part is not None:
                part.requires_grad_(False)

    def train(self, mode: bool = True) -> Backbone:
        super().train(mode)
        for part in self.frozen_modules():
            if isinstance(part, nn.Module):
                part.eval()
        return self

    def init_weights(self) -> None:
        """Initialise as ``init_cfg`` says; pre-trained weights are loaded by ``load_pretrained``.

        ``dict(type='Pretrained', checkpoint=..., prefix=...)`` takes what that function takes;
        ``prefix`` may be left out. mmengine's own loader would go on with random weights where a
        checkpoint does not fit.

        Raises:
            CheckpointError: the checkpoint cannot be had or read, or does not fit.
            ValueError: 'Pretrained' together with other initialisations.
        """
        from ..checkpoints import load_pretrained  # which itself needs the backbones

        cfgs = [self.init_cfg] if isinstance(self.init_cfg, dict) else self.init_cfg or []
        pretrained = any(cfg['type'] in ('Pretrained', PretrainedInit) for cfg in cfgs)
        if self.is_init or not pretrained:
            super().init_weights()
            return
        if len(cfgs) > 1:
            raise ValueError(
                f"init_cfg: 'Pretrained' sets all weights, so it stands alone; got {cfgs}"
            )
        load_pretrained(self, **{key: value for key, value in cfgs[0].items() if key != 'type'})
        self.is_init = True


def build_rope(rope: dict | None, *, head_dim: int, num_heads: int, depth: int) -> nn.Module | None:
    """The rotary embedding that ``rope`` describes, for ``depth`` blocks."""
    if rope is None:
        return None
    return MODELS.build(dict(rope, head_dim=head_dim, num_heads=num_heads, depth=depth))


def build_scaling(
    rope_scaling: dict | None, grid: Size, rope: nn.Module | None
) -> RopeScaling | None:
    """The scaling that ``rope_scaling`` describes, for weights trained on ``grid``.

    Raises:
        ValueError: a setting that is unknown, not allowed, or does not fit the embedding.
    """
    if rope_scaling is None:
        return None
    if rope is None:
        raise ValueError('rope_scaling needs a rotary embedding, and rope is None')
    known = [field.name for field in fields(RopeScaling) if field.name != 'grid']
    if unknown := sorted(set(rope_scaling) - set(known)):
        raise ValueError(f'rope_scaling has {unknown}, allowed are {known}')
    if 'type' not in rope_scaling:
        raise ValueError(f'rope_scaling needs a type, got {rope_scaling}')
    if rope_scaling['type'] != 'none' and rope.coordinates.fit_the_grid:
        raise ValueError(
            f'rope_scaling: type {rope_scaling["type"]!r} adapts frequencies to larger grids, and '
            f'the coordinates of this rope, {rope.coordinates}, cover the same range on every grid '
            'as they are; set rope_scaling=None'
        )
    fixed_axial = isinstance(rope, AxialRoPE) and not rope.learned and rope.series != 'bands'
    if rope_scaling['type'] == 'ntk' and not fixed_axial:
        raise ValueError(
            "rope_scaling: type 'ntk' changes the theta of fixed axial frequencies, which "
            f"{type(rope).__name__} here does not have; take 'linear' or 'by_parts'"
        )
    return RopeScaling(grid, **rope_scaling)
