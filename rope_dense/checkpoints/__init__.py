"""Published checkpoints and ours: fetching, reading, the names of their keys, strict loading."""

from .adapters import load_adapters, save_adapters
from .errors import CheckpointError
from .load import StrictPretrained, load_pretrained, open_weights

__all__ = [
    'CheckpointError',
    'StrictPretrained',
    'load_adapters',
    'load_pretrained',
    'open_weights',
    'save_adapters',
]
