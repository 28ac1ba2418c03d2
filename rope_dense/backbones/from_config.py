"""Rotary embedding and attention of a block from the configs ``rope`` and ``attention``."""

from inspect import isabstract, isclass
from typing import Any

from mmengine.registry import MODELS

from .. import rope as embeddings
from ..rope import RotaryEmbedding
from ..utils.validation import refuse
from .attention import Attention, GlobalPrefixAttention, Place

# All embeddings of rope/, which depends on torch alone.
for name in embeddings.__all__:
    part = getattr(embeddings, name)
    if isclass(part) and issubclass(part, RotaryEmbedding) and not isabstract(part):
        MODELS.register_module(module=part)


def build_rope(rope: dict | None, *, head_dim: int, num_heads: int) -> RotaryEmbedding | None:
    """Build the rotary embedding of one block from ``rope``; ValueError for no config of one."""
    if rope is None:
        return None
    if not isinstance(rope, dict) or 'type' not in rope:
        refuse(
            'rope', rope, "None or a dict with a type, such as dict(type='MixedRoPE', theta=10.0)"
        )
    return MODELS.build(dict(rope, head_dim=head_dim, num_heads=num_heads))


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
    if attention is None:
        return (GlobalPrefixAttention if shares_prefix else Attention)(**layers)
    if not isinstance(attention, dict) or 'type' not in attention:
        refuse('attention', attention, "None or a dict with a type, such as dict(type='TableBias')")
    kind = attention['type'] if isclass(attention['type']) else MODELS.get(attention['type'])
    if not isclass(kind) or not issubclass(kind, Attention):
        refuse('attention: type', attention['type'], 'registered, and a subclass of Attention')
    if shares_prefix:
        raise ValueError(
            f"attention {attention['type']} in window blocks needs window_prefix='copy', got "
            "'global'"
        )
    return MODELS.build(dict(attention, place=place, **layers))
