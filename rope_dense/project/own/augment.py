"""Augmentation of configs/own: published, light or none, with separate switches."""

from typing import Any

AUGMENTS = ('published', 'light', 'none')
FLIPS: dict[str, Any] = {
    'horizontal': dict(prob=0.5, direction='horizontal'),
    'vertical': dict(prob=0.5, direction='vertical'),
    'both': dict(prob=[0.25] * 3, direction=['horizontal', 'vertical', 'diagonal']),
}
LIGHT = (0.8, 1.25)  # range of the factor on the size of a test image


def fit_augmentation(
    cfg: dict, augment: str, flip: str | None, mosaic: bool | None
) -> None:
    """Set the training pipeline and the augmentation of batches, in place.

    'light' flips images and changes their size by ``LIGHT`` (by the resizing of batches where
    the recipe has it); 'none' loads them as in a test. Crops that give all images of a batch one
    size stay. ``mosaic`` is None for recipes that join no images.
    """
    dataset, preprocessor = (
        cfg['train_dataloader']['dataset'],
        cfg['model']['data_preprocessor'],
    )
    pipeline, batches = dataset['pipeline'], preprocessor.get('batch_augments')
    if augment != 'published':
        tested = cfg['test_dataloader']['dataset']['pipeline']
        resize = dict(next(step for step in tested if kind(step) == 'Resize'))
        crops = [step for step in pipeline if kind(step) == 'RandomCrop']
        if augment == 'light' and resize['keep_ratio'] and not batches:
            scope = resize['type'].removesuffix('Resize')
            if scope:  # else it builds the Resize of the config's own scope
                resize['resize_type'] = resize['type']
            resize.update(ratio_range=LIGHT, type=f'{scope}RandomResize')
        if augment == 'none' and cfg['default_scope'] != 'mmseg':
            crops = []  # a batch of a detector is padded to its largest image
        flips = [
            step
            for step in pipeline
            if kind(step) == 'RandomFlip' and augment == 'light'
        ]
        loads = [
            step for step in pipeline if kind(step).startswith(('Load', 'Convert'))
        ]
        filters = [step for step in pipeline if kind(step) == 'FilterAnnotations'][-1:]
        pipeline = [*loads, *flips, resize, *crops, *filters, pipeline[-1]]
        dataset['pipeline'] = pipeline
    if batches is not None and (augment != 'published' or mosaic is False):
        batches = [
            b for b in batches if b['type'] != 'MixUpCopyBlend' and augment != 'none'
        ]
        preprocessor['batch_augments'] = batches
    if mosaic is False:  # the other branch of the choice between a mosaic and none
        for stage in pipeline:
            for steps in stage['transforms'] if stage['type'] == 'StageByEpoch' else ():
                for index, step in enumerate(steps):
                    if step['type'] == 'RandomChoice':
                        steps[index : index + 1] = step['transforms'][1]
    if flip is not None:  # in the place of the recipe's, or last but one
        places = [i for i, step in enumerate(pipeline) if kind(step) == 'RandomFlip']
        place = places[0] if places else len(pipeline) - 1
        name = pipeline[place]['type'] if places else 'RandomFlip'
        steps = [] if flip == 'none' else [dict(type=name, **FLIPS[flip])]
        pipeline[place : place + len(places)] = steps


def kind(step: dict) -> str:
    """The type of a part of a config without its scope."""
    return str(step.get('type')).rpartition('.')[2]


def all_pipelines(cfg: dict) -> list[list[dict]]:
    """The pipelines of a config: training, validation, test and, where there are any, views."""
    loaders = [
        cfg[f'{name}_dataloader']['dataset'] for name in ('train', 'val', 'test')
    ]
    return [
        *(dataset['pipeline'] for dataset in loaders),
        cfg.get('tta_pipeline') or [],
    ]
