"""Checkpoint files: is it one, can it be read without running code from it, does it fit."""

import os
import pickle
import re
from collections.abc import Callable

import numpy as np
import torch
from mmengine.config import Config
from mmengine.logging import HistoryBuffer
from mmengine.registry import MODELS
from mmengine.runner import find_latest_checkpoint
from torch import Tensor, nn

from ..backbones.base import Backbone
from ..checkpoints.files import file_format
from ..checkpoints.files import read_checkpoint as read_file
from ..checkpoints.sources import HUB
from .config import component_of
from .errors import UsageError
from .model_checks import typed_nodes

TRAINING_STATE = ('meta', 'message_hub', 'optimizer')
STATISTICS = ('min', 'max', 'mean', 'current')
NUMPY_MODULES = ('numpy.core.multiarray', 'numpy._core.multiarray')  # of numpy 1 and numpy 2


def read_checkpoint(path: str, origin: str) -> dict:
    """Read a checkpoint that mmengine is to read, as ``checkpoints.files.read_checkpoint`` does.

    Beside tensors and plain Python values, only what mmengine's training state consists of is
    accepted: numpy arrays and log histories. The list is registered with PyTorch, so that mmengine
    then reads the same file in the same way: 0.10.7 has no list of its own, and 0.10.12 falls back
    to running code for what is not on its list.

    Args:
        origin: where the path was given, for the message.

    Raises:
        UsageError, CheckpointError: no such file, no PyTorch checkpoint, one that is damaged or
            that needs code to be read.
    """
    name, allowed = f'{origin} {path!r}', _safe_globals()
    checkpoint = read_file(path, name, allowed)
    if file_format(path, name) != 'torch':
        raise UsageError(f'{name}: mmengine reads PyTorch files only; convert it with torch.save')
    torch.serialization.add_safe_globals(allowed)
    return checkpoint


def weights_of(checkpoint: dict, origin: str) -> dict[str, Tensor]:
    """The weights as mmengine finds them: under 'state_dict', or at the top.

    Raises:
        UsageError: there are none (mmengine would go on with random weights).
    """
    entries = checkpoint.get('state_dict', checkpoint)
    weights = {re.sub(r'^module\.', '', k): v for k, v in entries.items() if isinstance(v, Tensor)}
    if not weights:
        raise UsageError(
            f"{origin}: no weights under 'state_dict' or at the top, where mmengine looks for "
            f'them; the file has {list(checkpoint)[:8]}'
        )
    return weights


def check_complete(model: nn.Module, weights: dict[str, Tensor], origin: str) -> None:
    """Load the weights into `model`; each of its parameters must be among them, in its shape.

    Raises:
        UsageError: some are missing or differ in shape (mmengine would warn and leave them random).
    """
    try:
        missing = model.load_state_dict(weights, strict=False).missing_keys
    except RuntimeError as error:  # a heading, then one line for each size mismatch
        problem = str(error).split('\n')[1].strip()
    else:
        missing = [key for key in missing if not key.endswith('num_batches_tracked')]
        problem = f'it lacks {len(missing)} weights, such as {missing[:3]}' if missing else ''
    if problem:
        raise UsageError(
            f'{origin} does not fit the config: {problem}. Give the config and the --cfg-options '
            'that it was trained with'
        )


def is_remote(path: str) -> bool:
    """Whether `path` is no file of this machine: a URL, or a name in a zoo or on a hub."""
    return '://' in path or path.startswith(HUB)


def resolve_resume(cfg: Config, resume: str) -> None:
    """Resume from a checkpoint file or, for 'auto', from the last one in the work_dir, if any."""
    path = find_latest_checkpoint(cfg.work_dir) if resume == 'auto' else resume
    if path is None:
        print(f'--resume: no checkpoint in {cfg.work_dir}, training starts from the beginning')
        return
    cfg.resume, cfg.load_from = True, path


def check_initial_weights(cfg: Config, model: nn.Module) -> None:
    """Check the files that training starts from: Pretrained `init_cfg`s, and `load_from` or resume.

    Raises:
        UsageError: see :func:`read_checkpoint`; or no weights, or no training state to resume.
    """
    _check_pretrained(cfg)
    path = cfg.get('load_from')
    if not path or is_remote(path):
        return
    origin = '--resume' if cfg.get('resume') else 'load_from'
    checkpoint = read_checkpoint(path, origin)
    weights = weights_of(checkpoint, f'{origin} {path!r}')
    if not cfg.get('resume'):
        return
    missing = [key for key in TRAINING_STATE if key not in checkpoint]
    if missing:
        raise UsageError(
            f'--resume {path!r}: no training run to go on with, the file has no '
            f'{", ".join(missing)}. To start from its weights: --cfg-options load_from={path}'
        )
    check_complete(model, weights, f'--resume {path!r}')


def check_tested_weights(path: str, model: nn.Module) -> None:
    """Check the checkpoint that is to be tested.

    Raises:
        UsageError: see :func:`read_checkpoint` and :func:`check_complete`.
    """
    if not is_remote(path):
        origin = f'checkpoint {path!r}'
        check_complete(model, weights_of(read_checkpoint(path, 'checkpoint'), origin), origin)


def _check_pretrained(cfg: Config) -> None:
    """Check the files of Pretrained `init_cfg`s; a backbone of ours has a reader of its own."""
    for key, node in typed_nodes(cfg.model, 'model'):
        init_cfg = node.get('init_cfg')
        if not isinstance(init_cfg, dict) or init_cfg.get('type') != 'Pretrained':
            continue
        path, origin = init_cfg.checkpoint, f'{key}.init_cfg.checkpoint'
        if is_remote(path):
            continue
        if issubclass(component_of(cfg, MODELS, node), Backbone):
            read_file(os.path.expanduser(path), f'{origin} {path!r}')
        else:
            read_checkpoint(path, origin)


def _safe_globals() -> list[Callable]:
    rebuild_array, rebuild_scalar = np.zeros(1).__reduce__()[0], np.float64(0).__reduce__()[0]
    dtypes = ('bool', 'int32', 'int64', 'uint8', 'uint32', 'float32', 'float64')
    return [
        HistoryBuffer,
        np.ndarray,
        np.dtype,
        *(type(np.dtype(name)) for name in dtypes),
        *(_named(rebuild_array, module, '_reconstruct') for module in NUMPY_MODULES),
        *(_named(rebuild_scalar, module, 'scalar') for module in NUMPY_MODULES),
        _named(_history_statistic, 'builtins', 'getattr'),
    ]


def _named(function: Callable, module: str, name: str) -> Callable:
    """The function under the name that a checkpoint calls it by."""

    def renamed(*args: object) -> object:
        return function(*args)

    renamed.__module__, renamed.__name__, renamed.__qualname__ = module, name, name
    return renamed


def _history_statistic(owner: type, name: str) -> Callable:
    """What a log history uses getattr for: its own statistics functions, and nothing else."""
    if owner is not HistoryBuffer or name not in STATISTICS:
        raise pickle.UnpicklingError(f'GLOBAL getattr({owner!r}, {name!r})')
    return getattr(HistoryBuffer, name)
