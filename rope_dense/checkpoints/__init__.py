"""Published checkpoints and ours: fetching, reading, the names of their keys, strict loading.

Others import::

    adapting: can_load
    channels: RGB, WHOLE, adapt_channels, channels_text, example_of_sources,
        rgb_keys
    class_rows: fill_rows, has_rows, keep_rows
    detectors: convert_detector, find_detector, read_eomt, to_published
    errors: CheckpointError, keys_text
    fetch: Location, fetch
    incompatible: compare_weights, has_sizes
    keys: Layout, Rows, StateDict, new_keys
    load: load_pretrained, load_weights, read_weights
    publishers: TARGETS, find_layout
    read: file_format, keep_read, read_ahead, read_checkpoint
    tables: find_grid, has_entries_like, resize_table
    weights: check_plain, select_weights
"""

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
