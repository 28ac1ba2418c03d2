"""Check the schedule and the initial weights of a training run.

Describe the recipe of a config, for comparison with the paper.
"""

import re
import sys
import textwrap
from collections.abc import Iterable

from mmengine.config import Config, ConfigDict
from mmengine.optim.scheduler.param_scheduler import INF
from torch import nn

from ...backbones.base import Backbone
from ...engine.optimizer import group_table_text
from ...rope import RotaryEmbedding
from ...rope.grid import build_scaling
from ...utils.config_parts import nodes
from ...utils.errors import UsageError
from ...utils.validation import checked_size
from ..contents import datasets_of, scheduler_settings
from ..model import build_optimizer
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
    starts_from = cfg.get('load_from') or (cfg.model.get('backbone') or {}).get(
        'init_cfg'
    )
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
        if (
            backbone.is_isotropic
            and len(crops) == 1
            and (crop := crops.pop()) != (height, width)
        ):
            warn(
                f'{RANDOM} trains on crops of {crop[0]} x {crop[1]} pixels, but rope_scaling is '
                f'relative to an img_size of {height} x {width}: set model.backbone.img_size={crop}'
            )
    fixed = sum(
        param.numel() for param in backbone.parameters() if not param.requires_grad
    )
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
        if step.get('type') == 'RandomCrop'
        and step.get('crop_type', 'absolute') == 'absolute'
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
    own = stored_settings(cfg)
    made_for = own.gpus if own else None
    number = 1 if launcher == 'none' else started_processes() or 1
    if made_for not in (None, number):
        raise UsageError(
            f'own.gpus={made_for}: the schedule is for so many processes, and this training has '
            f'{number}: start {made_for} with --launcher, as tools/dist_train.sh does, or change it'
        )


LABEL, WIDTH = 11, 100
POSITIONS = {
    'pos_embed': 'absolute position embedding',
    'rel_pos_[hw]': 'decomposed relative position',
    'relative_position_bias_table': 'relative position bias',
}
NORMS = {
    False: 'without the final norm',
    True: 'the last one after the final norm',
    'all': 'each after the final norm',
    'separate': 'each after a norm of its own',
}
PREFIXES = {
    None: '',
    'cls': ', with the class token',
    'all': ', with class token and registers',
}
FOREIGN = 'as the backbone has them: none of rope_dense'


def recipe_text(cfg: Config, model: nn.Module) -> str:
    """The text, with a paragraph for each part: data, model, positions, windows, schedule ..."""
    hooks = cfg.get('default_hooks') or {}
    settings = [
        cfg.get('test_evaluator'),
        hooks.get('checkpoint'),
        cfg.model.get('test_cfg'),
    ]
    tta = [cfg.get('tta_model'), cfg.get('tta_pipeline')]
    parts, frozen = [], []
    for name, child in model.named_children():
        given = cfg.model.get(name)
        kinds = (
            [given.get('type'), given.get('arch')] if isinstance(given, dict) else []
        )
        kind = ' '.join(part_text(item) for item in kinds if item)
        if number := num_parameters(child):
            parts.append(f'{name} {f"({kind}) " if kind else ""}{number:,d}')
        if fixed := sum(p.numel() for p in child.parameters() if not p.requires_grad):
            frozen.append(f'{name} {fixed:,d} of {number:,d}')
    backbone = cfg.model.get('backbone') or {}
    named = (backbone.get('init_cfg') or {}).get('checkpoint') or backbone.get(
        'pretrained'
    )
    named = named or cfg.model.get('pretrained')  # a key of mmseg, as the one before
    start = f'backbone from {named or "random values"}'
    optimizer = build_optimizer(cfg, model).optimizer
    sections = {'own data': cfg.own_data} if cfg.get('own_data') else {}
    sections |= {
        'train data': part_text(cfg.train_dataloader),
        'test data': part_text(cfg.test_dataloader),
        'model': f'{cfg.model.type}, {num_parameters(model):,d} parameters: {", ".join(parts)}',
        'weights': f'{start}; all from {cfg.load_from}'
        if cfg.get('load_from')
        else start,
        'frozen': ', '.join(frozen) + ' parameters' if frozen else 'nothing',
        'inputs': part_text(cfg.model.get('data_preprocessor')),
        'maps': maps_text(model),
        'position': positions_text(model),
        'windows': windows_text(model),
        'optimizer': part_text(cfg.optim_wrapper),
        'groups': group_table_text(
            optimizer.param_groups, cfg.optim_wrapper.optimizer.lr
        ),
        'schedule': schedule_text(cfg),
        'evaluation': '; '.join(map(part_text, settings)),
        '--tta': '; '.join(map(part_text, tta)) if all(tta) else 'not in this config',
    }
    return '\n'.join(paragraph_text(label, text) for label, text in sections.items())


def paragraph_text(label: str, text: str) -> str:
    """A labelled paragraph, each of its lines wrapped."""
    wrapper = textwrap.TextWrapper(
        WIDTH - LABEL, break_on_hyphens=False, break_long_words=False
    )
    lines = [row for line in text.splitlines() for row in wrapper.wrap(line)]
    return label.ljust(LABEL) + f'\n{"":{LABEL}}'.join(lines)


