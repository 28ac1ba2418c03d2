"""From the name of a checkpoint in a config to a file on this machine.

huggingface_hub and torch.hub download, but not ``torch.hub.load_state_dict_from_url``: its
``check_hash`` needs a digest in the name, and it caches by the end of the address, which many
files share.
"""

import hashlib
import os
import posixpath
from collections import defaultdict
from functools import partial
from http.client import HTTPException
from urllib.parse import urlparse

import torch
from mmengine.dist import barrier

from ..utils.disk import HUB, WEB, atomic_write
from ..utils.progress import is_first_here
from .errors import CheckpointError
from .read import INDEX, read_checkpoint, read_index

Location = str | os.PathLike[str]
SINGLE_FILES = ('model.safetensors', 'pytorch_model.bin')
INDICES = tuple(file + INDEX for file in SINGLE_FILES)
# The first that a repository has is taken; LingBot-Vision's have the last.
HUB_FILES = (*SINGLE_FILES, *INDICES, 'model.pt')
BY_HAND = (
    'Or download the file by hand and give its path (of a backbone: --cfg-options '
    'model.backbone.init_cfg.checkpoint=PATH, or own.weights=PATH for configs/own; to start '
    'without weights: model.backbone.init_cfg=None, or own.weights=None)'
)


def fetch(source: Location) -> str:
    """The path of a checkpoint, after downloading it if that has not been done before.

    Args:
        source: a path; an address, https:// or http://; or ``hf-hub:owner/name``, with
            ``@revision`` if wanted, of a repository of the Hugging Face hub.

    Raises:
        CheckpointError: the download fails, or there is no such kind of source.
    """
    if not isinstance(source, (str, os.PathLike)):
        raise CheckpointError(
            f'checkpoint must be a path or an address, got {source!r}'
        )
    source = os.fspath(source)
    if source.startswith(HUB):
        return fetch_from_hub(source)
    if source.startswith(WEB):
        return fetch_from_web(source)
    if '://' in source:
        raise CheckpointError(
            f'{source}: unknown kind of address; give a path, an https address or {HUB}owner/name'
        )
    return os.path.expanduser(source)


def fetch_from_web(url: str) -> str:
    """The file in torch.hub's cache, downloaded by the first process of each machine."""
    path = cache_path(url)
    try:
        if not os.path.isfile(path) and is_first_here():
            download_checkpoint(url, path)
    finally:
        barrier()  # after an error too, or the others would wait
    if not os.path.isfile(path):
        raise CheckpointError(
            f'{url}: the first process of this machine could not download it'
        )
    return path


def cache_path(url: str) -> str:
    """The name has a digest of the address: addresses of many hub files end alike."""
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    file = f'{digest}-{posixpath.basename(urlparse(url).path)}'
    return os.path.join(torch.hub.get_dir(), 'checkpoints', file)


def download_checkpoint(url: str, path: str) -> None:
    """Download a checkpoint; nothing is left at ``path`` unless it is complete and readable."""
    try:
        with atomic_write(path) as partial:
            torch.hub.download_url_to_file(url, str(partial))
            # A connection that breaks off is not an error to torch.hub.
            read_checkpoint(str(partial), url)
    except (OSError, HTTPException) as error:
        raise CheckpointError(
            f'{url}: the download failed ({error}). {BY_HAND}'
        ) from error


def fetch_from_hub(source: str) -> str:
    """The file in the cache of huggingface_hub, by its settings (HF_HOME, HF_HUB_OFFLINE).

    Once the hub cannot be reached, or refuses, the other names are looked up in the cache only.
    """
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.utils import EntryNotFoundError, LocalEntryNotFoundError
    except ImportError as error:
        raise CheckpointError(
            f'{source}: pip install huggingface_hub. {BY_HAND}'
        ) from error
    repository, _, revision = source.removeprefix(HUB).partition('@')
    failures: dict[str, list[str]] = defaultdict(list)
    download = partial(hf_hub_download, repository, revision=revision or None)
    cache_only = False
    for file in HUB_FILES:
        try:
            path = download(file, local_files_only=cache_only)
            if file.endswith(INDEX):
                parts = set(read_index(path, source).values())
                for part in sorted(parts):
                    download(part, local_files_only=cache_only)
            return str(path)
        except (EntryNotFoundError, OSError, ValueError) as error:
            if not cache_only:
                failures[str(error).split('\n')[0].rstrip('.')].append(file)
            is_absent = isinstance(error, EntryNotFoundError)
            if not is_absent or isinstance(error, LocalEntryNotFoundError):
                cache_only = True
    reasons = [f'{", ".join(files)}: {error}' for error, files in failures.items()]
    raise CheckpointError(f'{source}: {"; ".join(reasons)}. {BY_HAND}')
