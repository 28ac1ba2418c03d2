"""A model in the inferencer of mmdet or mmseg, and its predictions for images."""

import contextlib
import copy
import io
import logging
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from mmengine.config import Config
from mmengine.infer import BaseInferencer
from mmengine.logging import MMLogger
from mmengine.structures import BaseDataElement

from ..datasets.images.bands import drop_predictions_without_data, find_load_bands, no_data
from ..integrations.hub_config import is_stored_config, registered_only
from ..project.checks.image_sizes import patch_size
from ..project.model import classes_and_colours
from ..project.ready import ready
from ..project.task import detects, visualizer_of
from ..project.weights import patch_mmengine_reader
from ..utils.config_parts import without_labels
from .thin import crop_sample, max_aspect_ratio, pad_to_ratio


def build_inferencer(cfg: Config, checkpoint: str | None, device: str) -> BaseInferencer:
    """The inferencer of mmdet or mmseg with the weights, and with the classes of their training.

    Args:
        checkpoint: None for a model of several tasks, which has weights and classes.

    Raises:
        UsageError, CheckpointError: the weights cannot be read, or do not fit.
    """
    patch_mmengine_reader()
    cfg = copy.deepcopy(cfg)  # the inferencers change pipelines
    cfg.visualizer = visualizer_of(cfg, 'predictions', alpha=0.6)
    cfg.load_from = None
    dataset = cfg.test_dataloader.dataset
    dataset.pipeline = without_labels(dataset.pipeline)
    if find_load_bands(dataset.pipeline):  # the inferencers look for a step of this name
        dataset.pipeline.insert(0, dict(type='LoadImageFromFile'))
    if detects(cfg):
        from mmdet.apis import DetInferencer as Inferencer
    else:
        from mmseg.apis import MMSegInferencer as Inferencer
    guard = registered_only() if is_stored_config(cfg) else contextlib.nullcontext()
    # Without weights: the inferencers read all of a file, and let any be missing.
    with guard, quiet_mmengine():
        inferencer = Inferencer(copy.deepcopy(cfg), None, device=device, scope=cfg.default_scope)
    inferencer.show_progress = False
    if checkpoint is None:
        inferencer.model.dataset_meta = dict(classes=(), palette=())
        return inferencer
    given = dict(weights=checkpoint, model=inferencer.model, has_runner=False, has_data=False)
    classes, colours = classes_and_colours(cfg, ready(cfg, 'test', **given).checkpoint)
    inferencer.model.dataset_meta = dict(classes=classes, palette=colours)
    inferencer.visualizer.dataset_meta = inferencer.model.dataset_meta
    return inferencer


@contextlib.contextmanager
def quiet_mmengine() -> Iterator[None]:
    """Within this context mmengine says nothing of its own business, such as a missing scope.

    Its logger may be older, with the terminal as it was then.
    """
    nowhere = io.StringIO()
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        logger = MMLogger.get_current_instance()
        level = logger.level
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)


def predict_batch(
    inferencer: BaseInferencer, images: Sequence[np.ndarray], batch: int
) -> list[BaseDataElement]:
    """The predictions for images (BGR), as data samples; thin images are padded, see ``thin``.

    Nothing is predicted where an image of any number of channels has no data
    (``drop_predictions_without_data``).
    ValueError for a prediction that is not finite.
    """
    if not images:
        return []
    pipeline = inferencer.cfg.test_dataloader.dataset.pipeline
    ratio = max_aspect_ratio(pipeline, patch_size(inferencer.model))
    given = [pad_to_ratio(image, ratio) for image in images]
    results = inferencer(given, batch_size=batch, return_datasamples=True)
    if isinstance(results, dict):  # of mmdet
        results = results['predictions']
    samples = results if isinstance(results, list) else [results]
    for image, whole, sample in zip(images, given, samples, strict=True):
        if not has_finite_values(sample):
            raise ValueError(
                'the prediction is not finite (NaN): the weights are damaged, or their training '
                'diverged'
            )
        if whole is not image:
            crop_sample(sample, image.shape[:2], whole.shape[:2])
        drop_predictions_without_data(sample, no_data(image))
    return samples


def has_finite_values(sample: BaseDataElement) -> bool:
    """Return whether all numbers of a prediction are finite."""
    for value in sample.values():
        if isinstance(value, BaseDataElement) and not has_finite_values(value):
            return False
        values = getattr(value, 'tensor', value)  # of rotated boxes
        if isinstance(values, torch.Tensor) and not values.isfinite().all():
            return False
    return True
