"""The weights among the contents of a checkpoint file."""

import torch
from mmengine.logging import print_log
from torch import Tensor

from .errors import CheckpointError, keys_text, short_key
from .keys import StateDict

# The keys for the weights of timm's averaged model, of mmengine and timm, naver, LingBot-Vision and
# V-JEPA 2.1.
WRAPPERS = (
    'state_dict_ema',
    'state_dict',
    'model',
    'backbone',
    'ema_encoder',
    'target_encoder',
)
# Prefixes of all keys: of several GPUs, of torch.compile, and of models in Lightning.
SHARED_PREFIXES = ('module.', '_orig_mod.', 'model.', 'net.')
NETWORKS = ('teacher', 'student')  # of a training by distillation
MAX_EXPANSION = 16  # bytes of the weights for one byte of their storages,
FREE_EXPANSION = 2**26  # beyond this many


def select_weights(
    contents: dict, prefix: str | None, name: str, network: str | None = None
) -> StateDict:
    """The weights of a backbone among the contents of a file, under their names in the backbone.

    Args:
        contents: as ``read_checkpoint`` returns them: a state dict, or one under the first of
            ``WRAPPERS`` that they have. So of a training with an averaged model (EMA), by timm's
            script or by mmengine, the average is taken.
        prefix: what the names of the backbone's weights begin with, such as ``'backbone.'``. By
            default that, if there are such names (a detector or a segmentor), or nothing; after
            ``SHARED_PREFIXES``, which are removed.
        name: of the file in messages.
        network: see ``choose_network``.

    Raises:
        CheckpointError: there are no weights, or none under ``prefix``; or see ``choose_network``
            and ``check_plain``.
    """
    state = contents
    for key in WRAPPERS:
        if isinstance(contents.get(key), dict):
            state = contents[key]
            break
    state = choose_network(state, prefix, name, network)
    weights = {key: value for key, value in state.items() if isinstance(value, Tensor)}
    if not weights:
        raise CheckpointError(
            f'{name}: no weights, neither at the top nor under one of {", ".join(WRAPPERS)}; the '
            f'file has {keys_text(contents, 8) or "nothing"}'
        )
    check_plain(weights, name)
    weights = without_shared_prefixes(weights, prefix, name)
    if prefix is None:
        prefix = 'backbone.' if entries_below('backbone.', weights) else ''
    elif prefix and not prefix.endswith('.'):
        prefix += '.'
    selected = entries_below(prefix, weights)
    for key, weight in selected.items():
        selected[key] = in_full(prefix + key, weight, name)
    if not selected:
        parts = sorted({key.split('.')[0] for key in weights})
        raise CheckpointError(
            f'{name}: no weights under prefix={prefix!r}; the file has {keys_text(parts)}'
        )
    return selected


def choose_network(
    state: dict, prefix: str | None, name: str, network: str | None
) -> dict:
    """The weights of one of ``NETWORKS``; all, if there are none of them.

    A file has them as dicts, or in one dict under keys that begin with their names. The latter
    count only if ``prefix`` is None, and a single network only if all keys are of it.

    Args:
        state: a state dict, or several under their names.
        prefix: see ``select_weights``.
        name: of the file in messages.
        network: 'teacher' or 'student'. None takes the only one.

    Raises:
        CheckpointError: the file has both and ``network`` is None, or it has no such network.
    """
    parts = {x: state[x] for x in NETWORKS if isinstance(state.get(x), dict)}
    if not parts and (prefix is None or network is not None):
        for start in NETWORKS:
            below = entries_below(f'{start}.', state)
            if below:
                parts[start] = below
        if len(parts) == 1 and not network:
            (only,) = parts.values()
            if len(only) < len(entries_below('', state)):
                parts = {}
    if network is not None and network not in parts:
        found = keys_text(parts) or f'none of {" and ".join(NETWORKS)}'
        raise CheckpointError(
            f'{name}: network={network!r} in init_cfg, and the file has {found}'
        )
    if network is None and len(parts) > 1:
        choices = ' or '.join(f'network={x!r}' for x in parts)
        raise CheckpointError(
            f'{name}: the weights of {" and ".join(parts)}: set {choices} in init_cfg'
        )
    return parts[network or next(iter(parts))] if parts else state


def entries_below(start: str, state: dict) -> dict:
    """The entries whose keys begin with ``start``, without it."""
    found = {}
    for key, value in state.items():
        if isinstance(key, str) and key.startswith(start):
            found[key.removeprefix(start)] = value
    return found


def without_shared_prefixes(
    weights: StateDict, prefix: str | None, name: str
) -> StateDict:
    """Weights without any of ``SHARED_PREFIXES`` that all keys begin with; the log has a line.

    None is removed if keys begin with ``prefix``, which may start with one of them.
    """
    removed = ''
    while not prefix or not entries_below(prefix, weights):
        for shared in SHARED_PREFIXES:
            below = entries_below(shared, weights)
            if len(below) == len(weights):
                break
        else:
            break
        weights = below
        removed += shared
    if removed:
        print_log(
            f'{name}: all keys begin with {removed!r}, which is removed',
            logger='current',
        )
    return weights


def check_plain(weights: dict, name: str) -> None:
    """Raise CheckpointError unless each weight has a name and is a dense tensor of numbers.

    Tensors that share storages, or repeat what is in them (``expand``), may not be much larger than
    the storages: a small file would fill the memory.
    """
    storages = {}
    size = 0
    for key, weight in weights.items():
        if not isinstance(key, str):
            raise CheckpointError(
                f'{name}: the keys of weights must be strings, got {short_key(key)}'
            )
        if weight.is_nested or weight.layout != torch.strided or weight.is_quantized:
            nested = 'nested' if weight.is_nested else str(weight.layout)
            kind = 'quantized' if weight.is_quantized else nested
            raise CheckpointError(
                f'{name}: {short_key(key)} is {kind}; save dense tensors (dequantize(), to_dense())'
            )
        if not weight.is_meta:
            storage = weight.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            size += weight.nbytes
    stored = sum(storages.values())
    if size > max(MAX_EXPANSION * stored, FREE_EXPANSION):
        raise CheckpointError(
            f'{name}: {stored / 1e6:.1f} MB are stored for weights of {size / 1e6:,.0f} MB, which '
            'repeat them; save contiguous tensors'
        )


def in_full(key: str, weight: Tensor, name: str) -> Tensor:
    """A weight of one byte a number (float8) as float32, which has all its values.

    Other weights are returned as they are. CheckpointError if PyTorch cannot convert the type
    (packed float4).
    """
    if not weight.is_floating_point() or weight.itemsize > 1:
        return weight
    try:
        return weight.float()
    except NotImplementedError as error:
        raise CheckpointError(
            f'{name}: {short_key(key)} is {weight.dtype}; save float32, bfloat16 or float16'
        ) from error
