"""The one reader of checkpoint files: PyTorch's, safetensors, and indices of several files.

No code from a file is run: ``ALLOWED`` has the classes that a pickle may name.
"""

import argparse
import json
import os
import pickle
import pickletools
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from threading import RLock
from typing import IO, Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer
from torch import Tensor

from ..utils.progress import is_first_here
from .errors import AGAIN, CheckpointError, keys_text

STATISTICS = ('min', 'max', 'mean', 'current')
MAX_TUPLES = 10_000  # within one tuple
# Of the format before archives: magic number, version, system, contents, keys.
LEGACY_PICKLES = 5
ALLOW_LIST = RLock()  # PyTorch has one list of allowed classes for all threads


def history_statistic(owner: type, name: str) -> Callable:
    """getattr for a log history, which refers so to its own statistics functions, and no other."""
    if owner is not HistoryBuffer or name not in STATISTICS:
        raise pickle.UnpicklingError(f'GLOBAL getattr({owner!r}, {name!r})')
    return getattr(HistoryBuffer, name)


RECONSTRUCT = np.zeros(1).__reduce__()[0]
SCALAR = np.float64(0).__reduce__()[0]
NUMBERS = np.typecodes['AllInteger'] + np.typecodes['AllFloat']
DTYPES = NUMBERS + np.typecodes['Datetime'] + '?SU'
# Beside tensors and plain Python values: what training scripts save with the weights. A pair is a
# class or function and the name that stands for it in a file.
ALLOWED: list[Any] = [
    argparse.Namespace,  # the arguments of DeiT's script
    # The configuration of Swin's script, a subclass of dict.
    (OrderedDict, 'yacs.config.CfgNode'),
    HistoryBuffer,  # mmengine's log
    (history_statistic, 'builtins.getattr'),
    np.ndarray,
    np.dtype,
    *{type(np.dtype(code)) for code in DTYPES},
    # Of numpy 1, and of numpy 2.
    (RECONSTRUCT, 'numpy.core.multiarray._reconstruct'),
    (SCALAR, 'numpy.core.multiarray.scalar'),
    (RECONSTRUCT, 'numpy._core.multiarray._reconstruct'),
    (SCALAR, 'numpy._core.multiarray.scalar'),
]


def unpickle(path: str, name: str, *, is_archive: bool) -> object:
    """The contents of a file of ``torch.save``, on the CPU.

    Args:
        path: of the file.
        name: of the file in messages.
        is_archive: today's format, whose tensors stay on disk until they are used; else the format
            of PyTorch before 1.6.

    Raises:
        CheckpointError: it is damaged, names a class or function that is not ``ALLOWED``, or nests
            tuples, see ``check_tuples``.
    """
    try:
        if is_archive:
            check_tuples(torch._C.PyTorchFileReader(path).get_record('data.pkl'), name)
        else:
            with open(path, 'rb') as file:
                for _ in range(LEGACY_PICKLES):
                    check_tuples(file, name)
        return load_with_allow_list(path, is_archive)
    except CheckpointError:
        raise
    except Exception as error:  # a damaged pickle fails in any way
        text = str(error)
        refused = re.search(r'GLOBAL (.+?)( was not| whose|$)', text, re.MULTILINE)
        if not refused:
            reason = text.split('\n')[0]
            raise CheckpointError(
                f'{name}: damaged, or not a PyTorch checkpoint ({reason}); {AGAIN}'
            ) from error
        raise CheckpointError(
            f'{name}: refused, because reading {refused[1]} could run code from the file. If you '
            'trust who made it, read it once with torch.load(..., weights_only=False), save the '
            'state dict alone with torch.save and give that file; or ask for safetensors'
        ) from error


def load_with_allow_list(path: str, is_archive: bool) -> object:
    """torch.load, which accepts what is ``ALLOWED`` and nothing that other packages have allowed.

    ``torch.serialization.safe_globals`` would add to their list. One thread at a time.
    """
    with ALLOW_LIST:
        others = torch.serialization.get_safe_globals()
        torch.serialization.clear_safe_globals()
        try:
            torch.serialization.add_safe_globals(ALLOWED)
            return torch.load(
                path, map_location='cpu', weights_only=True, mmap=is_archive
            )
        finally:
            torch.serialization.clear_safe_globals()
            torch.serialization.add_safe_globals(others)


