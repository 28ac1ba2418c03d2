"""The recipe of a config as text: data, model, positions, windows, schedule ..., as in a paper."""

import re
import textwrap
from collections.abc import Iterable

from mmengine.config import Config
from torch import nn

from ...backbones.base import Backbone
from ...engine.optimizer import group_table_text
from ...rope import RotaryEmbedding
from ...rope.grid import build_scaling
from ..contents import scheduler_settings
from ..model import build_optimizer
from ..own.settings import started_processes
from .schedule import first_layer_scale, num_parameters

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
    parts, frozen = part_texts(cfg, model)
    tta = [cfg.get('tta_model'), cfg.get('tta_pipeline')]
    tested = [
        cfg.get('test_evaluator'),
        hooks.get('checkpoint'),
        cfg.model.get('test_cfg'),
    ]
    backbone = cfg.model.get('backbone') or {}
    named = (
        (backbone.get('init_cfg') or {}).get('checkpoint')
        or backbone.get('pretrained')  # a key of mmseg, as the next one
        or cfg.model.get('pretrained')
    )
    start = f'backbone from {named or "random values"}'
    if cfg.get('load_from'):
        start = f'from {cfg.load_from}; what it has not: {start}'
    groups = build_optimizer(cfg, model).optimizer.param_groups
    sections = {'own data': cfg.own_data} if cfg.get('own_data') else {}
    sections |= {
        'train data': part_text(cfg.train_dataloader),
        'test data': part_text(cfg.test_dataloader),
        'model': f'{cfg.model.type}, {num_parameters(model):,d} parameters: {parts}',
        'weights': start,
        'frozen': frozen,
        'inputs': part_text(cfg.model.get('data_preprocessor')),
        'maps': maps_text(model),
        'position': positions_text(model),
        'windows': windows_text(model),
        'optimizer': part_text(cfg.optim_wrapper),
        'groups': group_table_text(groups, cfg.optim_wrapper.optimizer.lr),
        'schedule': schedule_text(cfg),
        'evaluation': '; '.join(map(part_text, tested)),
        '--tta': '; '.join(map(part_text, tta)) if all(tta) else 'not in this config',
    }
    return '\n'.join(paragraph_text(label, text) for label, text in sections.items())


def part_texts(cfg: Config, model: nn.Module) -> tuple[str, str]:
    """The parts of a model with their types and parameters, and the parameters that are frozen."""
    parts, frozen = [], []
    for name, child in model.named_children():
        given = cfg.model.get(name)
        number = num_parameters(child)
        kinds = (
            [given.get('type'), given.get('arch')] if isinstance(given, dict) else []
        )
        kind = ' '.join(part_text(item) for item in kinds if item)
        if number:
            label = f'{name} ({kind})' if kind else name
            parts.append(f'{label} {number:,d}')
        fixed = num_parameters(child, is_frozen=True)
        if fixed:
            frozen.append(f'{name} {fixed:,d} of {number:,d}')
    said = f'{", ".join(frozen)} parameters' if frozen else 'nothing'
    return ', '.join(parts), said


def paragraph_text(label: str, text: str) -> str:
    """A labelled paragraph, each of its lines wrapped."""
    wrapper = textwrap.TextWrapper(
        WIDTH - LABEL, break_on_hyphens=False, break_long_words=False
    )
    lines: list[str] = []
    for line in text.splitlines():
        lines += wrapper.wrap(line)
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


def numbers_text(given: Iterable[int]) -> str:
    """Numbers with commas between them."""
    return ', '.join(map(str, given))


def maps_text(model: nn.Module) -> str:
    """The maps that the backbone returns."""
    backbone = model.backbone
    if not isinstance(backbone, Backbone):
        return FOREIGN
    channels = numbers_text(backbone.out_channels)
    strides = numbers_text(backbone.out_strides)
    text = f'channels {channels}; strides {strides}'
    if not backbone.is_isotropic:
        return text
    norm = NORMS[backbone.final_norm]
    prefix = PREFIXES[backbone.output_prefix]
    return f'of blocks {numbers_text(backbone.out_indices)}; {norm}{prefix}; {text}'


