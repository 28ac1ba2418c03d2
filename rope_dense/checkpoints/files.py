"""Reading checkpoint files without running code from them."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from .errors import CheckpointError

# What training scripts save beside the weights: never imported, called or stored; see Skipped.
SKIPPED = (
    'argparse.Namespace',  # the arguments of DeiT's script
    'mmengine.logging.history_buffer.HistoryBuffer',
    'builtins.getattr',  # how a HistoryBuffer refers to its own functions
    'numpy.ndarray',
    'numpy.dtype',
    'numpy.core.multiarray._reconstruct',
    'numpy.core.multiarray.scalar',
    'numpy._core.multiarray._reconstruct',  # the same of numpy 2
    'numpy._core.multiarray.scalar',
)
CONFIG_NODE = 'yacs.config.CfgNode'  # the configuration of Swin's script, a subclass of dict
INDEX = '.index.json'  # of a checkpoint in several files: which file has which weight
# The keys for the weights of timm's averaged model, of mmengine and timm, naver and LingBot-Vision.
WRAPPERS = ('state_dict_ema', 'state_dict', 'model', 'backbone')


class Skipped:
    """Stands in for everything named in ``SKIPPED`` while a file is read.

    A pickle is read by calling what it names. This class is called instead and forgets what it is
    given, so nothing that the file asks for is run.
    """

    def __new__(cls, *args: object) -> Skipped:
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        pass


class SkippedDict:
    """The same for a subclass of dict, which PyTorch fills only if it is a dict of its own list."""

    def __new__(cls, *args: object) -> OrderedDict:  # type: ignore[misc]  # PyTorch fills that
        return OrderedDict()


def stand_in(name: str, kind: type) -> type:
    """A class that PyTorch finds under the full name that a file asks for."""
    module, _, class_name = name.rpartition('.')
    return type(class_name, (kind,), {'__module__': module, '__qualname__': class_name})


STAND_INS = [*(stand_in(name, Skipped) for name in SKIPPED), stand_in(CONFIG_NODE, SkippedDict)]


def read_checkpoint(path: str, name: str, allowed: Sequence[Callable] = STAND_INS) -> dict:
    """The contents of a PyTorch or safetensors file, on the CPU; the suffix does not matter.

    The name of an index (``*.index.json``, of Hugging Face's large models) stands for its files.
    Beside tensors and plain Python values only what ``allowed`` has is accepted, by default
    stand-ins for ``SKIPPED`` and yacs configurations. Tensors of today's PyTorch format stay on
    disk until they are used; their checksums are verified. How safe that is rests on PyTorch's
    ``weights_only``, which had a hole before version 2.6 (CVE-2025-32434).

    Args:
        name: what to call the file in messages.

    Raises:
        CheckpointError: no such file, no checkpoint, one that is damaged, or one that could run
            code.
    """
    if not os.path.isfile(path):
        kind = 'a folder' if os.path.isdir(path) else 'no such file'
        raise CheckpointError(f'{name}: {kind} (looked for {os.path.abspath(path)})')
    if path.endswith(INDEX):
        return read_parts(path, name)
    kind = file_format(path, name)
    if kind == 'safetensors':
        return read_safetensors(path, name)
    contents = read_torch(path, name, allowed)
    if not isinstance(contents, dict):
        raise CheckpointError(f'{name}: holds a {type(contents).__name__}, a checkpoint is a dict')
    return contents


def file_format(path: str, name: str) -> str:
    """'torch' or 'safetensors', by the first bytes; CheckpointError for anything else."""
    with open(path, 'rb') as file:
        head = file.read(24)
    if zipfile.is_zipfile(path) or head.startswith(b'\x80'):  # today's format, and the one before
        return 'torch'
    if head[8:9] == b'{':  # after the length of the header
        return 'safetensors'
    if not head:
        reason = 'the file is empty; get it again'
    elif head.startswith(b'PK'):
        reason = f'the file is cut off at {os.path.getsize(path)} bytes; get it again'
    elif head.lstrip().startswith(b'<'):
        reason = f'a web page, not a checkpoint (it begins with {head!r}); get the file itself'
    elif head.startswith(b'version https://'):
        reason = 'a Git LFS pointer, not the file itself; get it with git lfs pull'
    else:
        reason = f'neither a PyTorch checkpoint nor safetensors: it begins with {head!r}'
    raise CheckpointError(f'{name}: {reason}')


def read_torch(path: str, name: str, allowed: Sequence[Callable]) -> object:
    mapped = zipfile.is_zipfile(path)
    if mapped:
        verify(path, name)
    try:
        with only_safe_globals(allowed):
            return torch.load(path, map_location='cpu', weights_only=True, mmap=mapped)
    except Exception as error:  # a damaged pickle fails in any way
        refused = re.search(r'GLOBAL (.+?)( was not| whose|$)', str(error), re.MULTILINE)
        if not refused:
            raise CheckpointError(
                f'{name}: damaged, or not a PyTorch checkpoint ({error}); get it again'
            ) from error
        raise CheckpointError(
            f'{name}: refused, because reading {refused[1]} could run code from the file. If you '
            'trust who made it, read it once with torch.load(..., weights_only=False), save the '
            'state dict alone with torch.save and give that file; or ask for safetensors'
        ) from error


def verify(path: str, name: str) -> None:
    """Compare the checksums in an archive with its contents, which mapping it does not do."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, RuntimeError) as error:
        raise CheckpointError(f'{name}: damaged ({error}); get it again') from error
    if damaged:
        raise CheckpointError(
            f'{name}: damaged, {damaged} in it differs from its checksum; get it again'
        )


@contextmanager
def only_safe_globals(allowed: Sequence[Callable]) -> Iterator[None]:
    """Within it torch.load accepts what is listed here, whatever other packages have allowed, to
    which ``torch.serialization.safe_globals`` would add."""
    others = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(list(allowed))
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(others)


def read_safetensors(path: str, name: str) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise CheckpointError(
            f'{name}: cut off, or not a safetensors file ({error}); get it again'
        ) from error


def read_parts(path: str, name: str) -> dict[str, Tensor]:
    """The weights of all files that an index names, which are beside it."""
    folder, index = os.path.dirname(path), read_index(path, name)
    contents: dict[str, Tensor] = {}
    for file in sorted(set(index.values())):
        contents |= read_checkpoint(os.path.join(folder, file), f'{name}: {file}')
    if missing := index.keys() - contents.keys():
        raise CheckpointError(
            f'{name}: its files lack {len(missing)} of the weights that it lists, such as '
            f'{min(missing)}; get them again'
        )
    return contents


def read_index(path: str, name: str) -> dict[str, str]:
    """From the weights to the names of their files."""
    try:
        with open(path, encoding='utf-8') as file:
            index = json.load(file)['weight_map']
        files = set(index.values())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f'{name}: not an index of weights ({type(error).__name__}: {error}); get it again'
        ) from error
    if outside := [file for file in files if os.path.basename(str(file)) != file]:
        raise CheckpointError(f'{name}: names files that are not beside it: {outside}')
    if indices := [file for file in files if file.endswith(INDEX)]:
        raise CheckpointError(f'{name}: names {indices}, which are indices and have no weights')
    return index


