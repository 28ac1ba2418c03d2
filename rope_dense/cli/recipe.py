"""What a config will do, in words and numbers that a person can hold against the paper's."""

from __future__ import annotations

import copy
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Literal

import torch
from mmengine.config import Config, ConfigDict
from mmengine.logging import MMLogger
from mmengine.optim import build_optim_wrapper
from mmengine.registry import PARAM_SCHEDULERS
from torch import nn

from ..backbones import RoPEViT
from ..backbones.base import Backbone
from ..rope import RotaryEmbedding
from ..rope.frequencies import Size
from .config import evaluators, items_of, leaf_datasets

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
}
PREFIXES = {None: '', 'cls': ', with the class token', 'all': ', with class token and registers'}
FOREIGN = 'as the backbone has them: none of rope_dense'


def describe(cfg: Config, model: nn.Module) -> str:
    """The text, a line or a few for each part: data, model, position embedding, windows,
    parameter groups, schedule, evaluation."""
    return '\n'.join(
        [
            *(entry(name, text) for name, text in data(cfg)),
            entry('model', parts(cfg, model)),
            entry('weights', weights(cfg)),
            entry('frozen', frozen(model)),
            entry('colours', colours(cfg)),
            entry('maps', maps(model)),
            entry('position', positions(model)),
            entry('windows', windows(model)),
            entry('optimizer', optimizer(cfg)),
            *table('groups', groups(cfg, model)),
            *table('schedule', schedule(cfg)),
            entry('evaluation', evaluation(cfg)),
            entry('--tta', augmentation(cfg)),
        ]
    )


