"""Predict images, folders, lists and videos: the work of ``rope-dense predict``."""

import warnings
from pathlib import Path

from mmengine.config import Config
from mmengine.infer import BaseInferencer
from mmengine.registry import DefaultScope

from ..export.file_model import FileModel
from ..project.building import checked_device
from ..project.contents import at_size, task_of, used_loaders
from ..project.identity import Identity
from ..project.launch import init_rank
from ..project.load import find_model
from ..utils.results import Results
from ..utils.validation import parse_size
from .files import Writer
from .formats import check_wanted
from .inferencer import build_inferencer
from .output import FILES, files_of, task_files
from .place import Output, Wanted
from .request import Pictures, Request, find_pictures
from .share import Predictor, predict_share
from .thresholds import least_scores
from .tiles import TrainedModel
from .video import predict_video, video_file


def predict(request: Request) -> Path:
    """Predict images and write what is found; an interrupted run is continued.

    What cannot be read, predicted or drawn is named at the end. Several processes (see
    ``processes``) share the images.

    Returns:
        The folder.

    Raises:
        UsageError, CheckpointError, ValueError: settings or files that cannot be used, or no image
            can be predicted.
    """
    rank, count = init_rank()
    device = checked_device(request.device)
    warnings.filterwarnings('ignore', 'torch.meshgrid')  # of mmdet's DINO
    cfg, weights = find_model(
        request.config, request.checkpoint, request.cfg_options, request.work_dir
    )
    used_loaders(cfg, 'test')
    if request.size is not None:
        cfg = at_size(cfg, parse_size(request.size))
    exported = (
        None if request.file is None else FileModel(request.file, request.runtime)
    )
    if exported:
        exported.keep_sizes(cfg)
    folder = request.out or Path(cfg.work_dir, 'predictions')
    pictures = find_pictures(cfg, request.images, folder, count)
    task = task_of(cfg)
    check_wanted(request.wanted, [task], pictures.video is None)
    inputs = [*pictures.inputs(), request.config, weights or '', request.ids or '']
    results = Results(folder, f'predict/{rank}', inputs, is_flushed=False)
    with results, DefaultScope.overwrite_default_scope(cfg.default_scope):
        if task in FILES:  # of several tasks they are checked when the models are built
            FILES[task].check(results, folder, request.wanted, pictures.sources)
        if pictures.video:
            results.check([video_file(folder, pictures.video)])
        inferencer = build_inferencer(cfg, weights, str(device))
        if exported:
            classes = inferencer.model.dataset_meta['classes']
            exported.predict_for(inferencer.model, classes)
        identity = Identity.of(cfg, request.config, weights or '')
        meta = inferencer.model.dataset_meta
        trained = TrainedModel(
            cfg, inferencer.model, meta['classes'], meta['palette'], identity
        )
        predictor = build_predictor(request, trained, inferencer, pictures, results)
        if pictures.video:
            predict_video(predictor, pictures.video)
        else:
            predict_share(predictor, pictures, rank, count)
        edited = results.edited_text()
        if edited:
            print(edited)
        if exported:
            print(exported.said())
    return folder


def build_predictor(
    request: Request,
    trained: TrainedModel,
    inferencer: BaseInferencer,
    pictures: Pictures,
    results: Results,
) -> Predictor:
    """The model with the files of its predictions; UsageError for ones that it does not have."""
    cfg = trained.cfg
    identity = trained.identity
    classes = check_tasks(cfg, inferencer, pictures, request.wanted)
    run = Path(cfg.work_dir)
    least = least_scores(request.score, run, classes, identity.checkpoint)
    images = request.images
    settings = dict(
        images=str(images) if isinstance(images, (str, Path)) else [*map(str, images)],
        score=least,
        scores=request.scores,
        tile_above=request.tile_above,
        **identity.described(),
    )
    output = Output(
        results, results.folder, request.wanted, settings, least, pictures.drawable
    )
    writer: Writer
    if task_of(cfg) == 'several':
        writer = task_files(cfg, inferencer.model, output, pictures.sources)
    else:
        writer = files_of(cfg, inferencer.visualizer, output)
    return Predictor(
        trained, inferencer, writer, output, request.batch, request.tile_above
    )


def check_tasks(
    cfg: Config, inferencer: BaseInferencer, pictures: Pictures, wanted: Wanted
) -> list[str]:
    """The classes of all tasks, whose predictions can be written; else UsageError."""
    model = inferencer.model
    metas = [model.dataset_meta]
    if task_of(cfg) == 'several':
        metas = [*model.dataset_metas.values()]
        tasks = [*map(task_of, model.configs.values())]
        check_wanted(wanted, tasks, pictures.video is None)
    classes: list[str] = []
    for meta in metas:
        classes += meta.get('classes', ())
    wanted.say_lacking(classes, [*pictures.paths])
    return classes
