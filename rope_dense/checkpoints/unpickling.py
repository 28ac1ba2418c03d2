"""Unpickling of PyTorch files: the classes that a file may name. No code from a file is run."""

import argparse
import pickle
import pickletools
import re
from collections import OrderedDict
from collections.abc import Callable
from threading import RLock
from typing import IO, Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer

from .errors import AGAIN, CheckpointError

STATISTICS = ('min', 'max', 'mean', 'current')
MAX_TUPLES = 10_000  # within one tuple
LEGACY_PICKLES = 5  # of the format before archives: magic number, version, system, contents, keys
ALLOW_LIST = RLock()  # PyTorch has one list of allowed classes for all threads


def history_statistic(owner: type, name: str) -> Callable:
    """getattr for a log history, which refers so to its own statistics functions, and no other."""
    if owner is not HistoryBuffer or name not in STATISTICS:
        raise pickle.UnpicklingError(f'GLOBAL getattr({owner!r}, {name!r})')
    return getattr(HistoryBuffer, name)


REBUILT = {'_reconstruct': np.zeros(1).__reduce__()[0], 'scalar': np.float64(0).__reduce__()[0]}
DTYPES = ''.join(np.typecodes[kind] for kind in ('AllInteger', 'AllFloat', 'Datetime')) + '?SU'
# Beside tensors and plain Python values: what training scripts save with the weights. A pair is a
# class or function and the name that stands for it in a file.
ALLOWED: list[Any] = [
    argparse.Namespace,  # the arguments of DeiT's script
    (OrderedDict, 'yacs.config.CfgNode'),  # the configuration of Swin's script, a subclass of dict
    HistoryBuffer,  # mmengine's log
    (history_statistic, 'builtins.getattr'),
    np.ndarray,
    np.dtype,
    *{type(np.dtype(code)) for code in DTYPES},
    *(
        (rebuild, f'numpy.{core}.multiarray.{name}')
        for core in ('core', '_core')  # numpy 1, numpy 2
        for name, rebuild in REBUILT.items()
    ),
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
        refused = re.search(r'GLOBAL (.+?)( was not| whose|$)', str(error), re.MULTILINE)
        if not refused:
            reason = str(error).split('\n')[0]
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
            return torch.load(path, map_location='cpu', weights_only=True, mmap=is_archive)
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
                while (value := stack.pop()) is not pickletools.markobject:
                    taken.append(value)
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
        is_mark = opcode.stack_after == [pickletools.markobject]
        stack += [pickletools.markobject] if is_mark else [count] * len(opcode.stack_after)
