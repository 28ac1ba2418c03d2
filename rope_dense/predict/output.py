"""The files that a model's predictions are written to, by its task."""

from mmengine.config import Config
from mmengine.registry import VISUALIZERS
from mmengine.visualization import Visualizer

from ..models.shared_backbone import FEATURES, SharedBackbone
from ..project.identity import Identity
from ..project.model import classes_and_colours
from ..project.task import angle_version, task_of, visualizer_of
from .files import DepthFiles, DetectionFiles, FeatureFiles, SegmentationFiles, TaskFiles, Writer
from .formats import Output


def files_of(cfg: Config, visualizer: Visualizer, output: Output) -> Writer:
    """The files of a model; the visualizer has its classes and colours."""
    meta, task = visualizer.dataset_meta, task_of(cfg)
    if task in ('boxes', 'oriented'):
        return DetectionFiles(visualizer, output, meta['classes'], angle_version(cfg))
    if task == 'depth':
        return DepthFiles(output.folder, output.journal())
    return SegmentationFiles(
        visualizer, output.folder, meta['palette'], output.scores, output.journal()
    )


def task_files(cfg: Config, model: SharedBackbone, output: Output) -> TaskFiles:
    """The files of several tasks."""
    writers: dict[str, Writer] = {}
    for name, task in model.configs.items():
        given = cfg.model.tasks[name]
        identity = Identity.of(task, str(given.config), given.get('checkpoint') or '')
        stored = dict(meta=dict(dataset_meta=model.dataset_metas[name]))
        classes, colours = classes_and_colours(task, stored)
        visualizer = VISUALIZERS.build(visualizer_of(task, f'predictions-{name}', alpha=0.6))
        visualizer.dataset_meta = dict(classes=classes, palette=colours)
        writers[name] = files_of(task, visualizer, output.within(name, identity))
    if model.features:
        place = output.within(FEATURES)
        writers[FEATURES] = FeatureFiles(place.folder, place.journal())
    return TaskFiles(output.folder, writers)
