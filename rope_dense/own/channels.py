"""Settings of configs/own for images of other channels than red, green and blue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..checkpoints.channels import RGB
from ..utils.config_parts import nodes
from ..utils.validation import is_integer
from .channel_data import READ, check_headers, images_of, sampled, statistics
from .settings import Own

COLOUR_STEPS = ('PhotometricJitter', 'PhotoMetricDistortion', 'RandomColourGain')
LABEL_STEPS = ('LoadClassMask', 'LoadDepth')
MODULE = 'rope_dense.datasets.images.bands'
LEFT_OUT = 'colours of training: brightness, contrast and noise of each channel, no hue, saturation'


def fit_channels(cfg: dict, own: Own) -> None:
    """Let the pipelines load, and the model take, images of ``own.channels``, in place.

    Raises:
        ValueError: see ``check_headers`` and ``statistics``.
    """
    load = loading(own)
    train, val = (images_of(cfg[f'{name}_dataloader']['dataset']) for name in ('train', 'val'))
    if train:
        check_headers(own, [*train, *val], load)
    mean, std, said = statistics(own, sampled(train, READ), load)
    load['fill'] = mean
    fit_pipelines(cfg, dict(type='LoadBands', **load))
    fit_model(cfg['model'], own, mean, std)
    cfg['load_channels'] = sources(own)
    cfg['custom_imports']['imports'].append(MODULE)
    cfg['own_data'] = '; '.join(filter(None, [cfg.get('own_data'), said, LEFT_OUT]))


def loading(own: Own) -> dict[str, Any]:
    """The arguments of ``LoadBands`` that follow from settings alone."""
    names, chosen = own.channel_names, own.channels
    is_choice = isinstance(chosen, Sequence) and all(map(is_integer, chosen))
    return dict(
        channels=len(names),
        bands=[*chosen] if is_choice else None,  # type: ignore[misc]
        names=[*names] if own.separate_files else None,
        show=shown_channels(own),
    )


def shown_channels(own: Own) -> list[int]:
    """The channels, from 0, that are red, green and blue of a picture."""
    names = own.channel_names
    if own.show is not None:
        numbers = [x - 1 if is_integer(x) else names.index(str(x)) for x in own.show]
        return numbers * 3 if len(numbers) == 1 else numbers
    if {*RGB} <= {*names}:
        return [names.index(name) for name in RGB]
    return [0, 1, 2] if len(names) > 2 else [0, 0, 0]


def fit_pipelines(cfg: dict, load: dict) -> None:
    """Replace what reads images and changes colours in all pipelines, in place."""
    loaders = [cfg[f'{name}_dataloader']['dataset'] for name in ('train', 'val', 'test')]
    pipelines = [*(dataset['pipeline'] for dataset in loaders), cfg.get('tta_pipeline') or []]
    for pipeline in pipelines:
        for _, step in nodes(pipeline):
            fit_step(step, load)
        for place in reversed(range(len(pipeline))):
            if pipeline[place]['type'] in LABEL_STEPS:
                pipeline.insert(place + 1, dict(type='IgnoreNoData'))


def fit_step(step: dict, load: dict) -> None:
    """Fit one step of a pipeline, in place."""
    name = str(step.get('type')).rpartition('.')[2]
    if name == 'LoadImageFromFile':
        step.clear()
        step.update(load)
    elif name in COLOUR_STEPS:
        step.clear()
        step['type'] = 'BandJitter'
    elif name == 'AffineMosaic':
        step['load'] = dict(load)
    elif name == 'Expand':  # its black is far from any value of some channels
        step['mean'] = load['fill']
    if step.get('backend') == 'pillow':
        del step['backend']


def sources(own: Own) -> str | list[str | int]:
    """The source of each channel in RGB weights: colours by their names, else the mean."""
    names = own.channel_names
    return [name if name in RGB else 0 for name in names] if {*RGB} <= {*names} else 'mean'


def fit_model(model: dict, own: Own, mean: Sequence[float], std: Sequence[float]) -> None:
    """Set the channels of preprocessor, backbone and weights, in place."""
    preprocessor, number = model['data_preprocessor'], len(mean)
    kind = preprocessor['type'].rpartition('.')[2]
    preprocessor.update(type=f'Channel{kind}', mean=[*mean], std=[*std], bgr_to_rgb=False)
    model['backbone']['in_channels'] = number
    if model['backbone'].get('init_cfg'):
        model['backbone']['init_cfg']['channels'] = sources(own)
    for _, part in nodes(model):
        if part.get('type') == 'SpatialTuningAdapter':
            part['image_channels'] = number
