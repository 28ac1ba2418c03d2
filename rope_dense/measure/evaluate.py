"""Test a checkpoint on the test data of its config, and write the predictions of the test."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.config import Config, ConfigDict
from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS

from ..data.images.sources import listed_sources
from ..data.loading import FILES
from ..data.mask_colours import write_labels
from ..data.panoptic import PANOPTIC, panoptic_content, panoptic_segments, write_ids
from ..export.file_model import FileModel
from ..project.building import building
from ..project.checks.data import build_dataset
from ..project.contents import datasets_of, evaluators, task_of
from ..project.launch import launch_runner, run_test
from ..project.load import Options, find_model
from ..project.model import classes_and_colours, mask_numbers, num_things
from ..project.options import enable_compile
from ..project.ready import ready
from ..project.run import is_first
from ..utils.config_parts import size_steps
from ..utils.errors import UsageError
from ..utils.results import Results
from .results import print_data


def evaluate(
    config: str,
    checkpoint: str | None = None,
    *,
    out: str | None = None,
    tta: bool = False,
    compile: bool = False,
    cfg_options: Options = (),
    work_dir: str | None = None,
    data_root: str | None = None,
    split: str | None = None,
    file: Path | None = None,
    runtime: str | None = None,
    launcher: str = 'none',
) -> None:
    """Test a model; metrics are printed and logged in the work folder.

    Args:
        config, checkpoint, cfg_options, work_dir, data_root, split: see ``find_model``.
        out: file or folder of the predictions, see ``saved_predictions``.
        tta: augment test images, see ``enable_tta``.
        compile: compile the backbone's blocks.
        file, runtime: what is tested in place of the model, see ``FileModel``.
        launcher: of the processes of a distributed run.

    Raises:
        UsageError, CheckpointError: settings, files or data that cannot be used.
    """
    cfg, weights = find_model(
        config, checkpoint, cfg_options, work_dir, data_root, split=split
    )
    if weights is None:
        raise UsageError('each of several tasks is tested with its own config')
    exported = None if file is None else FileModel(file, runtime)
    with building('the config'):
        cfg.load_from = weights
        cfg.resume = False
        used = ready(cfg, 'test', weights=weights)
        print_data(cfg)
        if exported:
            exported.keep_sizes(cfg)
        if tta:
            enable_tta(cfg)
        if compile:
            enable_compile(cfg)
    with saved_predictions(cfg, out, launcher) as metrics:
        runner = launch_runner(cfg, launcher)
        if exported:
            classes, _ = classes_and_colours(cfg, used.checkpoint)
            exported.predict_for(runner.model, classes)
        run_test(runner, metrics)
    if exported:
        print(exported.said())


def enable_tta(cfg: Config) -> None:
    """--tta: test with the config's `tta_model` and `tta_pipeline`."""
    if not (cfg.get('tta_model') and cfg.get('tta_pipeline')):
        raise UsageError('--tta: the config lacks tta_model or tta_pipeline')
    warn_of_tta_sizes(cfg)
    cfg.model = ConfigDict(cfg.tta_model, module=cfg.model)
    for _, dataset in datasets_of(cfg, 'test_dataloader'):
        dataset.pipeline = cfg.tta_pipeline


def warn_of_tta_sizes(cfg: Config) -> None:
    """Print a warning where all views of an image are larger, or smaller, than its test size."""
    tested = shorter_sides(cfg.test_dataloader.dataset.get('pipeline'))
    views = shorter_sides(cfg.tta_pipeline)
    if tested and views and not min(views) <= tested[0] <= max(views):
        print(
            f'warning: --tta resizes to shorter sides of {min(views)} to {max(views)} pixels, the '
            f'test pipeline to {tested[0]}: set the scales of tta_pipeline',
            file=sys.stderr,
        )


def shorter_sides(pipeline: Sequence[dict] | None) -> list[int]:
    """The shorter side that each step of a pipeline resizes to."""
    sides = []
    for _, step, _ in size_steps(pipeline):
        if 'Resize' in str(step.get('type')):
            scale = step['scale']
            sides.append(scale if isinstance(scale, int) else min(scale))
    return sides


BOXES = 'boxes', 'oriented'