def part_text(given: object) -> str:
    """A part of a config as TYPE(KEY=VALUE, ...), a long list of numbers or sizes by its ends."""
    if isinstance(given, dict):
        names = [name for name in given if name not in ('type', 'meta_keys')]
        settings = ', '.join(f'{name}={part_text(given[name])}' for name in names)
        kind = str(given.get('type', ''))
        return f'{kind}({settings})' if settings or not kind else kind
    if not isinstance(given, (list, tuple)):
        return str(given)
    if len(given) > 4 and not any(isinstance(item, dict) for item in given):
        return f'[{part_text(given[0])} ... {part_text(given[-1])}: {len(given)}]'
    return f'[{", ".join(map(part_text, given))}]'


def num_parameters(module: nn.Module) -> int:
    """The number of parameters."""
    return sum(param.numel() for param in module.parameters())


def numbers_text(given: Iterable[int]) -> str:
    """Numbers with commas between them."""
    return ', '.join(map(str, given))


def maps_text(model: nn.Module) -> str:
    """The maps that the backbone returns."""
    if not isinstance(backbone := model.backbone, Backbone):
        return FOREIGN
    channels, strides = map(numbers_text, (backbone.out_channels, backbone.out_strides))
    text = f'channels {channels}; strides {strides}'
    if not backbone.is_isotropic:
        return text
    norm, prefix = NORMS[backbone.final_norm], PREFIXES[backbone.output_prefix]
    return f'of blocks {numbers_text(backbone.out_indices)}; {norm}{prefix}; {text}'


def positions_text(model: nn.Module) -> str:
    """Rotary embeddings, and other position embeddings by the names of their parameters."""
    ropes: dict[str, list[int]] = {}
    for part in model.modules():
        if isinstance(part, RotaryEmbedding):
            ropes.setdefault(repr(part), []).append(num_parameters(part))
    texts = [
        f'{text} in {len(sizes)} blocks, {sum(sizes):,d} learned parameters'
        for text, sizes in ropes.items()
    ]
    for pattern, name in POSITIONS.items():
        tables = [
            p for key, p in model.named_parameters() if re.search(rf'\b{pattern}$', key)
        ]
        if tables:
            texts.append(f'{name}: {sum(p.numel() for p in tables):,d} parameters')
    if isinstance(backbone := model.backbone, Backbone):
        if ropes:
            scaling = build_scaling(backbone.rope_scaling, backbone.pretrain_grid)
            height, width = backbone.pretrain_grid if scaling is None else scaling.grid
            is_scaled = scaling is not None and scaling.type != 'none'
            text = (
                f'scaled by {backbone.rope_scaling}, ' if is_scaled else 'scalings are '
            )
            texts.append(f'{text}relative to {height} x {width} tokens')
        if (scale := first_layer_scale(backbone)) is not None:
            texts.append(f'LayerScale of blocks begins at {scale:g}')
    return '; '.join(texts) or 'no parameters for it'


def windows_text(model: nn.Module) -> str:
    """The windows of attention in tokens, the prefix tokens in them, and the windowed blocks."""
    if not isinstance(backbone := model.backbone, Backbone):
        return FOREIGN
    blocks, windowed = range(len(backbone.ordered_blocks)), backbone.window_blocks
    window = backbone.window_size
    if not windowed or window is None:
        return f'none: global attention in all {len(blocks)} blocks'
    text = window if window == 'auto' else f'{window[0]} x {window[1]} tokens'
    if backbone.num_prefix_tokens:
        is_global = backbone.window_prefix == 'global'
        copied = ' with a copy of the prefix tokens'
        text += ' beside prefix tokens that attend globally' if is_global else copied
    if len(windowed) == len(blocks):
        return f'{text} in all blocks'
    others = [block for block in blocks if block not in windowed]
    return f'{text} in blocks {numbers_text(windowed)}; global attention in {numbers_text(others)}'


def schedule_text(cfg: Config) -> str:
    """The length of training, and the schedulers."""
    loop, batch = cfg.train_cfg, cfg.train_dataloader.get('batch_size', 1)
    length, unit = loop.get('max_iters', loop.get('max_epochs')), 'iteration'
    unit = f'{unit if "max_iters" in loop else "epoch"}{"s" * (length != 1)}'
    lines = [
        f'{length} {unit} of {batch} images per process, {processes_text(cfg, batch)}, '
        f'validation every {loop.get("val_interval", 1)}',
        *map(part_text, scheduler_settings(cfg)),
    ]
    for hook in cfg.get('custom_hooks') or []:
        if hook.type == 'MaskAnnealingHook':
            spans = zip(hook.start, hook.end, strict=True)
            lines.append(
                f'masks annealed from {", ".join(f"{a} to {b}" for a, b in spans)}'
            )
    return '\n'.join(lines)


def processes_text(cfg: Config, batch: int) -> str:
    """The number of processes, and the recipe's images in an iteration if they are others."""
    number, scaling = started_processes() or 1, cfg.get('auto_scale_lr') or {}
    text, base = (
        f'{number} process{"es" * (number > 1)}',
        scaling.get('base_batch_size'),
    )
    if base in (None, number * batch):
        return text
    recipe = f'{base // batch} x {batch}' if base % batch == 0 else f'{base} images'
    rate = 'with its lr scaled' if scaling.get('enable') else '--auto-scale-lr'
    return f'{text} (recipe: {recipe}; {rate})'
