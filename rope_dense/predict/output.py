"""The files that a model's predictions are written to, by its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mmengine.config import Config
from mmengine.registry import VISUALIZERS
from mmengine.visualization import Visualizer

from ..models.shared_backbone import FEATURES, SharedBackbone
from ..project.identity import Identity
from ..project.model import classes_and_colours
from ..project.task import angle_version, task_of, visualizer_of
from .files import DepthFiles, DetectionFiles, FeatureFiles, SegmentationFiles, TaskFiles, Writer
from .journal import ImageJournal


@dataclass(frozen=True)
class Output:
    """The place of predictions, and what is written.

    Args:
        folder: for all files.
        settings: what the predictions depend on; JSON.
        min_score: detectors: of a box that is written.
        scores: segmentors: also write the probability of each class.
    """

    folder: Path
    settings: Mapping[str, Any]
    min_score: float = 0.3
    scores: bool = False

    def within(self, name: str, identity: Identity | None = None) -> Output:
        """The output of one of several tasks, in a folder of its own."""
        more = {} if identity is None else {name: identity.described()}
        return replace(self, folder=self.folder / name, settings={**self.settings, **more})

    def journal(self) -> ImageJournal:
        """The images that are done, by this run or an interrupted one."""
        return ImageJournal(self.folder, self.settings)


def files_of(cfg: Config, visualizer: Visualizer, output: Output) -> Writer:
    """The files of a model; the visualizer has its classes and colours."""
    meta, task, journal = visualizer.dataset_meta, task_of(cfg), output.journal()
    if task == 'depth':
        return DepthFiles(output.folder, journal)
    if task in ('boxes', 'oriented'):
        common = visualizer, output.folder, meta['classes'], output.min_score
        return DetectionFiles(*common, journal, angle_version(cfg))
    return SegmentationFiles(visualizer, output.folder, meta['palette'], output.scores, journal)


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
