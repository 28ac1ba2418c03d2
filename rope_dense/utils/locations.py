"""Addresses of files that are not on this machine."""

import os

HUB = 'hf-hub:'  # before the name of a model on the Hugging Face hub
WEB = ('https://', 'http://')


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is no file of this machine: an address, or a name in a zoo or hub."""
    return '://' in str(path) or str(path).startswith(HUB)
