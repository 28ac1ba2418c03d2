"""Files with the low-rank adapters of a backbone alone.

A safetensors file with ``down`` and ``up`` of each adapter under their keys in the backbone. Its
metadata has what the weights do not tell, the settings ``lora`` of the backbone.
"""

import json

from ..backbones.base import Backbone
from ..backbones.lora import find_adapters
from ..utils.disk import atomic_write
from .errors import CheckpointError
from .fetch import fetch
from .incompatible import compare_weights
from .keys import StateDict
from .read import file_format, read_checkpoint

SETTINGS = 'lora'  # of the metadata


def save_adapters(model: Backbone, path: str) -> None:
    """Write the adapters of a backbone to a file that is either complete or as it was.

    Args:
        model: a backbone built with ``lora``; of a detector or segmentor, its ``backbone``.
        path: of the file, which should end in .safetensors.

    Raises:
        CheckpointError: the backbone has no adapters.
    """
    from safetensors.torch import save_file

    if model.lora is None:
        raise CheckpointError(
            f'{path}: the model has no adapters to save; build it with lora'
        )
    adapters = adapter_weights(model)
    weights = {key: weight.contiguous() for key, weight in adapters.items()}
    with atomic_write(path) as partial:
        save_file(weights, partial, {'format': 'pt', SETTINGS: json.dumps(model.lora)})


def load_adapters(model: Backbone, checkpoint: str) -> None:
    """Load what ``save_adapters`` wrote into a backbone with the same settings ``lora``.

    Args:
        model: a backbone; unchanged if anything fails.
        checkpoint: a file, see ``fetch``.

    Raises:
        CheckpointError: the file cannot be fetched or read, or it does not fit the adapters.
    """
    weights, settings = read_adapters(checkpoint)
    if model.lora != settings:
        raise CheckpointError(
            f'{checkpoint}: set lora={settings}, the model has {model.lora}'
        )
    incompatible = compare_weights(adapter_weights(model), weights)
    if incompatible:
        raise CheckpointError(
            f'{checkpoint} does not fit the adapters of {type(model).__name__}:\n{incompatible}'
        )
    # The weights have the keys of all adapters, see ``compare_weights``.
    model.load_state_dict(weights, strict=False)


def read_adapters(checkpoint: str) -> tuple[StateDict, dict]:
    """The weights of a file of adapters, and the settings that they were made with."""
    from safetensors import safe_open

    path = fetch(checkpoint)
    weights = read_checkpoint(path, checkpoint)
    metadata: dict[str, str] = {}
    if file_format(path, checkpoint) == 'safetensors':
        with safe_open(path, 'pt') as file:
            metadata = file.metadata() or {}
    if SETTINGS not in metadata:
        raise CheckpointError(
            f'{checkpoint}: no file of adapters, as save_adapters writes them'
        )
    return weights, json.loads(metadata[SETTINGS])


def adapter_weights(model: Backbone) -> StateDict:
    """The weights of the adapters, under their keys in the model."""
    weights: StateDict = {}
    for name, adapter in find_adapters(model).items():
        weights |= adapter.state_dict(prefix=f'{name}.lora.')
    return weights
