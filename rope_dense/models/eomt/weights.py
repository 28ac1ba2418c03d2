"""Strict loading of published EoMT-DINOv3 and PMT checkpoints."""

from mmengine.logging import print_log
from torch import nn

from ...backbones import RoPEViT
from ...checkpoints.detectors import read_eomt
from ...checkpoints.errors import CheckpointError
from ...checkpoints.incompatible import compare_weights
from ...checkpoints.load import load_weights


def load_eomt(backbone: RoPEViT, eomt: nn.Module, checkpoint: str, base: str | None = None) -> None:
    """Load a published EoMT or PMT strictly into a backbone and the queries beside it.

    Args:
        backbone, eomt: of a model, unchanged if anything fails.
        checkpoint, base: see ``read_eomt``.

    Raises:
        CheckpointError: a checkpoint cannot be fetched or read, or it does not fit the model.
    """
    encoder, head = read_eomt(checkpoint, base)
    if incompatible := compare_weights(eomt.state_dict(), head):
        raise CheckpointError(f'{checkpoint} does not fit {type(eomt).__name__}:\n{incompatible}')
    load_weights(backbone, encoder, checkpoint)
    eomt.load_state_dict(head)
    print_log(f'{type(eomt).__name__}: {len(head)} tensors from {checkpoint}', logger='current')
