"""Transforms that depend on the epoch."""

from collections.abc import Sequence
from itertools import pairwise

from mmcv.transforms import BaseTransform, Compose
from mmengine.logging import MessageHub
from mmengine.registry import TRANSFORMS

from ...utils.validation import refuse


def current_epoch() -> int:
    """The epoch that is trained, from 0; 0 outside of a training.

    ``ResumableTrainLoop`` sets it for each image, in the processes that load images too, and for
    each batch. mmengine's epoch-based loop sets it in the main process; its loading processes know
    it with ``persistent_workers=False``.
    """
    return int(MessageHub.get_current_instance().get_info('epoch') or 0)


@TRANSFORMS.register_module()
class StageByEpoch(BaseTransform):
    """One of several pipelines, by the epoch of the training (see ``current_epoch``).

    mmdet's ``PipelineSwitchHook`` replaces the pipeline of a data set in the main process, which
    the processes that load images do not see before they are started again.

    Args:
        starts: epochs, counted from 0, at which the second pipeline begins, the third, ...
        transforms: the pipelines, one more than ``starts``. An empty one changes nothing.
    """

    def __init__(self, starts: Sequence[int], transforms: Sequence[Sequence[dict]]) -> None:
        if any(first >= second for first, second in pairwise(starts)):
            refuse('starts', starts, 'epochs in increasing order')
        if len(transforms) != len(starts) + 1:
            raise ValueError(
                f'transforms must be {len(starts) + 1} pipelines, one more than starts={starts}, '
                f'got {len(transforms)}'
            )
        self.starts = list(starts)
        self.pipelines = [Compose(list(pipeline)) for pipeline in transforms]

    def transform(self, results: dict) -> dict | None:
        epoch = current_epoch()
        return self.pipelines[sum(start <= epoch for start in self.starts)](results)
