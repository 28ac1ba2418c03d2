"""Training of EoMT and PMT: annealing of masked attention, and loading of published weights."""

from collections.abc import Sequence

from mmengine.hooks import Hook
from mmengine.logging import print_log
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import nn

from ...backbones import RoPEViT
from ...checkpoints.detectors import read_eomt
from ...checkpoints.errors import CheckpointError
from ...checkpoints.incompatible import compare_weights
from ...checkpoints.load import load_weights
from .queries import MaskQueries


@HOOKS.register_module()
class MaskAnnealingHook(Hook):
    """Anneals the probability that the attention of a query is masked.

    For each of the blocks that the queries join, it is 1 before the start, 0 from the end on, and
    (1 - progress) ** power between them. Source: tue-mps/eomt at 7bd19dd,
    training/lightning_module.py; checked against its formula at fixed iterations in
    tests/models/test_eomt_training.py.

    It depends on the iteration alone, so a resumed run continues it. In evaluation nothing is
    masked, so before the last end a model is tested without masks that its training still has.

    Args:
        start, end: iterations, one of each for each block.
        power: of the polynomial.

    Raises:
        ValueError: iterations that are not in order or do not fit the model, or a model without
            ``MaskQueries``.
    """

    def __init__(
        self,
        start: Sequence[int],
        end: Sequence[int],
        power: float = 0.9,
    ) -> None:
        spans = zip(start, end, strict=False)
        if len(start) != len(end) or not all(0 <= a < b for a, b in spans):
            raise ValueError(
                f'start={start}, end={end}: give two iterations for each block, the end after the '
                'start'
            )
        self.start = start
        self.end = end
        self.power = power

    def before_train(self, runner: Runner) -> None:
        number = find_eomt(runner.model).num_blocks
        if number != len(self.start):
            raise ValueError(
                f'MaskAnnealingHook has start and end for {len(self.start)} blocks, queries join '
                f'{number}'
            )

    def before_train_iter(
        self,
        runner: Runner,
        batch_idx: int,
        data_batch: dict | None = None,
    ) -> None:
        probabilities = self.probabilities(runner.iter)
        find_eomt(runner.model).mask_probs = probabilities
        for block, probability in enumerate(probabilities):
            runner.message_hub.update_scalar(f'train/mask_prob_{block}', probability)

    def probabilities(self, iteration: int) -> list[float]:
        """One for each block."""
        found = []
        for start, end in zip(self.start, self.end, strict=True):
            done = min(max((iteration - start) / (end - start), 0.0), 1.0)
            found.append((1 - done) ** self.power)
        return found


def find_eomt(model: nn.Module) -> MaskQueries:
    """The queries of a model, also of a distributed training; ValueError if it has none."""
    for part in model.modules():
        if isinstance(part, MaskQueries):
            return part
    raise ValueError(
        f'{type(model).__name__} has no EoMT, so there are no masks to anneal'
    )


def load_eomt(
    backbone: RoPEViT,
    eomt: nn.Module,
    checkpoint: str,
    base: str | None = None,
) -> None:
    """Load a published EoMT or PMT strictly into a backbone and the queries beside it.

    Args:
        backbone, eomt: of a model, unchanged if anything fails.
        checkpoint, base: see ``read_eomt``.

    Raises:
        CheckpointError: a checkpoint cannot be fetched or read, or it does not fit the model.
    """
    encoder, head = read_eomt(checkpoint, base)
    incompatible = compare_weights(eomt.state_dict(), head)
    if incompatible:
        raise CheckpointError(
            f'{checkpoint} does not fit {type(eomt).__name__}:\n{incompatible}'
        )
    load_weights(backbone, encoder, checkpoint)
    eomt.load_state_dict(head)
    print_log(
        f'{type(eomt).__name__}: {len(head)} tensors from {checkpoint}',
        logger='current',
    )
