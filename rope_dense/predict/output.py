"""The files that a model's predictions are written to, by its task."""

from collections.abc import Sequence

from mmengine.config import Config
from mmengine.registry import VISUALIZERS
from mmengine.visualization import Visualizer

from ..data.images.sources import Source
from ..models.shared_backbone import FEATURES, SharedBackbone
from ..project.contents import Task, angle_version, task_of, visualizer_of
from ..project.identity import Identity
from ..project.model import classes_and_colours, mask_numbers, num_things
from .files import (
    DepthFiles,
    DetectionFiles,
    FeatureFiles,
    PanopticFiles,
    SegmentationFiles,
    TaskFiles,
    Writer,
)
from .place import Output

FILES: dict[Task, type[Writer]] = dict(
    boxes=DetectionFiles,
    oriented=DetectionFiles,
    panoptic=PanopticFiles,
    semantic=SegmentationFiles,
    depth=DepthFiles,
)


def files_of(cfg: Config, visualizer: Visualizer, output: Output) -> Writer:
    """The files of a model of one task; the visualizer has its classes and colours."""
    task = task_of(cfg)
    meta = dict(visualizer.dataset_meta, convention=angle_version(cfg))
    if task in ('semantic', 'panoptic'):
        meta['numbers'] = mask_numbers(cfg)
    if task == 'panoptic':
        meta['num_things'] = num_things(cfg)
    return FILES[task](visualizer, output, meta)


def task_files(
    cfg: Config, model: SharedBackbone, output: Output, sources: Sequence[Source]
) -> TaskFiles:
    """The files of several tasks; ForeignFileError if one would replace a file of the user's."""
    writers: dict[str, Writer] = {}
    for name, task in model.configs.items():
        given = cfg.model.tasks[name]
        identity = Identity.of(task, str(given.config), given.get('checkpoint') or '')
        stored = dict(meta=dict(dataset_meta=model.dataset_metas[name]))
        classes, colours = classes_and_colours(task, stored)
        settings = visualizer_of(task, f'predictions-{name}', alpha=0.6)
        visualizer = VISUALIZERS.build(settings)
        visualizer.dataset_meta = dict(classes=classes, palette=colours)
        writers[name] = files_of(task, visualizer, output.within(name, identity))
    if model.features:
        writers[FEATURES] = FeatureFiles(None, output.within(FEATURES), {})
    for writer in writers.values():
        writer.check(output.results, writer.out, output.wanted, sources)
    return TaskFiles(output.folder, writers)
