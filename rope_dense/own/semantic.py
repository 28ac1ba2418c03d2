"""Settings of configs/own/semantic.py applied to the recipe of UperNet."""

from __future__ import annotations

from collections.abc import Mapping

from ..datasets.own_data import (
    CLASSES_FILE,
    distinct_colour,
    find_masks,
    paired_files,
    read_classes,
)
from .common import (
    UNKNOWN,
    Own,
    as_folders,
    finished,
    fit_backbone,
    fit_schedule,
    read_recipe,
    resize,
    set_everywhere,
    settings_of,
    warm_up,
)

# Share of dropped paths, decay of the learning rate from block to block: of configs/foundation.
SEMANTIC = dict.fromkeys(('tiny', 'small', 'base'), (0.15, 0.75)) | {'large': (0.2, 0.9)}


def semantic(given: Mapping[str, object]) -> dict:
    """A config of UperNet on a plain ViT for masks of class numbers; see ``Own``.

    Raises:
        ValueError: a wrong setting, or data that cannot be used.
    """
    own = settings_of(Own, given)
    classes, palette, void = semantic_classes(own)
    folders, images = {name: ('images/train', 'masks/train') for name in ('train', 'val')}, 1
    if own.root.is_dir():
        for split in folders:
            folders[split] = find_masks(own.root, split, as_folders(split, getattr(own, split)))
        in_images, in_masks = folders['train']
        images = len(paired_files(own.root / in_images, own.root / in_masks))

    said = f'masks, {images} training images with a mask'
    cfg = read_recipe('upernet_vit/upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py')
    resize(cfg, own.size / 512)
    for name in ('train', 'val', 'test'):
        in_images, in_masks = folders['train' if name == 'train' else 'val']
        dataset = cfg[f'{name}_dataloader']['dataset']
        dataset.update(
            type='ImageMaskDataset',
            data_root=str(own.root),
            data_prefix=dict(img_path=in_images, seg_map_path=in_masks),
            void=void,
            metainfo=dict(classes=classes, palette=palette),
        )
    set_everywhere(cfg['model'], 'num_classes', len(classes))
    vit, model = own.vit, cfg['model']
    fit_backbone(cfg, own, *SEMANTIC[vit.scale])
    model['backbone']['out_indices'] = [vit.depth * part // 4 - 1 for part in (1, 2, 3, 4)]
    model['neck']['embed_dim'] = vit.channels
    model['decode_head'].update(in_channels=[vit.channels] * 4, channels=vit.channels)
    model['auxiliary_head']['in_channels'] = vit.channels
    iterations = fit_schedule(cfg, own, images, 16, 'mIoU')
    cfg['param_scheduler'] = [
        *warm_up(iterations),
        dict(type='PolyLR', by_epoch=False, power=1.0, eta_min=0.0, begin=0, end=iterations),
    ]
    cfg['custom_imports']['imports'].append('rope_dense.datasets.image_masks')
    cfg['own_data'] = said
    return finished(cfg, own)


def semantic_classes(own: Own) -> tuple[tuple[str, ...], list[tuple[int, int, int]], list[int]]:
    """Names and colours of the classes that are trained, and the numbers in masks that are not.

    Raises:
        ValueError: no class is named, or `void` names one that is not there.
    """
    file = own.root / CLASSES_FILE
    if own.classes:
        names = tuple(own.classes)
        colours = [distinct_colour(index) for index in range(len(names))]
    elif file.is_file():
        names, colours = read_classes(file)
    elif own.root.is_dir():
        raise ValueError(
            f'{file}: no such file. Write the names of the classes to it, a line for each number '
            'of the masks from 0, or give own.classes'
        )
    else:
        names, colours = (UNKNOWN, 'background'), [distinct_colour(0), distinct_colour(1)]
    given = [own.void] if isinstance(own.void, (int, str)) else own.void
    if unknown := [name for name in given if isinstance(name, str) and name not in names]:
        raise ValueError(f'own.void: {unknown[0]!r} is no class; there are {", ".join(names)}')
    void = [names.index(name) if isinstance(name, str) else name for name in given]
    kept = [index for index in range(len(names)) if index not in void]
    return tuple(names[i] for i in kept), [colours[i] for i in kept], void
