"""Check the schedule and the initial weights of a training run."""

import sys

from mmengine.config import Config, ConfigDict
from mmengine.optim.scheduler.param_scheduler import INF
from torch import nn

from ...backbones.base import Backbone
from ...utils.config_parts import nodes
from ...utils.validation import checked_size
from ..errors import UsageError
from ..own.settings import started_processes
from ..parts import datasets_of, scheduler_settings

SMALL_LAYER_SCALE = 1e-3
SMALL_SHARE = 0.05  # of the parameters of a backbone: a fixed table of positions, say
RANDOM = 'the backbone has random weights and'


def warn_of_random_weights(cfg: Config, model: nn.Module) -> None:
    """Warn of a backbone with random weights that is frozen or hidden by a small LayerScale.

    Or whose crops differ in size from ``img_size``, the reference of position scalings.
    """
    backbone = getattr(model, 'backbone', None)
    starts_from = cfg.get('load_from') or (cfg.model.get('backbone') or {}).get('init_cfg')
    if backbone is None or starts_from:
        return
    if isinstance(backbone, Backbone):
        scale = first_layer_scale(backbone)
        if scale is not None and scale <= SMALL_LAYER_SCALE:
            warn(
                f'{RANDOM} a LayerScale of {scale:.0e}, which hides its blocks, and so position, '
                'in a short training: set model.backbone.layer_scale_init_value=1.0'
            )
        crops, patch = training_crops(cfg), backbone.patch_embed.patch_size
        height, width = (side * patch for side in backbone.pretrain_grid)
        if backbone.is_isotropic and len(crops) == 1 and (crop := crops.pop()) != (height, width):
            warn(
                f'{RANDOM} trains on crops of {crop[0]} x {crop[1]} pixels, but rope_scaling is '
                f'relative to an img_size of {height} x {width}: set model.backbone.img_size={crop}'
            )
    fixed = sum(param.numel() for param in backbone.parameters() if not param.requires_grad)
    if fixed > SMALL_SHARE * sum(param.numel() for param in backbone.parameters()):
        warn(
            f'{fixed:,d} backbone parameters are frozen (frozen_stages or lora) and have random '
            'weights: set model.backbone.init_cfg or --load-from'
        )


def training_crops(cfg: Config) -> set[tuple[int, int]]:
    """The sizes (height, width) of crops that a training takes in pixels."""
    loader = cfg.get('train_dataloader')
    datasets = datasets_of(cfg, 'train_dataloader') if loader else ()
    return {
        checked_size('crop_size', step.crop_size)
        for _, dataset in datasets
        for _, step in nodes(dataset.get('pipeline'))
        if step.get('type') == 'RandomCrop' and step.get('crop_type', 'absolute') == 'absolute'
    }


def warn(text: str) -> None:
    """Print a warning."""
    print(f'warning: {text}', file=sys.stderr)


def first_layer_scale(backbone: Backbone) -> float | None:
    """The initial LayerScale of its first block; None without one."""
    return getattr(backbone.ordered_blocks[0], 'layer_scale_init_value', None)


def check_schedule(cfg: Config) -> None:
    """Raise UsageError for schedulers, a first validation or checkpoint behind the end."""
    loop = cfg.train_cfg
    unit = 'max_iters' if loop.get('max_iters') else 'max_epochs'
    length = loop.get(unit)
    if length is None:
        return
    late = []
    for index, part in enumerate(scheduler_settings(cfg)):
        if part.get('by_epoch', True) != (unit == 'max_epochs'):
            continue  # in other units
        for name in ('begin', 'end', 'milestones'):
            given = part.get(name) or 0
            last = max(given, default=0) if isinstance(given, (list, tuple)) else given
            if last != INF and last > (length + 1 if name == 'end' else length - 1):
                late.append(f'param_scheduler.{index}.{name}={given}')
    if cfg.get('val_cfg') is not None and loop.get('val_interval', 1) > length:
        late.append(f'train_cfg.val_interval={loop.val_interval}')
    checkpoint = (cfg.get('default_hooks') or {}).get('checkpoint') or ConfigDict()
    in_unit = checkpoint.get('by_epoch', True) == (unit == 'max_epochs')
    interval = checkpoint.get('interval', -1)
    if in_unit and interval > length and not checkpoint.get('save_last', True):
        late.append(f'default_hooks.checkpoint.interval={interval}')
    if late:
        raise UsageError(
            f'{", ".join(late)}: after the end of the training, train_cfg.{unit}={length}; change '
            'them by --cfg-options, too'
        )


def check_processes(cfg: Config, launcher: str) -> None:
    """Raise UsageError if other processes train than a recipe of own data was made for."""
    made_for = (cfg.get('own') or {}).get('gpus')
    number = 1 if launcher == 'none' else started_processes() or 1
    if made_for not in (None, number):
        raise UsageError(
            f'own.gpus={made_for}: the schedule is for so many processes, and this training has '
            f'{number}: start {made_for} with --launcher, as tools/dist_train.sh does, or change it'
        )
