"""Settings of configs/own/semantic.py applied to the recipe of UperNet."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from ...datasets.classes import (
    CLASS_NUMBERS,
    CLASSES_FILE,
    Colour,
    find_class_numbers,
    read_classes,
)
from ...datasets.labels.maps import MASKS, find_maps
from ...datasets.labels.splits import WORDS
from ...datasets.mask_labels import label_map, mask_lines, survey_masks
from ...utils.config_parts import nodes
from . import fit
from .data import OwnData, check_root, colours_of, find_own_maps, own_inventory
from .settings import OwnSemantic

# Share of dropped paths, decay of the learning rate from block to block: of configs/foundation.
SHARES = dict.fromkeys(('tiny', 'small', 'base'), (0.15, 0.75)) | {'large': (0.2, 0.9)}


def semantic(own: OwnSemantic, data: OwnData) -> dict:
    """The config of UperNet on a plain ViT for masks of class numbers."""
    # UperNet pools to one position; batch norms of several processes are synchronised on GPUs only.
    if own.batch_size == 1 and (own.gpus == 1 or not torch.cuda.is_available()):
        raise ValueError(
            'own.batch_size=1: the pooling of UperNet normalises over the images of a batch; give '
            '2 or more, with a smaller own.size where memory is short'
        )
    cfg = fit.read_recipe('upernet_vit/upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py')
    fit.resize(cfg, own.size / 512)
    data.apply(cfg)
    datasets = [cfg[f'{name}_dataloader']['dataset'] for name in ('train', 'val', 'test')]
    for dataset in datasets:
        dataset['type'] = 'ImageMaskDataset'
    for _, step in nodes([*datasets, cfg['tta_pipeline']]):
        if step.get('type') == 'LoadAnnotations':
            step.clear()
            step['type'] = 'LoadClassMask'
    fit.set_everywhere(cfg['model'], 'num_classes', len(data.classes))
    model, channels = cfg['model'], own.vit.channels
    fit.set_backbone(cfg, own, *SHARES[own.vit.scale])
    model['backbone']['out_indices'] = own.vit.quarters
    model['neck']['embed_dim'] = model['auxiliary_head']['in_channels'] = channels
    model['decode_head'].update(in_channels=[channels] * 4, channels=channels)
    iterations = fit.set_schedule(cfg, own, data, 16, 'mIoU')
    decay = dict(type='PolyLR', by_epoch=False, power=1.0, eta_min=0.0, begin=0, end=iterations)
    cfg['param_scheduler'] = [*fit.warm_up(iterations), decay]
    cfg['custom_imports']['imports'].append('rope_dense.datasets.masks')
    return fit.finished(cfg, own, data)


def find_semantic(own: OwnSemantic) -> OwnData:
    """The images and masks of a data set, and its classes.

    Where the folder is not there, but ``own.classes`` says the classes, one training image is
    assumed, so that a recipe can be read without its data. ValueError for folders, masks or names
    of classes that are not there, or cannot be used.
    """
    if not own.classes or own.root.exists():
        check_root(own)
    try:
        classes, palette, numbers = trained_classes(own)
    except ValueError:
        if own.root.is_dir():  # a wrong folder lacks classes.txt, too
            find_maps(own_inventory(own), MASKS, dict(train=own.train, val=own.val))
        raise
    if not own.root.is_dir():
        absent = dict(img_path='images', seg_map_path='masks')
        files = dict(data_root=str(own.root), data_prefix=absent, ann_file='', **numbers)
        return OwnData(dict.fromkeys(WORDS, files), classes, palette, 1, '')
    labels = label_map(classes, numbers['values'], numbers['void'] or ())
    data = find_own_maps(
        own,
        MASKS,
        lambda pairs, split: survey_masks(pairs, split, labels, classes),
        lambda survey: mask_lines(survey, classes),
        (classes, numbers),
        'seg_map_path',
        **numbers,
    )
    return replace(data, classes=classes, palette=palette)


def trained_classes(
    own: OwnSemantic,
) -> tuple[tuple[str, ...], list[Colour], dict[str, list[int] | None]]:
    """Names and colours of the trained classes, and ``void`` and ``values`` of their masks."""
    names, colours, values = named_classes(own)
    listed = ', '.join(names)
    if values is not None and len(values) != len(names):
        raise ValueError(
            f'own.values={[*values]}: give a number for each of the {len(names)} classes, {listed}'
        )
    numbers = range(len(names)) if values is None else values
    if unknown := [name for name in own.void if isinstance(name, str) and name not in names]:
        raise ValueError(f'own.void: {unknown[0]!r} is no class; there are {listed}')
    void = [numbers[names.index(name)] if isinstance(name, str) else name for name in own.void]
    kept = [index for index in range(len(names)) if numbers[index] not in void]
    if not kept:
        raise ValueError(f'own.void={[*own.void]}: no class is left of {listed}')
    trained, palette = tuple(names[index] for index in kept), [colours[index] for index in kept]
    own_values = None if values is None else [values[index] for index in kept]
    return trained, palette, dict(void=void, values=own_values)


def named_classes(
    own: OwnSemantic,
) -> tuple[Sequence[str], Sequence[Colour], Sequence[int] | None]:
    """Names and colours of all classes, and their numbers in masks if not 0, 1, 2 ..."""
    file, given, values = own.root / CLASSES_FILE, own.classes, own.values
    if file.is_file():
        names, colours = read_classes(file)
    elif found := find_class_numbers(own.root):  # Roboflow's
        file, (names, numbers) = own.root / CLASS_NUMBERS, found
        colours, values = colours_of(names), numbers if values is None else values
    elif given:
        return given, colours_of(given), values
    else:
        raise ValueError(
            f'{file}: no such file. Write the names of the classes to it, a line for each number '
            'of the masks from 0, or give own.classes'
        )
    if not given or [*given] == [*names]:
        return names, colours, values
    lines: Sequence[int] = range(len(given))
    if own.values is not None and {*own.values} == {*range(len(names))}:
        lines = own.values
    pairs = zip(given, lines, strict=False)  # own.values of another length are refused later
    moved = any(name in names and names.index(name) != line for name, line in pairs)
    has_lines = own.values is None or file.name == CLASSES_FILE
    if has_lines and (moved or {*given} < {*names}):
        raise ValueError(
            f'own.classes={[*given]}, and {file.name} of {own.root} has {", ".join(names)}: '
            'names are in the order of the numbers in the masks, so leave own.classes out or mend '
            'the file; own.void leaves classes out'
        )
    return given, colours_of(given, dict(zip(names, colours, strict=True))), own.values
