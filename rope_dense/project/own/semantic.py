"""Settings of configs/own/semantic.py applied to the recipe of UperNet."""

import torch

from ...utils.config_parts import nodes
from . import fit
from .data import OwnData
from .settings import OwnSemantic

# Share of dropped paths, decay of the learning rate from block to block: of configs/foundation.
SHARES = dict.fromkeys(('tiny', 'small', 'base'), (0.15, 0.75)) | {'large': (0.2, 0.9)}


def semantic_config(own: OwnSemantic, data: OwnData) -> dict:
    """The config of UperNet on a plain ViT for masks of class numbers."""
    # UperNet pools to one position; batch norms of several processes are synchronised on GPUs only.
    if own.images_each == 1 and (own.gpus == 1 or not torch.cuda.is_available()):
        raise ValueError(
            'own.batch_size=1: the pooling of UperNet normalises over the images of a batch; give '
            '2 or more, with a smaller own.size where memory is short'
        )
    cfg = fit.read_recipe('upernet_vit/upernet_vit-b_rope-mixed_8xb2-160k_ade20k-512x512.py')
    fit.resize_config(cfg, own.size / 512)
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
    return fit.finish_config(cfg, own, data)
