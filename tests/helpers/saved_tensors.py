"""Tensors that a forward pass saves for backward."""

import gc

import torch
from torch import Tensor, nn


def tensors() -> dict[int, Tensor]:
    """All that Python knows of, by identity."""
    return {id(found): found for found in gc.get_objects() if type(found) is Tensor}


def saved(model: nn.Module, image: Tensor) -> dict[int, Tensor]:
    """The tensors that exist after forward for backward alone, by storage; parameters left out.

    Of the second forward, as the first fills caches.
    """
    model(image)
    storages = {}
    parameters = {p.untyped_storage().data_ptr() for p in (*model.parameters(), image)}

    def keep(tensor: Tensor) -> Tensor:
        pointer = tensor.untyped_storage().data_ptr()
        if pointer not in parameters:
            storages[pointer] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        before = tensors()
        outs = model(image)
    now = tensors()
    for new in now.keys() - before.keys():  # such as attributes of an autograd function
        keep(now[new])
    assert outs[0].requires_grad
    return storages


def size_of(storages: dict[int, Tensor]) -> int:
    """In bytes."""
    return sum(tensor.untyped_storage().nbytes() for tensor in storages.values())
