"""What the backbones share as OpenMMLab modules: registration of the embeddings, freezing."""

from __future__ import annotations

from collections.abc import Iterable

from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import nn

from ..rope import AxialRoPE, MixedRoPE

# Registered here because rope/ depends on torch alone.
for embedding in (AxialRoPE, MixedRoPE):
    MODELS.register_module(module=embedding)


class Backbone(BaseModule):
    """An mmengine module whose frozen parts stay in evaluation mode."""

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
