"""Published and own checkpoints: where they are, how they are read, how they are named, loading."""

from .errors import CheckpointError
from .loading import load_pretrained, open_weights

__all__ = ['CheckpointError', 'load_pretrained', 'open_weights']
