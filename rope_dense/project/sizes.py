"""Image sizes of test pipelines."""

import copy

from mmengine.config import Config, ConfigDict
from mmengine.utils import to_2tuple

from ..utils.config_parts import nodes, pipelines, size_steps
from ..utils.sizes import ImageSize
from ..utils.validation import is_integer


def at_size(config: Config, size: int | ImageSize) -> Config:
    """A copy of a config that tests at another size.

    Every step of the test pipeline with a `scale` gets the new one and keeps its `keep_ratio`.

    Args:
        size: the shorter side in pixels, the longer one (or its limit) grows by the same factor; or
            height and width, which bound the image with `keep_ratio`.

    Raises:
        ValueError: no step has a `scale`, or a step does not allow the new one.
    """
    config = copy.deepcopy(config)
    for step in resize_steps(config):
        if isinstance(size, tuple):
            if 'max_size' in step:
                raise ValueError(f'{step.type} takes a shorter side only, not height and width')
            step.scale = size[::-1]
        elif isinstance(step.scale, int):
            if 'max_size' in step:
                step.max_size = round(step.max_size * size / step.scale)
            step.scale = size
        else:
            step.scale = tuple(round(side * size / min(step.scale)) for side in step.scale)
    return config


def resize_steps(config: Config) -> list[ConfigDict]:
    """The steps of test pipelines that resize; ValueError for none, or a pad to a fixed size."""
    steps = [step for steps in pipelines(config.test_dataloader.dataset) for step in steps]
    for step in steps:
        if step.type == 'Pad' and step.get('size'):
            raise ValueError(
                f'test pipeline: Pad(size={step.size}) fixes the size of the images; pad to a '
                'multiple with size_divisor instead'
            )
    if resizes := [step for _, step, _ in size_steps(steps)]:
        return resizes
    raise ValueError(f'test pipeline of {config.filename}: no step has a `scale`, add a Resize')


def configured_size(config: Config) -> ImageSize:
    """Height and width of a config's test images; their bounds with `keep_ratio`."""
    scale = resize_steps(config)[0].scale
    return (scale, scale) if isinstance(scale, int) else (scale[1], scale[0])


def trained_size(config: Config) -> ImageSize:
    """Height and width of the images that the weights of a config's training last saw.

    They are of the last step of the training's pipeline that has a size in pixels, the largest by
    its shorter side; or, where none has, of the test images.
    """
    dataset = (config.get('train_dataloader') or {}).get('dataset') or {}
    sizes = [size for _, step in nodes([*pipelines(dataset)]) if (size := largest_size(step))]
    return sizes[-1] if sizes else configured_size(config)


def largest_size(step: ConfigDict) -> ImageSize | None:
    """The size (height, width) in pixels that a step crops or resizes to, the largest; or None."""
    scales = step.get('scales') or [step.get('scale')]
    if isinstance(scales[0], (tuple, list)) and isinstance(scales[0][0], (tuple, list)):
        scales = scales[0]  # a range
    order = sorted if step.get('keep_ratio') else reversed  # bounds, or (width, height)
    sizes = [tuple(order(to_2tuple(scale))) for scale in scales if scale is not None]
    if step.get('crop_type', 'absolute') == 'absolute':
        sizes.append(to_2tuple(step.get('crop_size')))
    pixels = [size for size in sizes if all(is_integer(side) and side > 1 for side in size)]
    return max(pixels, key=min, default=None)
