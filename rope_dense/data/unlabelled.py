"""Pictures without labels, and evaluations that say when a training destroys their features."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from mmengine.dataset import BaseDataset
from mmengine.evaluator import BaseMetric
from mmengine.logging import MessageHub
from mmengine.registry import DATASETS, METRICS
from torch import Tensor

BEFORE = 'rank_before'
LEAST = 0.5  # of the rank before training, below which features collapse


@DATASETS.register_module()
class UnlabelledDataset(BaseDataset):
    """Pictures of a list of ``write_picture_list``, each with its ``number`` in it.

    Args:
        every: 1 for all of them, 2 for every second ...
        settings: of BaseDataset. ``ann_file`` has paths of "images" in ``data_root``, and of
            "frames" beside itself.
    """

    def __init__(self, every: int = 1, **settings: Any) -> None:
        self.every = every
        super().__init__(**settings)

    def load_data_list(self) -> list[dict]:
        file = Path(self.ann_file)
        listed = json.loads(file.read_text(encoding='utf-8'))
        paths = [Path(self.data_root, name) for name in listed['images']]
        paths += [file.parent / name for name in listed['frames']]
        pictures = []
        for number, path in enumerate(paths):
            pictures.append(dict(img_path=str(path), number=number, seg_fields=[]))
        return pictures[:: self.every]


@METRICS.register_module()
class FeatureMetric(BaseMetric):
    """The effective rank of features, and the share of pictures that a classifier names, in %.

    A line is printed if the rank is less than half of the rank of the first evaluation of a run.
    """

    default_prefix = 'features'

    def process(self, data_batch: object, data_samples: Sequence[Mapping]) -> None:
        for sample in data_samples:
            self.results.append({name: value.cpu() for name, value in sample.items()})

    def compute_metrics(self, results: list[dict[str, Tensor]]) -> dict[str, float]:
        rank = effective_rank(torch.stack([result['feature'] for result in results]))
        run = MessageHub.get_current_instance()  # which is resumed, too
        before = run.get_info(BEFORE)
        if before is None:
            run.update_info(BEFORE, rank)
        elif rank < LEAST * before:
            print(
                f'warning: the features fill {rank:.1f} directions, {before:.1f} before training: '
                'they collapse; a lower own.lr, fewer own.epochs or a smaller own.lora keeps more',
                file=sys.stderr,
            )
        metrics = dict(rank=rank)
        named = [x['is_named'].item() for x in results if 'is_named' in x]
        if named:
            metrics['named'] = 100 * sum(named) / len(named)
        return metrics


def effective_rank(features: Tensor) -> float:
    """The number of directions that features [N, C] fill, from 1 to C.

    It is exp(H), H the entropy of the singular values of the centred features over their sum (Roy
    and Vetterli, "The effective rank: a measure of effective dimensionality", EUSIPCO 2007).
    """
    values = torch.linalg.svdvals(features.double() - features.double().mean(0))
    shares = values / values.sum().clamp(min=torch.finfo(torch.float64).tiny)
    return torch.special.entr(shares).sum().exp().item()
