"""The predictions of a test as files: ``rope-dense test --out``."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os.path import commonpath
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS

from ..datasets.images.sources import named_sources
from ..datasets.mask_colours import write_labels
from ..datasets.panoptic import PANOPTIC, panoptic_content, panoptic_segments, write_ids
from ..engine.runner import FILES
from ..project.checks.data import build_dataset
from ..project.errors import UsageError
from ..project.model import mask_numbers, num_things
from ..project.parts import datasets_of, evaluators
from ..project.run import RANKS
from ..project.task import task_of
from ..utils.results import Results

BOXES = 'boxes', 'oriented'


@contextmanager
def saved_predictions(
    cfg: Config, out: str | None, launcher: str = 'none'
) -> Iterator[list[BaseMetric]]:
    """Yield the metrics that keep the predictions of a test; they become files after it.

    Args:
        out: of a detector a pickle; else a folder, see ``PredictedImages``. None for no files.
        launcher: of the processes; the first writes.

    Raises:
        UsageError: predictions of this kind cannot be written.
        ForeignFileError: a file there is the user's.
    """
    if out is None:
        yield []
        return
    check_kind(cfg, out)
    metric: BaseMetric
    if task_of(cfg) in BOXES:
        results = Results(Path(out).parent, Path(out).name)
        kept = results.home / Path(out).name
        metric = METRICS.build(dict(type='mmdet.DumpDetResults', out_file_path=str(kept)))
        targets = {kept: Path(out)}
    else:
        metric = PredictedImages(cfg, Path(out))
        results, targets = metric.output, metric.targets
    results.check(targets.values())
    if launcher != 'none' and any(os.environ.get(name, '0') != '0' for name in RANKS):
        yield [metric]
        return
    with results:
        try:
            yield [metric]
            for kept, target in targets.items():
                with results.write(target) as partial:
                    os.replace(kept, partial)
        finally:
            for kept in targets:
                kept.unlink(missing_ok=True)


def check_kind(cfg: Config, out: str) -> None:
    """Raise UsageError if predictions of this kind cannot be written."""
    task = task_of(cfg)
    if task in BOXES and Path(out).suffix not in ('.pkl', '.pickle'):
        raise UsageError(f'--out {out}: the boxes of a detector are a pickle, such as {out}.pkl')
    if task not in (*BOXES, 'semantic', PANOPTIC):
        raise UsageError(f'--out: not of {task}: rope-dense predict writes it')
    metrics = [metric.get('metric', 'bbox') for _, metric in evaluators(cfg, 'test_evaluator')]
    has_masks = task not in BOXES or 'segm' in np.atleast_1d(metrics[0])
    if has_masks and 'metrics' in cfg.test_evaluator:  # of a ``TiledEvaluator``
        raise UsageError('--out: of a test in tiles only boxes; rope-dense predict writes masks')


class PredictedImages(BaseMetric):
    """Labels of the pixels of all images of a test, as PNGs.

    They have the paths of their images below the folder of all, and the numbers of the data set. Of
    a panoptic model they are the ids of COCO's file, panoptic.json.

    Attributes:
        output: owns the folder.
        targets: the final path of each file.
    """

    default_prefix = 'predictions'  # else mmengine warns

    def __init__(self, cfg: Config, folder: Path) -> None:
        super().__init__()
        self.cfg, self.numbers, self.is_panoptic = cfg, mask_numbers(cfg), task_of(cfg) == PANOPTIC
        built = [build_dataset(cfg, *named) for named in datasets_of(cfg, 'test_dataloader')]
        self.dataset, below = built[0], PANOPTIC if self.is_panoptic else ''
        infos = [info for dataset in built for info in dataset.data_list]
        read = [info[name] for info in infos for name in FILES if info.get(name)]
        self.output, self.targets = Results(folder, 'test', read), dict[Path, Path]()
        self.entries: dict[Path, dict] = {}
        ids = {Path(info['img_path']).absolute(): info.get('img_id') for info in infos}
        root = Path(commonpath([path.parent for path in ids]))
        for number, source in enumerate(named_sources([*ids], root)):
            kept = self.output.home / f'{number}.png'
            png = Path(source.picture).with_suffix('.png').as_posix()
            self.targets[kept] = folder / below / png
            about = dict(image_id=ids[source.path], file_name=source.file_name, png=png)
            self.entries[source.path] = dict(about, kept=kept)
        self.json = self.output.home / f'{PANOPTIC}.json'
        if self.is_panoptic:
            self.targets[self.json] = folder / self.json.name

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Keep the labels of images."""
        for sample in data_samples:
            entry = dict(self.entries[Path(sample['img_path']).absolute()])
            kept = entry.pop('kept')
            if self.is_panoptic:
                labels = sample['pred_panoptic_seg']['sem_seg'][0].cpu().numpy()
                ids, segments = panoptic_segments(labels, self.dataset.cat_ids)
                write_ids(ids, kept)
                height, width = ids.shape
                entry.update(height=height, width=width, segments=segments)
            else:
                labels = sample['pred_sem_seg']['data'][0].cpu().numpy()
                write_labels(labels, kept, self.dataset.metainfo['palette'], self.numbers)
            self.results.append(entry)

    def compute_metrics(self, results: list) -> dict:
        """No metric; COCO's file of all images is kept."""
        if self.is_panoptic:
            meta = self.dataset.metainfo
            about = meta['classes'], meta['palette'], num_things(self.cfg), self.dataset.cat_ids
            self.json.write_text(json.dumps(panoptic_content(results, *about)) + '\n')
        return {}
