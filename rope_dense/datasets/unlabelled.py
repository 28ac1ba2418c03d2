"""Pictures without labels, and what an evaluation says of their features."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from mmengine.dataset import BaseDataset
from mmengine.evaluator import BaseMetric
from mmengine.registry import DATASETS, METRICS
from torch import Tensor


@DATASETS.register_module()
class UnlabelledDataset(BaseDataset):
    """Pictures of a list that ``as_pictures`` wrote; ``number`` is the place in the whole list.

    Args:
        ann_file: JSON, {"pictures": [[number, path], ...], "total": N, "frames": n}: paths in
            ``data_root``, but for numbers from N - n on, which are beside the file.
    """

    METAINFO = dict(classes=(), palette=())

    def load_data_list(self) -> list[dict]:
        content = json.loads(Path(self.ann_file).read_text(encoding='utf-8'))
        listed, beside = content['pictures'], Path(self.ann_file).parent
        first = content['total'] - content['frames']
        roots = {False: Path(self.data_root), True: beside}
        return [
            dict(img_path=str(roots[number >= first] / path), number=number, seg_fields=[])
            for number, path in listed
        ]


@METRICS.register_module()
class FeatureMetric(BaseMetric):
    """The effective rank of the features of pictures, and how many of them a classifier names.

    The effective rank is exp(H), H the entropy of the singular values of the centred features over
    their sum: the number of directions that they fill (Roy and Vetterli, "The effective rank",
    EUSIPCO 2007). It falls to few when features collapse.
    """

    default_prefix = 'features'

    def process(self, data_batch: object, data_samples: Sequence[Mapping]) -> None:
        for sample in data_samples:
            self.results.append({name: value.cpu() for name, value in sample.items()})

    def compute_metrics(self, results: list[dict[str, Tensor]]) -> dict[str, float]:
        figures = dict(rank=effective_rank(torch.stack([x['feature'] for x in results])))
        named = [x['is_named'].item() for x in results if 'is_named' in x]
        return figures | ({'named': 100 * sum(named) / len(named)} if named else {})


def effective_rank(features: Tensor) -> float:
    """The effective rank of features [N, C], from 1 to C."""
    values = torch.linalg.svdvals(features.double() - features.double().mean(0))
    shares = values / values.sum().clamp(min=torch.finfo(torch.float64).tiny)
    return torch.special.entr(shares).sum().exp().item()