def entry(label: str, text: str) -> str:
    """A labelled paragraph."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=label.ljust(LABEL),
        subsequent_indent=' ' * LABEL,
        break_on_hyphens=False,
        break_long_words=False,
    )


def table(label: str, rows: list[str]) -> list[str]:
    """Labelled lines that stay as they are."""
    return [f'{label if not index else "":{LABEL}}{row}' for index, row in enumerate(rows)]


def data(cfg: Config) -> Iterator[tuple[str, str]]:
    for name in ('train', 'test'):
        loader = cfg[f'{name}_dataloader']
        for _, dataset in leaf_datasets(cfg, f'{name}_dataloader'):
            files = dataset.get('ann_file') or dataset.get('data_prefix') or ''
            batch, sampler = loader.get('batch_size', 1), (loader.get('sampler') or {}).get('type')
            notes = [f'{batch} per process and step', *([sampler] if sampler else [])]
            notes += [value(dataset.filter_cfg)] if dataset.get('filter_cfg') else []
            source = f'{dataset.type} {dataset.get("data_root", "")} {value(files)}'
            yield f'{name} data', '; '.join([source, *notes])
            yield '', ', '.join(map(step, dataset.pipeline))


def step(cfg: ConfigDict) -> str:
    """A step of a pipeline, or another part with a type, with its settings."""
    inner = settings(cfg)
    return f'{cfg.type}({inner})' if inner else str(cfg.type)


def settings(cfg: ConfigDict) -> str:
    """What a config dict sets, but for its type and the keys that are handed through."""
    names = [name for name in cfg if name not in ('type', 'meta_keys')]
    return ', '.join(f'{name}={value(cfg[name])}' for name in names)


def value(given: object) -> str:
    """A setting, a long list of numbers or sizes by its ends."""
    if isinstance(given, dict):
        return step(given) if 'type' in given else f'({settings(given)})'
    items = [item for _, item in items_of(given)]
    if len(items) > 4 and not any(isinstance(item, dict) for item in items):
        return f'[{value(items[0])} ... {value(items[-1])}: {len(items)}]'
    if items:
        return f'[{", ".join(map(value, items))}]' if isinstance(given, list) else str(given)
    return str(given)


def parts(cfg: Config, model: nn.Module) -> str:
    counts = [
        f'{name} {kind(cfg.model, name)}{size(child):,d}'
        for name, child in model.named_children()
        if size(child)
    ]
    return f'{cfg.model.type}, {size(model):,d} parameters: {", ".join(counts)}'


def kind(cfg: ConfigDict, name: str) -> str:
    """Type and arch of a part of the model, where the config has them."""
    part = cfg.get(name)
    if not isinstance(part, dict) or 'type' not in part:
        return ''
    arch = part.get('arch')
    return f'({part.type}{f" {value(arch)}" if arch else ""}) '


def size(module: nn.Module) -> int:
    return sum(param.numel() for param in module.parameters())


def weights(cfg: Config) -> str:
    init_cfg = (cfg.model.get('backbone') or {}).get('init_cfg')
    start = f'backbone from {init_cfg.checkpoint}' if init_cfg else 'backbone from random values'
    return f'{start}; all from {cfg.load_from}' if cfg.get('load_from') else start


def frozen(model: nn.Module) -> str:
    """How many parameters of which parts do not train."""
    parts = {
        name: (sum(p.numel() for p in child.parameters() if not p.requires_grad), size(child))
        for name, child in model.named_children()
    }
    texts = [f'{name} {fixed:,d} of {count:,d}' for name, (fixed, count) in parts.items() if fixed]
    return f'{", ".join(texts)} parameters' if texts else 'nothing'


def colours(cfg: Config) -> str:
    """How images are normalised."""
    settings = cfg.model.get('data_preprocessor') or {}
    order = 'RGB' if settings.get('bgr_to_rgb') else 'BGR'  # files are read as BGR
    scale = [f'{name} {value(settings[name])}' for name in ('mean', 'std') if settings.get(name)]
    return ', '.join([order, *scale])


def maps(model: nn.Module) -> str:
    """What the backbone returns."""
    backbone = find_backbone(model)
    if backbone is None:
        return FOREIGN
    text = f'channels {numbers(backbone.out_channels)}; strides {numbers(backbone.out_strides)}'
    if not isinstance(backbone, RoPEViT):
        return text
    norm, prefix = NORMS[backbone.arch.final_norm], PREFIXES[backbone.output_prefix]
    return f'of blocks {numbers(backbone.out_indices)}; {norm}{prefix}; {text}'


def find_backbone(model: nn.Module) -> Backbone | None:
    """The first backbone of this package in a model."""
    return next((part for part in model.modules() if isinstance(part, Backbone)), None)


def positions(model: nn.Module) -> str:
    """Rotary embeddings, and other position embeddings by the names of their parameters."""
    ropes: dict[str, list[RotaryEmbedding]] = {}
    for part in model.modules():
        if isinstance(part, RotaryEmbedding):
            ropes.setdefault(repr(part), []).append(part)
    texts = [
        f'{text} in {len(alike)} blocks, {sum(map(size, alike)):,d} learned frequencies'
        for text, alike in ropes.items()
    ]
    for pattern, name in POSITIONS.items():
        tables = [p for key, p in model.named_parameters() if re.search(rf'\b{pattern}$', key)]
        if tables:
            texts.append(f'{name}: {sum(p.numel() for p in tables):,d} parameters')
    scalings = [part.rope_scaling for part in model.modules() if isinstance(part, Backbone)]
    texts += [f'scaled by {scaling}' for scaling in scalings if scaling]
    return '; '.join(texts) or 'no parameters for it'


def windows(model: nn.Module) -> str:
    backbone = find_backbone(model)
    if backbone is None:
        return FOREIGN
    blocks, windowed = range(len(backbone.ordered_blocks)), backbone.window_blocks
    if not windowed or backbone.window_size is None:
        return f'none: global attention in all {len(blocks)} blocks'
    in_words = f'{window(backbone.window_size)}{prefix_in_windows(backbone)}'
    if len(windowed) == len(blocks):
        return f'{in_words} in all blocks'
    others = [block for block in blocks if block not in windowed]
    return f'{in_words} in blocks {numbers(windowed)}; global attention in {numbers(others)}'


def prefix_in_windows(backbone: Backbone) -> str:
    """What class token and registers do in windows, if there are any."""
    if not isinstance(backbone, RoPEViT) or not backbone.arch.num_prefix_tokens:
        return ''
    if backbone.global_prefix:
        return ' beside prefix tokens that attend globally'
    return ' with a copy of the prefix tokens'


def numbers(given: Iterable[int]) -> str:
    return ', '.join(map(str, given))


def window(window_size: Size | Literal['auto']) -> str:
    """A window in words: its sides in tokens."""
    return 'auto' if window_size == 'auto' else f'{window_size[0]} x {window_size[1]} tokens'


def optimizer(cfg: Config) -> str:
    wrapper = cfg.optim_wrapper
    clip = (
        f'gradients clipped {value(wrapper.clip_grad)}' if wrapper.get('clip_grad') else 'no clip'
    )
    return f'{step(wrapper.optimizer)}; {clip}; {wrapper.type}'


def groups(cfg: Config, model: nn.Module) -> list[str]:
    """One row for each parameter group; the layers of layer-wise decay share rows."""
    logger = MMLogger.get_current_instance()
    level = logger.level
    logger.setLevel('WARNING')  # the constructor logs the whole table
    try:
        built = build_optim_wrapper(model, copy.deepcopy(cfg.optim_wrapper))
    finally:
        logger.setLevel(level)
    base = cfg.optim_wrapper.optimizer
    rows: dict[tuple[str, float], list[dict]] = {}
    for group in built.optimizer.param_groups:
        name = re.sub(r'(layer_|blocks\.)\d+', r'\1*', group.get('name', '(no name)'))
        rows.setdefault((name, group['weight_decay']), []).append(group)
    width = max(len(name) for name, _ in rows)
    lines = [f'{"":{width}}  {"lr":>17}  weight decay  parameters']
    for (name, decay), members in rows.items():
        rates = sorted({group['lr'] / base.lr for group in members})
        factor = ' to '.join(f'x {rate:.4g}' for rate in dict.fromkeys((rates[0], rates[-1])))
        count = sum(param.numel() for group in members for param in group['params'])
        lines.append(f'{name:{width}}  {factor:>17}  {decay:12g}  {count:10,d}')
    return lines


def schedule(cfg: Config) -> list[str]:
    """The length of training, and the learning rate where its course changes."""
    loop, schedulers = cfg.train_cfg, scheduler_settings(cfg)
    batch = cfg.train_dataloader.get('batch_size', 1)
    scaling = cfg.get('auto_scale_lr') or {}
    processes = f', for {scaling["base_batch_size"] // batch} processes' if scaling else ''
    if 'max_iters' not in loop or any(part.get('by_epoch', True) for part in schedulers):
        steps = [value(part) for part in schedulers] or ['constant']
        return [f'{loop.get("max_epochs") or loop.get("max_iters")} epochs or iterations', *steps]
    factors, changes = learning_rates(cfg), {0, loop.max_iters - 1}
    for part in schedulers:
        for change in (part.get('begin', 0), part.get('end'), *part.get('milestones', ())):
            changes |= {change - 1, change} if change else set()
        middle = (part.get('begin', 0) + min(part.get('end') or 0, loop.max_iters)) // 2
        warm_ups = part.get('warmup', 0), part.get('backbone_warmup', 0)
        changes |= {middle, warm_ups[0], sum(warm_ups)}
    points = [it for it in sorted(changes) if 0 <= it < loop.max_iters]
    lines = [f'learning rate {rates_at(cfg, factors, points)}']
    if (of_backbone := learning_rates(cfg, 'backbone/decay')) != factors:
        lines.append(f'of the backbone {rates_at(cfg, of_backbone, points)}')
    for hook in cfg.get('custom_hooks') or []:
        if hook.type == 'MaskAnnealingHook':
            spans = zip(hook.start, hook.end, strict=True)
            lines.append(f'masks annealed from {", ".join(f"{a} to {b}" for a, b in spans)}')
    return [
        f'{loop.max_iters} iterations of {batch} images per process{processes}',
        *(row for line in lines for row in textwrap.wrap(line, WIDTH - LABEL)),
    ]


def rates_at(cfg: Config, factors: list[float], points: list[int]) -> str:
    """The learning rate at some iterations, in words."""
    lr = cfg.optim_wrapper.optimizer.lr
    return ', '.join(f'{lr * factors[it]:.4g} at {it}' for it in points)


def learning_rates(cfg: Config, group: str = '(rest)/decay') -> list[float]:
    """Factor of the learning rate of a group in every iteration, by stepping the schedulers."""
    optimizer = torch.optim.SGD([dict(params=[nn.Parameter(torch.zeros(1))], name=group)], lr=1.0)
    schedulers = [
        PARAM_SCHEDULERS.build(part, default_args=dict(optimizer=optimizer))
        for part in scheduler_settings(cfg)
    ]
    optimizer.step()  # or the schedulers warn
    factors = []
    for _ in range(cfg.train_cfg.max_iters):
        factors.append(optimizer.param_groups[0]['lr'])
        for scheduler in schedulers:
            scheduler.step()
    return factors


def scheduler_settings(cfg: Config) -> list[ConfigDict]:
    given = cfg.get('param_scheduler') or []
    return [given] if isinstance(given, dict) else given


def evaluation(cfg: Config) -> str:
    metrics = ', '.join(value(metric) for _, metric in evaluators(cfg, 'test_evaluator'))
    checkpoint = (cfg.get('default_hooks') or {}).get('checkpoint') or {}
    best = checkpoint.get('save_best')
    return (
        f'{metrics}; every {cfg.train_cfg.get("val_interval", 1)}, checkpoint every '
        f'{checkpoint.get("interval", 1)}{f", the best by {best}" if best else ""}; '
        f'test_cfg {value(cfg.model.get("test_cfg"))}'
    )


def augmentation(cfg: Config) -> str:
    if not cfg.get('tta_pipeline') or not cfg.get('tta_model'):
        return 'not in this config'
    return f'{cfg.tta_model.type}: {", ".join(map(step, cfg.tta_pipeline))}'