def positions_text(model: nn.Module) -> str:
    """Rotary embeddings, and other position embeddings by the names of their parameters."""
    ropes: dict[str, list[int]] = {}
    is_scalable = False
    for part in model.modules():
        if isinstance(part, RotaryEmbedding):
            is_scalable |= part.is_scalable
            ropes.setdefault(repr(part), []).append(num_parameters(part))
    texts = []
    for text, sizes in ropes.items():
        learned = f'{sum(sizes):,d} learned parameters'
        texts.append(f'{text} in {len(sizes)} blocks, {learned}')
    for pattern, name in POSITIONS.items():
        number = 0
        for key, param in model.named_parameters():
            if re.search(rf'\b{pattern}$', key):
                number += param.numel()
        if number:
            texts.append(f'{name}: {number:,d} parameters')
    backbone = model.backbone
    if isinstance(backbone, Backbone):
        if ropes:
            scaling = build_scaling(backbone.rope_scaling, backbone.pretrain_grid)
            height, width = backbone.pretrain_grid if scaling is None else scaling.grid
            text = f'relative to {height} x {width} tokens'
            if scaling is not None and scaling.changes:
                text += '' if scaling.factor else ', and as without one up to them'
                texts.append(f'scaled by {backbone.rope_scaling}, {text}')
            elif is_scalable:
                texts.append(f'scalings are {text}')
        scale = first_layer_scale(backbone)
        if scale is not None:
            texts.append(f'LayerScale of blocks begins at {scale:g}')
    return '; '.join(texts) or 'no parameters for it'


def windows_text(model: nn.Module) -> str:
    """The windows of attention in tokens, the prefix tokens in them, and the windowed blocks."""
    backbone = model.backbone
    if not isinstance(backbone, Backbone):
        return FOREIGN
    blocks = range(len(backbone.ordered_blocks))
    windowed = backbone.window_blocks
    window = backbone.window_size
    if not windowed or window is None:
        return f'none: global attention in all {len(blocks)} blocks'
    text = window if window == 'auto' else f'{window[0]} x {window[1]} tokens'
    if backbone.num_prefix_tokens and backbone.window_prefix == 'global':
        text += ' beside prefix tokens that attend globally'
    elif backbone.num_prefix_tokens:
        text += ' with a copy of the prefix tokens'
    if len(windowed) == len(blocks):
        return f'{text} in all blocks'
    others = sorted({*blocks} - {*windowed})
    return f'{text} in blocks {numbers_text(windowed)}; global attention in {numbers_text(others)}'


def schedule_text(cfg: Config) -> str:
    """The length of training, and the schedulers."""
    loop = cfg.train_cfg
    batch = cfg.train_dataloader.get('batch_size', 1)
    length = loop.get('max_iters', loop.get('max_epochs'))
    unit = 'iteration' if 'max_iters' in loop else 'epoch'
    if length != 1:
        unit += 's'
    first = (
        f'{length} {unit} of {batch} images per process, {processes_text(cfg, batch)}, '
        f'validation every {loop.get("val_interval", 1)}'
    )
    lines = [first, *map(part_text, scheduler_settings(cfg))]
    for hook in cfg.get('custom_hooks') or []:
        if hook.type == 'MaskAnnealingHook':
            spans = zip(hook.start, hook.end, strict=True)
            said = ', '.join(f'{start} to {end}' for start, end in spans)
            lines.append(f'masks annealed from {said}')
    return '\n'.join(lines)


def processes_text(cfg: Config, batch: int) -> str:
    """The number of processes, and the recipe's images in an iteration if they are others."""
    number = started_processes() or 1
    scaling = cfg.get('auto_scale_lr') or {}
    text = '1 process' if number == 1 else f'{number} processes'
    base = scaling.get('base_batch_size')
    if base in (None, number * batch):
        return text
    recipe = f'{base // batch} x {batch}' if base % batch == 0 else f'{base} images'
    rate = 'with its lr scaled' if scaling.get('enable') else '--auto-scale-lr'
    return f'{text} (recipe: {recipe}; {rate})'
