"""Augmentation of configs/own: published, light or none, with separate switches."""

from collections.abc import Sequence
from typing import Any

from ...utils.config_parts import LOADERS, kind, nodes

AUGMENTS = ('published', 'light', 'none')
FLIPS: dict[str, Any] = {
    'horizontal': dict(prob=0.5, direction='horizontal'),
    'vertical': dict(prob=0.5, direction='vertical'),
    'both': dict(prob=[0.25] * 3, direction=['horizontal', 'vertical', 'diagonal']),
}
FEW = 3  # classes of one digit or letter, from which on they are taken for such
LIGHT = (0.8, 1.25)  # range of the factor on the size of a test image


def fit_augmentation(
    cfg: dict, augment: str, flip: str | None, mosaic: bool | None
) -> None:
    """Set the training pipeline and the augmentation of batches, in place.

    'light' flips images and changes their size by ``LIGHT`` (by the resizing of batches where
    the recipe has it); 'none' loads them as in a test. Crops that give all images of a batch one
    size stay. ``mosaic`` is None for recipes that join no images.
    """
    dataset = cfg['train_dataloader']['dataset']
    preprocessor = cfg['model']['data_preprocessor']
    batches = preprocessor.get('batch_augments')
    if augment != 'published':
        dataset['pipeline'] = _few_steps(cfg, augment, not batches)
    if batches is not None and (augment != 'published' or mosaic is False):
        kept = [] if augment == 'none' else batches
        kept = [batch for batch in kept if batch['type'] != 'MixUpCopyBlend']
        preprocessor['batch_augments'] = kept
    pipeline = dataset['pipeline']
    if mosaic is False:  # the other branch of the choice between a mosaic and none
        for stage in pipeline:
            for steps in stage['transforms'] if stage['type'] == 'StageByEpoch' else ():
                for index, step in enumerate(steps):
                    if step['type'] == 'RandomChoice':
                        steps[index : index + 1] = step['transforms'][1]
    if flip is None:
        return
    kinds = [*map(kind, pipeline)]
    place = len(pipeline) - 1  # last but one
    step = dict(type='RandomFlip')
    if 'RandomFlip' in kinds:
        place = kinds.index('RandomFlip')
        step = dict(type=pipeline.pop(place)['type'])
    if flip != 'none':
        pipeline.insert(place, step | FLIPS[flip])


def mirrored_text(cfg: dict, classes: Sequence[str]) -> str:
    """What is said of classes that the training's mirror exchanges; '' without such."""
    said = []
    names = [name.lower() for name in classes]
    for name in names:
        other = name.replace('left', 'right')
        if other != name and other in names:
            said.append(f'{name} and {other}')
    letters = [name for name in classes if len(name) == 1 and name.isalnum()]
    if len(letters) >= FEW:
        said.append(f'{letters[0]} and other digits or letters')
    for _, step in nodes(cfg['train_dataloader']['dataset']['pipeline']):
        is_flip = kind(step) == 'RandomFlip'
        if said and is_flip and 'horizontal' in step.get('direction', 'horizontal'):
            return f'images are mirrored: own.flip=none if that changes {said[0]}'
    return ''


def _few_steps(cfg: dict, augment: str, are_batches_plain: bool) -> list[dict]:
    """The steps of the training pipeline that are left of it by 'light' or 'none'."""
    pipeline = cfg['train_dataloader']['dataset']['pipeline']
    tested = cfg['test_dataloader']['dataset']['pipeline']
    resize = dict(tested[[*map(kind, tested)].index('Resize')])
    has_crops = augment == 'light' or cfg['default_scope'] == 'mmseg'
    if augment == 'light' and resize['keep_ratio'] and are_batches_plain:
        scope = resize['type'].removesuffix('Resize')
        if scope:  # else it builds the Resize of the config's own scope
            resize['resize_type'] = resize['type']
        resize.update(ratio_range=LIGHT, type=f'{scope}RandomResize')
    loads = []
    flips = []
    crops = []
    filters = []
    for step in pipeline:
        name = kind(step)
        if name.startswith(('Load', 'Convert')):
            loads.append(step)
        elif name == 'RandomFlip' and augment == 'light':
            flips.append(step)
        elif (
            name == 'RandomCrop' and has_crops
        ):  # else batches of a detector are padded
            crops.append(step)
        elif name == 'FilterAnnotations':
            filters = [step]  # the last one
    return [*loads, *flips, resize, *crops, *filters, pipeline[-1]]


def all_pipelines(cfg: dict) -> list[list[dict]]:
    """The pipelines of a config: training, validation, test and, where there are any, views."""
    found = [cfg[name]['dataset']['pipeline'] for name in LOADERS]
    return [*found, cfg.get('tta_pipeline') or []]