def check_tuples(pickled: bytes | IO[bytes], name: str) -> None:
    """Raise CheckpointError for a pickle with more than ``MAX_TUPLES`` tuples within a tuple.

    Python hashes the keys of a dict. To hash a deep nest of tuples overflows the stack of the
    interpreter and ends the process; in tuples with the same tuple twice, each level doubles the
    time. So the pickle is followed first, with the number of tuples in place of each value.
    """
    stack: list[Any] = []  # numbers of tuples, and pickletools.markobject
    memo: dict[Any, int] = {}
    for opcode, argument, _ in pickletools.genops(pickled):
        if opcode.name == 'MEMOIZE' or opcode.name.endswith('PUT'):
            memo[len(memo) if argument is None else argument] = stack[-1]
            continue
        taken: list[int] = []
        for expected in reversed(opcode.stack_before):
            if expected is pickletools.stackslice:
                while stack[-1] is not pickletools.markobject:
                    taken.append(stack.pop())
                stack.pop()
            elif expected is not pickletools.markobject:
                taken.append(stack.pop())
        count = 0
        if opcode.name.startswith('TUPLE'):
            count = 1 + sum(taken)
            if count > MAX_TUPLES:
                raise CheckpointError(
                    f'{name}: refused, it has a tuple with more than {MAX_TUPLES:,} tuples in it'
                )
        elif opcode.name.endswith('GET'):
            count = memo[argument]
        if opcode.stack_after == [pickletools.markobject]:
            stack.append(pickletools.markobject)
        else:
            stack += [count] * len(opcode.stack_after)


INDEX = '.index.json'  # of a checkpoint in several files: which file has which weight

Weights = dict[str, Tensor]
FileState = tuple[int, int, int, int]
_verified: set[FileState] = set()  # files whose checksums were right
_read_ahead: dict[FileState, dict] = {}  # contents for the next reading of a file


def read_checkpoint(path: str, name: str) -> dict:
    """The contents of a PyTorch or safetensors file, on the CPU; the suffix does not matter.

    The name of an index (``*.index.json``, of Hugging Face's large models) stands for its files.
    A PyTorch file may have tensors, plain Python values, and what ``ALLOWED`` names.
    Tensors of its present format stay on disk until they are used; their checksums are verified
    once in a run. How safe reading is depends on PyTorch's ``weights_only``, which had a hole
    before version 2.6 (CVE-2025-32434).

    Args:
        path: of the file.
        name: of the file in messages.

    Raises:
        CheckpointError: no such file, no checkpoint, one that is damaged or cannot be read, or one
            that could run code or stop the interpreter.
    """
    if not os.path.isfile(path):
        kind = 'a folder' if os.path.isdir(path) else 'no such file'
        raise CheckpointError(f'{name}: {kind} (looked for {os.path.abspath(path)})')
    try:
        contents = _read_ahead.pop(file_state(path), None)
        return read_local_checkpoint(path, name) if contents is None else contents
    except OSError as error:
        raise CheckpointError(
            f'{name}: cannot be read ({error.strerror or error})'
        ) from error


def read_ahead(path: str, name: str) -> dict:
    """``read_checkpoint``, and keep the contents for the next reading of the file.

    For checks before a run: the next ``read_checkpoint`` of the same file returns the same contents
    and does not open the file.
    """
    contents = read_checkpoint(path, name)
    keep_read(path, contents)
    return contents


def keep_read(path: str, contents: dict) -> None:
    """Let the next reading of a file return these contents, in place of its own."""
    _read_ahead[file_state(path)] = contents


def file_state(path: str) -> FileState:
    """Device, inode, size and time: equal for the same file, unchanged."""
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def read_local_checkpoint(path: str, name: str) -> dict:
    """``read_checkpoint`` of a file that is there."""
    if path.endswith(INDEX):
        return read_parts(path, name)
    kind = file_format(path, name)
    if kind == 'safetensors':
        return read_safetensors(path, name)
    if kind == 'archive':
        check_checksum(path, name)
    contents = unpickle(path, name, is_archive=kind == 'archive')
    if not isinstance(contents, dict):
        raise CheckpointError(
            f'{name}: holds a {type(contents).__name__}, a checkpoint is a dict'
        )
    return contents