def select_weights(contents: dict, prefix: str | None, name: str) -> dict[str, Tensor]:
    """The weights of a backbone among the contents of a file, under their names in the backbone.

    Args:
        contents: as ``read_checkpoint`` returns them: a state dict, or one under a key of
            ``WRAPPERS``, the first that there is. So the average is taken of a training with an
            averaged model (EMA), by timm's script or by mmengine.
        prefix: what the names of the backbone's weights begin with, such as ``'backbone.'``. By
            default that, if there are such names (a detector or a segmentor), or nothing.
        name: what to call the file in messages.

    Raises:
        CheckpointError: there are no weights, or none under ``prefix``.
    """
    wrapper = next((key for key in WRAPPERS if isinstance(contents.get(key), dict)), None)
    state = contents if wrapper is None else contents[wrapper]
    weights = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    if not weights:
        raise CheckpointError(
            f'{name}: no weights, neither at the top nor under one of {", ".join(WRAPPERS)}; the '
            f'file has {", ".join(map(str, list(contents)[:8])) or "nothing"}'
        )
    check_plain(weights, name)
    if all(key.startswith('module.') for key in weights):  # saved from a wrapper for several GPUs
        weights = {key.removeprefix('module.'): value for key, value in weights.items()}
    if prefix is None:
        prefix = 'backbone.' if any(key.startswith('backbone.') for key in weights) else ''
    elif prefix and not prefix.endswith('.'):
        prefix += '.'
    selected = {
        key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)
    }
    if not selected:
        parts = sorted({key.split('.')[0] for key in weights})
        raise CheckpointError(
            f'{name}: no weights under prefix={prefix!r}; the file has {", ".join(parts)}'
        )
    return selected


def check_plain(weights: dict, name: str) -> None:
    """Raise CheckpointError unless each weight has a name and is a dense tensor of numbers."""
    for key, weight in weights.items():
        if not isinstance(key, str):
            raise CheckpointError(f'{name}: the keys of weights must be strings, got {key!r}')
        if weight.layout != torch.strided or weight.is_quantized:
            kind = 'quantized' if weight.is_quantized else str(weight.layout)
            raise CheckpointError(
                f'{name}: {key} is {kind}; save dense tensors (dequantize(), to_dense())'
            )
