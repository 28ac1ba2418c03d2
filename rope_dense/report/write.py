"""Write the report of a model."""

from collections.abc import Callable
from pathlib import Path

from mmengine.config import Config
from mmengine.device import get_device
from mmengine.model import BaseModel

from ..project.building import checked_device
from ..project.contents import Task, task_of
from ..project.identity import hash_of
from ..project.load import Options, find_model
from ..project.model import classes_and_colours
from ..project.own.tasks import stored_settings
from ..project.ready import ready
from ..project.run import Run
from ..project.weights import patch_mmengine_reader
from ..utils.errors import UsageError
from ..utils.results import Results
from .curves import PICTURES as CURVES
from .curves import add_training
from .depth import add_depth
from .detection import add_detection
from .features import add_features
from .page import FIGURES, NAME, PAGE, Page, ReportPage
from .predictions import PICTURES
from .record import Promise, ReportRecord
from .segmentation import add_panoptic, add_segmentation
from .settings import used_settings

SECTIONS: dict[Task, Callable[[ReportPage, Config, BaseModel], None]] = dict(
    boxes=add_detection,
    panoptic=add_panoptic,
    semantic=add_segmentation,
    depth=add_depth,
    features=add_features,
)
# Of a task, beside the files of all tasks, and as far as there is something to draw.
TASK_FILES: dict[Task, str] = dict(
    boxes='errors.png precision_recall.png confusion.png calibration.png missed_objects.png '
    'false_positives.png suspects.csv suspect_labels.png',
    panoptic='pq.png',
    semantic='iou.png confusion.png',
    depth='rmse.png',
    features='neighbours.png',
)


def report(
    config: str,
    checkpoint: str | None = None,
    *,
    out: str | Path | None = None,
    device: str | None = None,
    work_dir: str | None = None,
    data_root: str | None = None,
    split: str | None = None,
    miss: float | None = None,
    margin: float | None = None,
    cfg_options: Options = (),
) -> Path:
    """Test a model and write its report; returns its page.

    Args:
        config, checkpoint, work_dir, data_root, split, cfg_options: see ``find_model``. Logs and
            resolutions.json of the work folder become part of the report.
        out: folder; by default report, in the work folder.
        device: by default a GPU if there is one.
        miss, margin: shares of the objects, or pixels, that may be missed, and of the objects that
            may be found but not contained in their boxes: thresholds and margins are sought, see
            ``promise``.

    Raises:
        UsageError, CheckpointError: settings, data or weights that cannot be used.
        ForeignFileError: a file that would be written is the user's.
        BlockingIOError: another process writes to the folder.
    """
    promise = checked_promise(miss, margin, split)
    chosen = str(checked_device(device))
    cfg, weights = find_model(
        config,
        checkpoint,
        cfg_options,
        work_dir,
        data_root,
        False,
        split,
    )
    if weights is None:
        raise UsageError('report: give the config of one task and its checkpoint')
    folder = Path(out or Path(cfg.work_dir, 'report'))
    return write_report(cfg, weights, folder, chosen, promise)


def checked_promise(
    miss: float | None, margin: float | None, split: str | None
) -> Promise | None:
    """The promise that thresholds are sought for; UsageError for one that cannot be kept."""
    if miss is None:
        if margin is not None:
            raise UsageError('--margin: give --miss, too, which chooses the threshold')
        return None
    for name, share in (('--miss', miss), ('--margin', margin)):
        if share is not None and not 0 < share < 1:
            raise UsageError(
                f'{name} {share}: give a share between 0 and 1, such as 0.1'
            )
    if split == 'train':
        raise UsageError(
            '--miss: the model knows the images of --split train; give --split test or --data'
        )
    return Promise(miss, margin)


def write_report(
    cfg: Config,
    checkpoint: str,
    out: Path,
    device: str,
    promise: Promise | None = None,
) -> Path:
    """Test a model on the test data of its config, and write the report; returns its page.

    Args:
        promise: to seek thresholds for, see ``checked_promise``.

    Raises:
        UsageError, CheckpointError: the data or the weights cannot be used.
        ForeignFileError: a file that would be written is the user's.
        BlockingIOError: another process writes to the folder.
    """
    task = task_of(cfg)
    if task not in SECTIONS:
        raise UsageError(
            'report: it compares upright boxes; test rotated ones by rope-dense test'
        )
    if promise and task not in ('boxes', 'semantic'):
        raise UsageError(
            f'--miss: needs objects or pixels with scores, and the task of the config is {task}'
        )
    if promise and promise.margin is not None and task == 'semantic':
        raise UsageError(
            '--margin: is of boxes, and the task of the config is semantic'
        )
    with Results(out, NAME) as results:
        results.check(report_files(out, task))
        patch_mmengine_reader()
        # Before data and model are built, which change some.
        settings = used_settings(cfg)
        model, _, stored = ready(cfg, 'test', weights=checkpoint, has_runner=False)
        classes, colours = classes_and_colours(cfg, stored)
        model = model.to(device).eval()
        model.dataset_meta = dict(classes=classes, palette=colours)
        copy = Path(cfg.work_dir, Path(cfg.filename).name)  # of the training
        config = str(copy if copy.is_file() else cfg.filename)
        about = dict(config=config, checkpoint=checkpoint, classes=len(classes))
        if cfg.get('own_data'):  # with what was left out of the labels
            about['own data'] = cfg.own_data
        record = ReportRecord(
            about=about,
            checkpoint_sha256=hash_of(checkpoint),
            names=list(classes),
            settings=settings,
            promise=promise,
        )
        page = Page(results, f'{Path(cfg.filename).stem}: report', record)
        SECTIONS[task](page, cfg, model)
        add_training(page, Path(cfg.work_dir))
        return page.write()


def report_files(out: Path, task: Task) -> list[Path]:
    """The files that a report of a task may have."""
    pictures = [*TASK_FILES[task].split(), *PICTURES, *CURVES]
    return [out / name for name in [PAGE, FIGURES, *pictures]]


def report_training(cfg: Config) -> None:
    """Write the report of a training of configs/own, unless `own.report` is False or it has none.

    The training is complete: an error of the report is printed, and nothing else.
    """
    folder = cfg.work_dir
    try:
        own = stored_settings(cfg)
        if own is not None and own.report and task_of(cfg) in SECTIONS:
            checkpoint = Run(Path(folder)).best
            out = Path(folder, 'report')
            print(write_report(cfg, checkpoint, out, get_device()))
    except Exception as error:  # whatever it is, the weights are there
        print(f'no report: {error} (rope-dense report {folder} --debug shows where)')