@contextmanager
def saved_predictions(
    cfg: Config,
    out: str | None,
    launcher: str = 'none',
) -> Iterator[list[BaseMetric]]:
    """Yield the metrics that write the predictions of a test when it is complete.

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
    is_writer = is_first(launcher)
    with ExitStack() as stack:
        if task_of(cfg) not in BOXES:
            images = PredictedImages(cfg, Path(out))
            if is_writer:
                stack.enter_context(images.output)
            yield [images]
            return
        results = Results(Path(out).parent, Path(out).name)
        file: str | Path = out
        if is_writer:
            stack.enter_context(results)
            file = stack.enter_context(results.write(out))
        yield [
            METRICS.build(dict(type='mmdet.DumpDetResults', out_file_path=str(file)))
        ]


def check_kind(cfg: Config, out: str) -> None:
    """Raise UsageError if predictions of this kind cannot be written."""
    task = task_of(cfg)
    if task in BOXES and Path(out).suffix not in ('.pkl', '.pickle'):
        raise UsageError(
            f'--out {out}: the boxes of a detector are a pickle, such as {out}.pkl'
        )
    if task not in (*BOXES, 'semantic', PANOPTIC):
        raise UsageError(f'--out: not of {task}: rope-dense predict writes it')
    has_masks = task not in BOXES
    if not has_masks:
        _, metric = evaluators(cfg, 'test_evaluator')[0]
        has_masks = 'segm' in np.atleast_1d(metric.get('metric'))
    if has_masks and 'metrics' in cfg.test_evaluator:  # of a ``TiledEvaluator``
        raise UsageError(
            '--out: of a test in tiles only boxes; rope-dense predict writes masks'
        )


class PredictedImages(BaseMetric):
    """The labels of the pixels of images as PNGs, with the numbers of the data set.

    They have the paths of the images below the folder of all. Of panoptic models they are the ids
    of COCO's file, panoptic.json.

    Attributes:
        output: owns the folder.
    """

    default_prefix = 'predictions'  # else mmengine warns

    def __init__(self, cfg: Config, folder: Path) -> None:
        super().__init__()
        self.cfg = cfg
        self.json = folder / f'{PANOPTIC}.json'
        self.numbers = mask_numbers(cfg)
        self.is_panoptic = task_of(cfg) == PANOPTIC
        built = [build_dataset(cfg, *x) for x in datasets_of(cfg, 'test_dataloader')]
        self.dataset = built[0]
        infos = []
        read = []
        for dataset in built:
            infos += dataset.data_list
        for info in infos:
            read += [info[name] for name in FILES if info.get(name)]
        self.output = Results(folder, 'test', read, is_flushed=False)
        self.folder = folder / PANOPTIC if self.is_panoptic else folder
        self.output.check([self.json] if self.is_panoptic else [])
        self.entries = dict[Path, dict]()
        for source in listed_sources(info['img_path'] for info in infos):
            png = Path(source.picture).with_suffix('.png').as_posix()
            self.output.check([self.folder / png])
            self.entries[source.path] = dict(file_name=source.file_name, png=png)

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Keep the PNGs of images."""
        for sample in data_samples:
            entry = dict(self.entries[Path(sample['img_path']).absolute()])
            file = BytesIO()
            if self.is_panoptic:
                labels = sample['pred_panoptic_seg']['sem_seg'][0].cpu().numpy()
                ids, entry['segments'] = panoptic_segments(labels, self.dataset.cat_ids)
                entry['height'], entry['width'] = ids.shape
                entry['image_id'] = sample['img_id']
                write_ids(ids, file)
            else:
                labels = sample['pred_sem_seg']['data'][0].cpu().numpy()
                palette = self.dataset.metainfo['palette']
                write_labels(labels, file, palette, self.numbers)
            self.results.append(dict(entry, content=file.getvalue()))

    def compute_metrics(self, results: list) -> dict:
        """Write all files; no metric."""
        for entry in results:
            self.output.write_bytes(self.folder / entry['png'], entry['content'])
        if self.is_panoptic:
            content = panoptic_content(
                results,
                self.dataset.metainfo['classes'],
                self.dataset.metainfo['palette'],
                num_things(self.cfg),
                self.dataset.cat_ids,
            )
            self.output.write_text(self.json, json.dumps(content))
        return {}
