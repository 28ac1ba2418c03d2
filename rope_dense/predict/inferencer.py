"""A model in the inferencer of mmdet or mmseg, and its predictions for images.

Of an image so long and thin that its test pipeline leaves less than two patches of one side, the
last row or column is repeated; the results of the repeated pixels are cut off.
"""

import contextlib
import copy
import io
import logging
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np
import torch
from mmengine.config import Config
from mmengine.infer import BaseInferencer
from mmengine.logging import MMLogger
from mmengine.structures import BaseDataElement, InstanceData, PixelData

from ..data.ground import name_file
from ..data.images.bands import drop_predictions_without_data, find_load_bands, no_data
from ..project.checks.data import patch_size
from ..project.contents import detects, max_aspect_ratio, visualizer_of
from ..project.hub_config import is_stored_config, registered_only
from ..project.model import classes_and_colours
from ..project.ready import ready
from ..project.weights import patch_mmengine_reader
from ..utils.config_parts import keeps_ratio, without_labels
from ..utils.sizes import ImageSize

MOST_PIXELS = 10**8  # of a padded image


def build_inferencer(
    cfg: Config, checkpoint: str | None, device: str
) -> BaseInferencer:
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
    if find_load_bands(dataset.pipeline):
        # The inferencers look for a step of this name.
        dataset.pipeline.insert(0, dict(type='LoadImageFromFile'))
    if detects(cfg):
        from mmdet.apis import DetInferencer as Inferencer
    else:
        from mmseg.apis import MMSegInferencer as Inferencer
    guard = registered_only() if is_stored_config(cfg) else contextlib.nullcontext()
    # Without weights: the inferencers read all of a file, and let any be missing.
    with guard, quiet_mmengine():
        inferencer = Inferencer(
            copy.deepcopy(cfg), None, device=device, scope=cfg.default_scope
        )
    inferencer.show_progress = False
    model = inferencer.model
    if checkpoint is None:
        model.dataset_meta = dict(classes=(), palette=())
        return inferencer
    given = dict(weights=checkpoint, model=model, has_runner=False, has_data=False)
    classes, colours = classes_and_colours(cfg, ready(cfg, 'test', **given).checkpoint)
    model.dataset_meta = dict(classes=classes, palette=colours)
    inferencer.visualizer.dataset_meta = model.dataset_meta
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
    inferencer: BaseInferencer,
    images: Sequence[np.ndarray],
    batch: int,
    files: Sequence[Path | None] = (),
) -> list[BaseDataElement]:
    """The predictions for images (BGR), as data samples; thin images are padded.

    Images of several shapes, where these are kept, are predicted one by one: see ``keeps_ratio``.
    So are all with positions in metres, for which ``files`` has the file of each.

    Nothing is predicted where an image of any number of channels has no data
    (``drop_predictions_without_data``).
    ValueError for a prediction that is not finite.
    """
    if not images:
        return []
    is_read = name_file(inferencer.pipeline, files[0] if files else None)
    if is_read and len(files) > 1:
        found = []
        for image, file in zip(images, files, strict=True):
            found += predict_batch(inferencer, [image], 1, [file])
        return found
    pipeline = inferencer.cfg.test_dataloader.dataset.pipeline
    ratio = max_aspect_ratio(pipeline, patch_size(inferencer.model))
    given = [pad_to_ratio(image, ratio) for image in images]
    if keeps_ratio(pipeline) and len({image.shape for image in given}) > 1:
        batch = 1
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


def pad_to_ratio(image: np.ndarray, ratio: float) -> np.ndarray:
    """An image [H, W, 3], or one whose last row or column is repeated until the ratio is kept.

    Raises:
        ValueError: it would need too much memory.
    """
    height, width = image.shape[:2]
    least = math.ceil(max(height, width) / ratio)
    below = max(0, least - height)
    right = max(0, least - width)
    if not below and not right:
        return image
    pixels = (height + below) * (width + right)
    if pixels > MOST_PIXELS:
        raise ValueError(
            f'{width} x {height} pixels are too thin: padded, they would be {pixels / 1e6:.0f} '
            'megapixels; cut the image into parts'
        )
    return cv2.copyMakeBorder(image, 0, below, 0, right, cv2.BORDER_REPLICATE)


def crop_sample(sample: BaseDataElement, size: ImageSize, whole: ImageSize) -> None:
    """Cut a prediction to ``size`` at the top left of its image of the size ``whole``, in place."""
    sample.set_metainfo(dict(ori_shape=size))
    for name, value in sample.items():
        if isinstance(value, PixelData):  # of pixels, or of patches
            height, width = value.shape
            rows = math.ceil(height * size[0] / whole[0])
            columns = math.ceil(width * size[1] / whole[1])
            setattr(sample, name, value[:rows, :columns])
        elif name == 'pred_instances':
            sample.pred_instances = crop_instances(value, size)
        elif isinstance(value, BaseDataElement) and not isinstance(value, InstanceData):
            crop_sample(value, size, whole)  # of one of several tasks


def crop_instances(instances: InstanceData, size: ImageSize) -> InstanceData:
    """The objects in the top left of an image, without what is outside of it."""
    height, width = size
    boxes = getattr(instances.bboxes, 'tensor', instances.bboxes)
    if boxes.shape[1] == 4:
        most = boxes.new_tensor([width, height, width, height])
        instances.bboxes = torch.minimum(boxes, most)
        inside = (instances.bboxes[:, 2:] > instances.bboxes[:, :2]).all(1)
    else:  # rotated, with the centre first
        inside = (boxes[:, :2] < boxes.new_tensor([width, height])).all(1)
    if 'masks' in instances:
        instances.masks = instances.masks[:, :height, :width]
        inside = instances.masks.flatten(1).any(1)
    return instances[inside]
