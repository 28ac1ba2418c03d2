"""Published checkpoints and ours: fetching, reading, the names of their keys, strict loading."""

from .errors import CheckpointError
from .loading import StrictPretrained, load_pretrained, open_weights

__all__ = ['CheckpointError', 'StrictPretrained', 'load_pretrained', 'open_weights']
