"""Check the schedule, the processes and the initial weights of a training run."""

import sys

from mmengine.config import Config, ConfigDict
from mmengine.optim.scheduler.param_scheduler import INF
from torch import nn

from ...backbones.base import Backbone
from ...utils.config_parts import nodes
from ...utils.errors import UsageError
from ...utils.validation import checked_size
from ..contents import datasets_of, scheduler_settings
from ..own.settings import started_processes
from ..own.tasks import stored_settings

SMALL_LAYER_SCALE = 1e-3
SMALL_SHARE = 0.05  # of the parameters of a backbone: a fixed table of positions, say
RANDOM = 'the backbone has random weights and'


def warn_of_random_weights(cfg: Config, model: nn.Module) -> None:
    """Warn of a backbone with random weights that is frozen or hidden by a small LayerScale.

    Or whose crops differ in size from ``img_size``, the reference of position scalings.
    """
    backbone = getattr(model, 'backbone', None)
    settings = cfg.model.get('backbone') or {}
    if backbone is None or cfg.get('load_from') or settings.get('init_cfg'):
        return
    if isinstance(backbone, Backbone):
        scale = first_layer_scale(backbone)
        if scale is not None and scale <= SMALL_LAYER_SCALE:
            warn(
                f'{RANDOM} a LayerScale of {scale:.0e}, which hides its blocks, and so position, '
                'in a short training: set model.backbone.layer_scale_init_value=1.0'
            )
        crops = training_crops(cfg)
        patch = backbone.patch_embed.patch_size
        height, width = (side * patch for side in backbone.pretrain_grid)
        if backbone.is_isotropic and len(crops) == 1 and (height, width) not in crops:
            crop = crops.pop()
            warn(
                f'{RANDOM} trains on crops of {crop[0]} x {crop[1]} pixels, but rope_scaling is '
                f'relative to an img_size of {height} x {width}: set model.backbone.img_size={crop}'
            )
    fixed = num_parameters(backbone, is_frozen=True)
    if fixed > SMALL_SHARE * num_parameters(backbone):
        warn(
            f'{fixed:,d} backbone parameters are frozen (frozen_stages or lora) and have random '
            'weights: set model.backbone.init_cfg or --load-from'
        )


def warn_of_sgd(cfg: Config, model: nn.Module) -> None:
    """Warn of a transformer that SGD trains, as a stock config trains its ResNet."""
    optimizer = cfg.optim_wrapper.optimizer
    if (
        isinstance(getattr(model, 'backbone', None), Backbone)
        and optimizer.type == 'SGD'
    ):
        warn(
            f'SGD(lr={optimizer.get("lr")}) trains a transformer, as in configs of ResNets: set '
            "optim_wrapper.optimizer=dict(_delete_=True, type='AdamW', lr=1e-4), as in "
            'docs/heads.md'
        )


def num_parameters(module: nn.Module, is_frozen: bool = False) -> int:
    """The number of parameters, or of those that are not trained."""
    params = module.parameters()
    return sum(p.numel() for p in params if not (is_frozen and p.requires_grad))


def training_crops(cfg: Config) -> set[tuple[int, int]]:
    """The sizes (height, width) of crops that a training takes in pixels."""
    crops: set[tuple[int, int]] = set()
    loader = 'train_dataloader'
    for _, dataset in datasets_of(cfg, loader) if cfg.get(loader) else ():
        for _, step in nodes(dataset.get('pipeline')):
            is_in_pixels = step.get('crop_type', 'absolute') == 'absolute'
            if step.get('type') == 'RandomCrop' and is_in_pixels:
                crops.add(checked_size('crop_size', step.crop_size))
    return crops


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
    own = stored_settings(cfg)
    made_for = own.gpus if own else None
    number = 1 if launcher == 'none' else started_processes() or 1
    if made_for not in (None, number):
        raise UsageError(
            f'own.gpus={made_for}: the schedule is for so many processes, and this training has '
            f'{number}: start {made_for} with --launcher, as tools/dist_train.sh does, or change it'
        )
