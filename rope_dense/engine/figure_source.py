"""The origin of a figure: its images, what computed it, and of which weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mmengine.evaluator import BaseMetric
from mmengine.runner import Runner
from torch.utils.data import Dataset

from ..data.tiles.dataset import TiledDataset

EVALUATED = 'own_split'  # key of a config: the split of own data that it evaluates
SPLITS = dict(train='training', val='validation', test='test', all='labelled')


@dataclass(frozen=True)
class FigureSource:
    """What a figure is of; with every figure that is printed, logged or written.

    Attributes:
        images: their number.
        place: folder of the images, or file of their labels.
        split: of own data 'training', 'validation', 'test', or 'labelled' for all; else ''.
        evaluator: the metric, and what computes it.
        limit: how many boxes of a class in an image count; None of other figures.
        checkpoint: name of the file of the weights; '' during their training.
        labels: the file of the labels, of objects as COCO's, which `predict --ids` takes.
    """

    images: int
    place: str
    split: str = ''
    evaluator: str = ''
    limit: int | None = None
    checkpoint: str = ''
    labels: str = ''

    @classmethod
    def of(
        cls,
        cfg: Mapping[str, Any],
        dataset: Dataset,
        metrics: Sequence[BaseMetric] = (),
        checkpoint: str | None = None,
    ) -> FigureSource:
        """The source of the figures of a config's test or validation, from its built parts."""
        whole: Any = dataset.whole if isinstance(dataset, TiledDataset) else dataset
        folders = [*(getattr(whole, 'data_prefix', None) or {}).values()]
        labels = str(getattr(whole, 'ann_file', ''))
        place = next(filter(None, [labels, *folders, type(whole).__name__]))
        split = ''
        files = cfg.get('own_files') or {}
        if place in [part.get('ann_file') for part in files.values()]:
            place = cfg['own']['data_root']
            split = SPLITS[cfg.get(EVALUATED) or 'val']
        limits = [max(x.proposal_nums) for x in metrics if hasattr(x, 'proposal_nums')]
        return cls(
            images=len(whole),
            place=str(place),
            split=split,
            evaluator=', '.join(map(evaluator_text, metrics)),
            limit=max(limits, default=None),
            checkpoint=Path(checkpoint or '').name,
            labels=labels,
        )

    @classmethod
    def of_runner(cls, runner: Runner, mode: str) -> FigureSource:
        """The source of the figures of a Runner's 'val', or 'test', which reads weights."""
        loop = getattr(runner, f'{mode}_loop')
        read = runner.cfg.get('load_from') if mode == 'test' else None
        metrics = loop.evaluator.metrics
        return cls.of(runner.cfg, loop.dataloader.dataset, metrics, read)

    def __str__(self) -> str:
        word = 'image' if self.images == 1 else 'images'
        parts = [
            f'{self.images} {self.split} {word} of {self.place}'.replace('  ', ' ')
        ]
        if self.evaluator:
            parts.append(self.evaluator)
        if self.limit is not None:
            parts.append(f'the {self.limit} best boxes of a class in an image')
        if self.checkpoint:
            parts.append(self.checkpoint)
        return '; '.join(parts)


def log_source(runner: Runner) -> None:
    """Log the source of the figures of a training once, which its lines do not repeat."""
    runner.logger.info(f'figures: {FigureSource.of_runner(runner, "val")}')


def evaluator_text(metric: BaseMetric) -> str:
    """A metric, which of several kinds of AP it is, and what computes it."""
    name = type(metric).__name__
    if name == 'CocoMetric':
        is_slow = metric.use_mp_eval or not has_faster_coco()
        return f'{name} by {"pycocotools" if is_slow else "faster-coco-eval"}'
    if name.endswith('DOTAMetric'):
        kind = '11 points' if metric.use_07_metric else 'the area'
        return f'{name}, AP by {kind} of the precision-recall curve'
    return name


def has_faster_coco() -> bool:
    """Return whether faster-coco-eval computes COCO's figures, else pycocotools."""
    return find_spec('faster_coco_eval') is not None
