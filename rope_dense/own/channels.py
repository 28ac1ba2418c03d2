"""Settings of configs/own for images of other channels than red, green and blue."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..checkpoints.channels import RGB
from ..datasets.images.band_files import band_header
from ..datasets.images.bands import LoadBands
from ..utils.config_parts import nodes
from ..utils.validation import is_integer
from .settings import Own
from .value_range import image_files

READ = 50  # training images at most, for mean and deviation
COLOUR_STEPS = ('PhotometricJitter', 'PhotoMetricDistortion')
LABEL_STEPS = ('LoadClassMask', 'LoadDepth')
MODULE = 'rope_dense.datasets.images.bands'
LEFT_OUT = 'colours of training: brightness, contrast and noise of each channel, no hue, saturation'


def fit_channels(cfg: dict, own: Own) -> None:
    """Let the pipelines load, and the model take, images of ``own.channels``, in place.

    Raises:
        ValueError: files of training images that differ or cannot be read; a channel is constant.
    """
    load = loading(own)
    files = sampled(training_images(cfg['train_dataloader']['dataset']))
    if files:
        load['dtype'] = band_header(LoadBands(**load).files(files[0])[0]).dtype
    mean, std, said = statistics(own, files, load)
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


def training_images(dataset: Mapping[str, Any]) -> list[Path]:
    """The images of a data set: those its COCO file lists, or those with a mask or depth map."""
    root = Path(dataset.get('data_root') or '')
    labels = root / (dataset.get('ann_file') or '')
    if labels.suffix == '.json' and labels.is_file():
        folder = root / (dataset['data_prefix'].get('img') or '')
        return [folder / x['file_name'] for x in json.loads(labels.read_text())['images']]
    return image_files(dataset)


def sampled(files: Sequence[Path]) -> list[Path]:
    """Up to 50 of the files, evenly."""
    files = sorted(files)
    return files[:: -(-len(files) // READ)] if files else []


def statistics(
    own: Own, files: Sequence[Path], load: Mapping[str, Any]
) -> tuple[list[float], list[float], str]:
    """Mean and deviation of each channel, and what to say of them.

    They are in the settings, or else found in the files; 0 and 1 without files. Missing pixels do
    not count.

    Raises:
        ValueError: a file cannot be read, has other bands, or a channel is constant in all.
    """
    number = load['channels']
    given = [own.mean, own.std]
    if all(given) or not files:
        mean, std = own.mean or [0.0] * number, own.std or [1.0] * number
        return [*mean], [*std], ''
    sums = np.zeros((3, number))  # of known pixels, values and squares
    loader = LoadBands(**load)
    for file in files:
        values: np.ndarray = loader.read(file)[0].reshape(-1, number).astype(np.float64)
        known = ~np.isnan(values)
        values = np.where(known, values, 0)
        sums += known.sum(0), values.sum(0), (values**2).sum(0)
    mean, square = sums[1:] / np.maximum(sums[0], 1)
    std = np.sqrt(np.maximum(square - mean**2, 0))
    flat = std <= 1e-6 * np.maximum(np.abs(mean), 1e-6)
    if flat.any():
        index = int(flat.argmax())
        raise ValueError(
            f'{files[0]}: channel {own.channel_names[index]} is constant, {mean[index]:g}, in all '
            f'{len(files)} images that were read: leave it out of own.channels'
        )
    found = [[float(f'{x:.5g}') for x in numbers] for numbers in (mean, std)]
    mean_list, std_list = [*(own.mean or found[0])], [*(own.std or found[1])]
    said = (
        f'{number} channels of {load["dtype"]}, mean {mean_list} and deviation {std_list} of '
        f'{len(files)} images'
    )
    return mean_list, std_list, said


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
