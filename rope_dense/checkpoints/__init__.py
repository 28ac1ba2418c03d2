"""Published checkpoints and ours: fetching, reading, the names of their keys, strict loading."""

from .errors import CheckpointError
from .load import StrictPretrained, load_pretrained
from .lora import load_adapters, save_adapters

__all__ = [
    'CheckpointError',
    'StrictPretrained',
    'load_adapters',
    'load_pretrained',
    'save_adapters',
]
