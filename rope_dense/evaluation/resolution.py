"""The same weights at several resolutions."""

import copy
from pathlib import Path

from mmengine.config import Config
from mmengine.runner import Runner


def evaluate_at(config: Config, checkpoint: str | Path, size: tuple[int, int]) -> dict[str, float]:
    """Test a checkpoint with the images of the test data resized to `size`.

    Whether proportions are kept and everything else, window sizes included, is as the config says.
    COCO metrics are taken in the coordinates of the images on disk: an object keeps its size class
    (small: under 32 x 32 pixels) unless the images themselves were made at another size.

    Args:
        config: of a detector or of a segmentor; it is not changed.
        size: height and width in pixels.

    Returns:
        The metrics of Runner.test, and `seconds_per_image` (data loading included).

    Raises:
        ValueError: if no step of the test pipeline has a `scale` to set.
    """
    height, width = size
    config = copy.deepcopy(config)
    pipeline = config.test_dataloader.dataset.pipeline
    resizes = [step for step in pipeline if 'scale' in step]
    if not resizes:
        raise ValueError(
            f'test pipeline of {config.filename}: no step has a `scale`, add a Resize to it'
        )
    for step in resizes:
        step.scale = (width, height)
    # mmengine finds loggers and visualizers by name: a new name keeps this run out of earlier logs.
    config.experiment_name = f'test_{height}x{width}'
    if 'visualizer' in config:
        config.visualizer.name = config.experiment_name
    config.load_from = str(checkpoint)
    config.resume = False
    runner = Runner.from_cfg(config)
    metrics = runner.test()
    seconds = runner.message_hub.get_scalar('test/time').mean() / config.test_dataloader.batch_size
    return dict(metrics, seconds_per_image=float(seconds))