def file_format(path: str, name: str) -> str:
    """Format of a file by its first bytes: 'archive', 'pickle' or 'safetensors'.

    An archive is today's format of torch.save, a pickle the one before. CheckpointError for other
    formats.
    """
    with open(path, 'rb') as file:
        head = file.read(24)
    if head.startswith(b'PK\x03\x04'):
        return 'archive'
    # After the length of the header, which may begin like a pickle.
    if head[8:9] == b'{':
        return 'safetensors'
    if head.startswith(b'\x80'):
        return 'pickle'
    if not head:
        reason = f'the file is empty; {AGAIN}'
    elif head.lstrip().startswith(b'<'):
        reason = f'a web page, not a checkpoint (it begins with {head!r}); get the file itself'
    elif head.startswith(b'version https://'):
        reason = 'a Git LFS pointer, not the file itself; get it with git lfs pull'
    else:
        reason = (
            f'neither a PyTorch checkpoint nor safetensors: it begins with {head!r}'
        )
    raise CheckpointError(f'{name}: {reason}')


def check_checksum(path: str, name: str) -> None:
    """Compare the checksums in an archive with its contents; a mapped file is not compared.

    It reads the whole file, so once for each state of a file, and in a distributed run by the first
    process of each machine.
    """
    state = file_state(path)
    if state in _verified or not is_first_here():
        return
    try:
        # Complete with a directory, which is at its end.
        is_complete = zipfile.is_zipfile(path)
        if is_complete:
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
                packed = any(item.compress_type for item in archive.infolist())
    except Exception as error:  # a damaged directory fails in any way
        raise CheckpointError(f'{name}: damaged ({error}); {AGAIN}') from error
    if not is_complete:
        size = os.path.getsize(path)
        raise CheckpointError(
            f'{name}: the file is cut off at {size} bytes, or damaged near its end; {AGAIN}'
        )
    if damaged:
        raise CheckpointError(
            f'{name}: damaged, {damaged} in it differs from its checksum; {AGAIN}'
        )
    if packed:
        raise CheckpointError(
            f'{name}: a compressed archive, which torch.save never writes'
        )
    _verified.add(state)


def read_safetensors(path: str, name: str) -> Weights:
    """The contents of a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise CheckpointError(
            f'{name}: cut off, or not a safetensors file ({error}); {AGAIN}'
        ) from error


def read_parts(path: str, name: str) -> Weights:
    """The weights of all files that an index names, which are beside it.

    Raises:
        CheckpointError: the files do not have exactly the weights that the index says.
    """
    folder, index = os.path.dirname(path), read_index(path, name)
    contents: Weights = {}
    for file in sorted(set(index.values())):
        part = read_checkpoint(os.path.join(folder, file), f'{name}: {file}')
        strangers = [key for key in part if index.get(key) != file]
        if strangers:
            raise CheckpointError(
                f'{name}: {file} has weights that the index does not place there, '
                f'{keys_text(strangers)}; get the files again'
            )
        contents |= part
    missing = index.keys() - contents.keys()
    if missing:
        raise CheckpointError(
            f'{name}: its files lack {len(missing)} of the weights that it lists, such as '
            f'{keys_text([min(missing)])}; get the files again'
        )
    return contents


def read_index(path: str, name: str) -> dict[str, str]:
    """From the weights to the names of their files."""
    try:
        with open(path, encoding='utf-8') as file:
            index = json.load(file)['weight_map']
        files = set(index.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f'{name}: not an index of weights ({type(error).__name__}: {error}); {AGAIN}'
        ) from error
    outside = [file for file in files if os.path.basename(str(file)) != file]
    if outside:
        raise CheckpointError(
            f'{name}: names files that are not beside it: {keys_text(outside)}'
        )
    indices = [file for file in files if file.endswith(INDEX)]
    if indices:
        raise CheckpointError(
            f'{name}: names {keys_text(indices)}, which are indices and have no weights'
        )
    return index
