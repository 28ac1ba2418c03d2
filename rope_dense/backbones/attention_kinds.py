"""Attention from a config ``attention=dict(type=...)``."""

from __future__ import annotations

from inspect import isclass
from typing import Any

from mmengine.registry import MODELS

from ..utils.validation import refuse
from .attention import Attention, GlobalPrefixAttention, Place


def build_attention(attention: dict | None, place: Place, **layers: Any) -> Attention:
    """Build the attention of one block from the config ``attention``; None for plain attention.

    Args:
        attention: type, registered in mmengine's MODELS, and settings of a kind; or None.
        place: where the block is.
        layers: arguments of ``AttentionLayers``.

    Raises:
        ValueError: not a config of a kind of attention, or one that cannot have ``global_prefix``.
    """
    shares_prefix = place.in_windows and place.global_prefix
    plain = GlobalPrefixAttention if shares_prefix else Attention
    if attention is None:
        return plain(**layers)
    if not isinstance(attention, dict) or 'type' not in attention:
        refuse('attention', attention, "None or a dict with a type, such as dict(type='TableBias')")
    kind = attention['type'] if isclass(attention['type']) else MODELS.get(attention['type'])
    if not isclass(kind) or not issubclass(kind, Attention):
        refuse('attention: type', attention['type'], 'registered, and a subclass of Attention')
    if place.in_windows and kind.only_global:
        return plain(**layers)
    if shares_prefix:
        raise ValueError(
            f"attention {attention['type']} in window blocks needs window_prefix='copy', got "
            "'global'"
        )
    return MODELS.build(dict(attention, place=place, **layers))
