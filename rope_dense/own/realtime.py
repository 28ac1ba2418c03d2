"""Settings of configs/own/realtime*.py applied to the recipe of DEIMv2 on LingBot-Vision."""

import math

from mmengine.config import Config

from ..datasets.dense_stages import set_stages, with_masks
from ..utils.config_parts import nodes
from . import fit
from .data import OwnData
from .detection import fit_objects
from .settings import Own, OwnRealtime

# The recipe of a backbone; shares of its epochs: first augmentation, end of mosaics and MixUp, end
# of augmentation, late matching.
LARGEST = 'deim/deimv2-x_lingbot-b_4xb8-214k_coco.py', (4 / 58, 29 / 58, 50 / 58), 45 / 58
RECIPES = {
    'tiny': ('deim/deimv2-s_vit-t_4xb8-488k_coco.py', (4 / 132, 64 / 132, 120 / 132), 100 / 132),
    'small': ('deim/deimv2-l_lingbot-s_4xb8-251k_coco.py', (4 / 68, 34 / 68, 60 / 68), 50 / 68),
    'base': LARGEST,
    'large': LARGEST,
}
RECIPE_BATCH = 32
SHORT_RUN = 20_000  # images, each as often as it is trained on
SHORT_MAL_GAMMA = 1.0  # which suppresses duplicates sooner than the published 1.5; docs/realtime.md


def realtime(own: OwnRealtime, data: OwnData, metric: str = 'coco/bbox_mAP') -> dict:
    """The config of DEIMv2 on a plain ViT for boxes; ``metric`` chooses the best checkpoint."""
    name, shares, late = RECIPES[own.vit.scale]
    cfg = fit.read_recipe(name)
    fit_objects(cfg, own, data)
    fit_model(cfg, own)
    head, least = cfg['model']['bbox_head'], int(0.75 * own.size / 32) * 32 or 32
    if own.weights is None or own.epochs * data.images < SHORT_RUN:
        head['mal_gamma'] = SHORT_MAL_GAMMA
    # No more queries than the smallest square batch, of multi-scale training, has tokens of 8.
    head['num_queries'] = min(head['num_queries'], (least // 8) ** 2)
    cfg['model']['test_cfg']['max_per_img'] = head['num_queries']
    loaders = [cfg[f'{name}_dataloader'] for name in ('train', 'val', 'test')]
    for _, step in nodes([*loaders, cfg['tta_pipeline']]):
        if step.get('type') == 'Resize':
            scale = tuple(max(32, round(s * own.size / 640 / 32) * 32) for s in step['scale'])
            step.update(scale=scale, keep_ratio=own.keep_ratio)
        elif step.get('type') == 'AffineMosaic':  # it loads its images: a run resumes exactly
            step.update(part_size=own.size // 2, max_cached_images=0)
    loaders[0]['dataset']['type'] = 'MosaicCocoDataset'
    set_last_batch(loaders[0], own, data, 64 if own.augment == 'none' else 96)
    iterations = fit.set_schedule(cfg, own, data, RECIPE_BATCH, metric)
    fit_stages(cfg, own, iterations, shares, late)
    return fit.finished(cfg, own, data, own.mosaic)


def realtime_masks(own: OwnRealtime, data: OwnData) -> dict:
    """The same with ECSeg's head, costs and loss weights, for masks."""
    cfg = realtime(own, data, 'coco/segm_mAP')
    for augment in cfg['model']['data_preprocessor']['batch_augments']:
        if augment['type'] == 'MixUpCopyBlend':
            augment['copyblend_prob'] = 0.0  # as ECSeg: it would copy objects without their masks
    config = Config(cfg)
    config.merge_from_dict(with_masks(cfg, {}))
    return config.to_dict()


def set_last_batch(loader: dict, own: Own, data: OwnData, least_size: int) -> None:
    """Drop the last batch of an epoch, in place, where batch norm would see one value a channel.

    ValueError if each batch is so. ``least_size`` is the smallest ``size`` whose coarsest map, of
    stride 32, has several positions.
    """
    images = math.ceil(data.images / (own.gpus or 1)) if data.text else own.batch_size
    if own.size < least_size and 1 in (own.batch_size, images):
        raise ValueError(
            f'own.size={own.size} with one image in a batch: batch norm needs several positions; '
            f'give own.size={least_size} or more, or own.batch_size=2 or more with as many images'
        )
    loader['drop_last'] = own.size < least_size and images % own.batch_size == 1


def fit_model(cfg: dict, own: Own) -> None:
    """Set the backbone; random weights have the learning rate of the rest."""
    vit, model = own.vit, cfg['model']
    blocks = [vit.depth // 2 - 1, vit.depth * 3 // 4 - 1, vit.depth - 1]
    model['backbone'].update(arch=vit.arch, out_indices=blocks)
    model['neck']['in_channels'] = vit.channels
    fit.set_weights(cfg, own)
    if own.weights is None:
        cfg['optim_wrapper']['paramwise_cfg']['lr_mult'] = {}


def fit_stages(
    cfg: dict, own: Own, iterations: int, shares: tuple[float, float, float], late: float
) -> None:
    """Set the epochs of the augmentation, of the late matching and of the learning rate."""
    first = math.floor(shares[0] * own.epochs)
    flat = max(first + 1, round(shares[1] * own.epochs))
    last = max(flat + 1, round(shares[2] * own.epochs))
    stages = set_stages(
        cfg,
        cfg['model'],
        epochs=own.epochs,
        starts=(first, flat, last),
        late_epoch=min(own.epochs, max(flat, round(late * own.epochs))),
        repeat=cfg['model']['data_preprocessor']['batch_augments'][1]['repeat'],
        size=own.size,
        epoch_length=iterations // own.epochs,
    )
    cfg.update({name: stages[name] for name in ('train_dataloader', 'custom_hooks')})
    warmup, cosine = stages['param_scheduler']
    cfg['param_scheduler'] = ended(warmup, cosine, iterations)


def ended(warmup: dict, cosine: dict, iterations: int) -> list[dict]:
    """The schedulers of a rise, then flat, then a cosine, which ends with the training."""
    cosine['end'] = min(cosine['end'], iterations)
    cosine['T_max'] = cosine['end'] - cosine['begin']
    return [warmup, *([cosine] if cosine['T_max'] > 1 else [])]
