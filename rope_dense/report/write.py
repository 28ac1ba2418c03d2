"""Write the report of a model."""

from __future__ import annotations

from pathlib import Path

from mmengine.config import Config
from mmengine.device import get_device

from ..checks.data import check_data
from ..checks.model import check_image_sizes
from ..checks.trained_model import load_trained
from ..project.errors import UsageError
from ..project.find import best_checkpoint
from ..project.task import task_of
from ..project.weights import read_safely
from . import curves, depth, detection, segmentation
from .page import Page


def write_report(cfg: Config, checkpoint: str, out: Path, device: str) -> Path:
    """Test a model on the test data of its config, and write the report; returns its page.

    Raises:
        UsageError, CheckpointError: the data or the weights cannot be used.
    """
    task = task_of(cfg)
    if task in ('oriented', 'several'):
        raise UsageError('report: it compares upright boxes; test rotated ones by rope-dense test')
    read_safely()
    model, classes, colours = load_trained(cfg, checkpoint)
    check_image_sizes(cfg, model, ('test_dataloader',))
    check_data(cfg, ('test_dataloader',))
    model = model.to(device).eval()
    names = dict(config=cfg.filename, checkpoint=checkpoint, classes=len(classes))
    if cfg.get('own_data'):  # with what was left out of the labels
        names['own data'] = cfg.own_data
    page = Page(out, f'{Path(cfg.filename).stem}: report', names)
    if task == 'depth':
        depth.report(page, cfg, model)
    else:
        module = segmentation if task == 'semantic' else detection
        module.report(page, cfg, model, classes, colours)
    curves.report(page, Path(cfg.work_dir))
    return page.close()


def report_training(cfg: Config) -> None:
    """Write the report of a training of configs/own, unless `own.report` is False or it has none.

    The training is complete: an error of the report is printed, and nothing else.
    """
    if not (cfg.get('own') or {}).get('report'):
        return
    try:
        if task_of(cfg) == 'oriented':
            return
        checkpoint = best_checkpoint(Path(cfg.work_dir))
        print(write_report(cfg, checkpoint, Path(cfg.work_dir, 'report'), get_device()))
    except Exception as error:  # whatever it is, the weights are there
        print(f'no report: {error} (rope-dense report {cfg.work_dir} --debug shows where)')
