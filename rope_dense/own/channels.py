"""Settings of configs/own for images of other channels than red, green and blue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..checkpoints.channels import RGB
from ..utils.config_parts import nodes
from .settings import Own

COLOUR_STEPS = ('PhotometricJitter', 'PhotoMetricDistortion', 'RandomColourGain')
LABEL_STEPS = ('LoadClassMask', 'LoadDepth')
MODULE = 'rope_dense.datasets.images.bands'
LEFT_OUT = 'colours of training: brightness, contrast and noise of each channel, no hue, saturation'


def fit_channels(cfg: dict, own: Own, survey: Mapping[str, Any]) -> None:
    """Let the pipelines load, and the model take, images of ``own.channels``, in place.

    Args:
        survey: of ``survey_channels``.
    """
    load, mean, std = survey['load'], survey['mean'], survey['std']
    loaders = [cfg[f'{name}_dataloader']['dataset'] for name in ('train', 'val', 'test')]
    for pipeline in [*(data['pipeline'] for data in loaders), cfg.get('tta_pipeline') or []]:
        for _, step in nodes(pipeline):
            fit_step(step, dict(type='LoadBands', **load))
        for place in reversed(range(len(pipeline))):
            if pipeline[place]['type'] in LABEL_STEPS:
                pipeline.insert(place + 1, dict(type='IgnoreNoData'))
    # The source of each channel in RGB weights: colours by their names, else the mean.
    names = own.channel_names
    has_colours = {*RGB} <= {*names}
    sources = [name if name in RGB else 0 for name in names] if has_colours else 'mean'
    model, preprocessor = cfg['model'], cfg['model']['data_preprocessor']
    kind = preprocessor['type'].rpartition('.')[2]
    preprocessor.update(type=f'Channel{kind}', mean=[*mean], std=[*std], bgr_to_rgb=False)
    model['backbone']['in_channels'] = len(mean)
    if model['backbone'].get('init_cfg'):
        model['backbone']['init_cfg']['channels'] = sources
    for _, part in nodes(model):
        if part.get('type') == 'SpatialTuningAdapter':
            part['image_channels'] = len(mean)
    cfg['load_channels'] = sources
    cfg['custom_imports']['imports'].append(MODULE)
    said = [cfg.get('own_data'), survey['text'], LEFT_OUT]
    cfg['own_data'] = '; '.join(filter(None, said))


def fit_step(step: dict, load: Mapping[str, Any]) -> None:
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
