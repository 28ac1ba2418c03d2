"""The three backbones in float64, token by token, from their weights and settings alone.

Written from the formulas of the papers; no code of the models is called. Gradients pass through.

Letters: H x W token grid, C channels, h heads, D channels of a head, P rotated pairs, S tokens of a
sequence. One image at a time: [3, height, width]. Positions are (row, column).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.reference_nat import (
    Weights,
    conv_reduction,
    conv_stem,
    neighbours,
    part,
    patch_merging,
    patch_stem,
)
from helpers.reference_swin import groups as shifted_groups

Token = tuple[int, int]
LOG_AXIAL = dict(k_rope=2, shared=False, axes='yx', pair_layout='half')
LOG_COORDINATES = dict(type='centres', normalize='max', windows='map')


@dataclass
class Group:
    """Tokens whose queries and keys are rotated together.

    Attributes:
        tokens: their numbers; None for padding, a zero after the norm.
        positions: None for a prefix token.
        keys: for each token, those of the group that it attends to.
    """

    tokens: list[int | None]
    positions: list[Token | None]
    keys: list[list[int]]


@dataclass
class Place:
    """Settings that angles and biases depend on, beside positions.

    Attributes:
        grid: (H, W) of the map.
        size: of the map or window in which positions are counted.
        scaled: the size that a scaling compares with ``pretrained``.
        pretrained: (H, W).
        fixed: whether a fixed factor of the scaling holds.
    """

    grid: Token
    size: Token
    scaled: Token
    pretrained: Token
    fixed: bool = True


def vit(settings: dict, weights: Weights, image: Tensor) -> list[Tensor]:
    """The maps [C, H, W] of a ``RoPEViT``, for the settings that test_fuzz.py draws."""
    arch, patch = settings['arch'], settings['patch_size']
    pretrained = settings['img_size'] // patch, settings['img_size'] // patch
    name = 'patch_embed.proj'
    x = F.conv2d(
        image[None], weights[f'{name}.weight'], weights[f'{name}.bias'], patch
    )[0]
    x = x.permute(1, 2, 0)  # [H, W, C]
    grid = x.shape[0], x.shape[1]
    if settings['use_ape'] == 'tile':
        table = weights['pos_embed'][0].unflatten(0, pretrained)
        rows, columns = (
            torch.arange(n) % old for n, old in zip(grid, pretrained, strict=True)
        )
        x = x + table[rows][:, columns]
    prefix = [
        weights[name][0] for name in ('cls_token', 'reg_token') if name in weights
    ]
    x, num_prefix = torch.cat([*prefix, x.flatten(0, 1)]), sum(map(len, prefix))
    window, indexes = settings['window_size'], settings['window_block_indexes']
    windows = [] if window is None else list(windows_of(grid, window))
    copies, outs = 1, []  # of the prefix, in front of the grid
    for index in range(arch['depth']):
        windowed = window is not None and index in indexes
        shared = windowed and settings['window_prefix'] == 'global' and num_prefix > 0
        wanted = len(windows) if windowed and not shared else 1
        if copies != wanted:
            x = copied(x, num_prefix, copies, wanted)
            copies = wanted
        place = Place(grid, grid, grid, pretrained)
        if shared:
            groups = [with_global_prefix(grid, window, num_prefix)]
        elif windowed:
            place = Place(grid, window, window, pretrained, fixed=False)
            groups = [
                one_window(
                    grid,
                    tokens,
                    num_prefix,
                    which,
                    len(windows),
                    settings['mask_padding'],
                )
                for which, tokens in enumerate(windows)
            ]
        else:
            groups = [everything(grid, num_prefix)]
        x = run_block(
            settings,
            part(weights, f'blocks.{index}'),
            x,
            groups,
            place,
            arch['num_heads'],
        )
        if index in settings['out_indices']:
            out = x[copies * num_prefix :].unflatten(0, grid)
            last, norm = index == arch['depth'] - 1, settings['final_norm']
            if norm == 'all' or (norm and last):
                out = layer_norm(part(weights, 'norm'), out, 1e-6)
            elif norm == 'separate':
                out = layer_norm(part(weights, f'norm{index}'), out, 1e-6)
            outs.append(out.permute(2, 0, 1))
    return outs


def swin(settings: dict, weights: Weights, image: Tensor) -> list[Tensor]:
    """The maps of a ``RoPESwin``."""
    arch, outs = settings['arch'], []
    last_stride = 4 * 2 ** (len(arch['depths']) - 1)
    window = settings['window_size']
    if window == 'auto':
        window = tuple(math.ceil(side / last_stride) for side in image.shape[1:])
    x = patch_stem(weights, image)  # [H, W, C]
    for stage, depth in enumerate(arch['depths']):
        grid = x.shape[0], x.shape[1]
        size = window or grid
        place = Place(grid, size, size, (settings['pretrain_window_size'],) * 2)
        single = grid[0] <= size[0] and grid[1] <= size[1]
        x = x.flatten(0, 1)
        for index in range(depth):
            shift = 0, 0
            if window and index % 2 and (settings['shift_single_window'] or not single):
                shift = size[0] // 2, size[1] // 2
            groups = []
            for tokens in shifted_groups(grid, size, shift, settings['mask_padding']):
                numbers = [number(token, grid) for token in tokens]
                groups.append(
                    all_to_all(numbers, [moved(t, grid, size, shift) for t in tokens])
                )
            block = part(weights, f'layers.{stage}.blocks.{index}')
            x = run_block(settings, block, x, groups, place, arch['num_heads'][stage])
        x = x.unflatten(0, grid)
        outs.append(layer_norm(part(weights, f'norm{stage}'), x, 1e-5).permute(2, 0, 1))
        if stage + 1 < len(arch['depths']):
            x = patch_merging(part(weights, f'layers.{stage}.downsample'), x)
    return outs


def nat(settings: dict, weights: Weights, image: Tensor) -> list[Tensor]:
    """The maps of a ``RoPENAT``."""
    arch, outs, kernel = settings['arch'], [], settings['kernel_size']
    overlapping = arch['overlapping']
    x = (conv_stem if overlapping else patch_stem)(weights, image)
    for stage, depth in enumerate(arch['depths']):
        grid = x.shape[0], x.shape[1]
        x = x.flatten(0, 1)
        for index in range(depth):
            dilation = settings['dilations'][stage][index]
            rows, columns = (
                max(n, k * dilation) for n, k in zip(grid, kernel, strict=True)
            )
            tokens = list(itertools.product(range(rows), range(columns)))
            keys = []
            for row, column in tokens:
                near = neighbours(row, rows, kernel[0], dilation)
                beside = neighbours(column, columns, kernel[1], dilation)
                keys.append([r * columns + c for r in near for c in beside])
            group = Group([number(token, grid) for token in tokens], [*tokens], keys)
            pretrained = (settings['pretrain_kernel_size'],) * 2
            place = Place(
                grid, grid, kernel, pretrained
            )  # positions of the map, not its padding
            block = part(weights, f'layers.{stage}.blocks.{index}')
            heads = arch['num_heads'][stage]
            x = run_block(settings, block, x, [group], place, heads, dilation)
        x = x.unflatten(0, grid)
        outs.append(layer_norm(part(weights, f'norm{stage}'), x, 1e-5).permute(2, 0, 1))
        if stage + 1 < len(arch['depths']):
            reduce = conv_reduction if overlapping else patch_merging
            x = reduce(part(weights, f'layers.{stage}.downsample'), x)
    return outs


# Groups of tokens


def number(token: Token, grid: Token) -> int | None:
    """Of a token of the grid; None for padding."""
    row, column = token
    return row * grid[1] + column if row < grid[0] and column < grid[1] else None


def moved(token: Token, grid: Token, window: Token, shift: Token) -> Token:
    """The position in its window, after a cyclic shift of the padded grid."""
    sides = zip(token, grid, window, shift, strict=True)
    row, column = ((n - by) % (math.ceil(g / w) * w) % w for n, g, w, by in sides)
    return row, column


def windows_of(grid: Token, window: Token) -> Iterator[list[Token]]:
    """The tokens of each window, padding too."""
    inside = list(itertools.product(*map(range, window)))
    for top, left in itertools.product(
        *(range(0, *s) for s in zip(grid, window, strict=True))
    ):
        yield [(top + row, left + column) for row, column in inside]


def all_to_all(tokens: list[int | None], positions: Sequence[Token | None]) -> Group:
    return Group(tokens, list(positions), [list(range(len(tokens)))] * len(tokens))


def everything(grid: Token, num_prefix: int) -> Group:
    tokens = itertools.product(range(grid[0]), range(grid[1]))
    positions = [*[None] * num_prefix, *tokens]
    return all_to_all(list(range(len(positions))), positions)


def one_window(
    grid: Token,
    tokens: list[Token],
    num_prefix: int,
    index: int,
    num_windows: int,
    mask_padding: bool,
) -> Group:
    """A window with its copy of the prefix; copies of all windows come before the grid."""
    numbers = [number(token, grid) for token in tokens]
    top, left = tokens[0]
    before = num_windows * num_prefix
    numbers = [None if n is None else before + n for n in numbers]
    positions: list[Token | None] = [
        (row - top, column - left) for row, column in tokens
    ]
    if mask_padding:
        kept = [i for i, n in enumerate(numbers) if n is not None]
        numbers, positions = [numbers[i] for i in kept], [positions[i] for i in kept]
    copy = [index * num_prefix + i for i in range(num_prefix)]
    return all_to_all([*copy, *numbers], [None] * num_prefix + positions)


def with_global_prefix(grid: Token, window: Token, num_prefix: int) -> Group:
    """Prefix tokens attend to all; others to the prefix and to those of their window."""
    group = everything(grid, num_prefix)
    prefix = list(range(num_prefix))
    of_window: dict[Token, list[int]] = {}
    for index, position in enumerate(group.positions):
        if position is not None:
            key = position[0] // window[0], position[1] // window[1]
            of_window.setdefault(key, []).append(index)
    for index, position in enumerate(group.positions):
        if position is not None:
            key = position[0] // window[0], position[1] // window[1]
            group.keys[index] = prefix + of_window[key]
    return group


def copied(x: Tensor, num_prefix: int, copies: int, wanted: int) -> Tensor:
    """Prefix tokens in ``wanted`` copies in place of ``copies``, of which the mean counts."""
    prefix, tokens = x[: copies * num_prefix], x[copies * num_prefix :]
    prefix = prefix.unflatten(0, (copies, num_prefix)).mean(0) if num_prefix else prefix
    return torch.cat([*[prefix] * wanted, tokens])


# A block


def run_block(
    settings: dict,
    weights: Weights,
    x: Tensor,
    groups: Sequence[Group],
    place: Place,
    heads: int,
    dilation: int = 1,
) -> Tensor:
    """A block of tokens [S, C]."""
    eps = 1e-6 if 'patch_size' in settings else 1e-5
    ones = torch.ones(x.shape[-1], dtype=x.dtype)
    y = layer_norm(part(weights, 'norm1'), x, eps)
    y = attention(settings, part(weights, 'attn'), y, groups, place, heads, dilation)
    x = x + weights.get('gamma_1', ones) * y
    y, mlp = layer_norm(part(weights, 'norm2'), x, eps), part(weights, 'mlp')
    if 'fc1.weight' in mlp:
        hidden = F.gelu(linear(mlp, 'fc1', y))
    else:
        gate = linear(mlp, 'fc1_g', y)
        hidden = gate * gate.sigmoid() * linear(mlp, 'fc1_x', y)
        hidden = (
            layer_norm(part(mlp, 'norm'), hidden, eps)
            if 'norm.weight' in mlp
            else hidden
        )
    return x + weights.get('gamma_2', ones) * linear(mlp, 'fc2', hidden)


def attention(
    settings: dict,
    weights: Weights,
    y: Tensor,
    groups: Sequence[Group],
    place: Place,
    heads: int,
    dilation: int,
) -> Tensor:
    """Attention of tokens [S, C], one query at a time."""
    outs: dict[int, Tensor] = {}
    zero = torch.zeros_like(y[0])
    head_dim = y.shape[-1] // heads
    scale = head_dim**-0.5 * temperature(settings, place)
    table = weights.get('relative_position_bias_table')
    freqs = None
    if settings['rope'] is not None:
        freqs = frequencies(settings['rope'], weights, heads, head_dim, place)
        freqs = scaled(settings, freqs, place)
    for group in groups:
        x = torch.stack([zero if n is None else y[n] for n in group.tokens])
        qkv = linear(weights, 'qkv', x).unflatten(-1, (3, heads, -1))
        q, k, v = qkv.unbind(1)  # [S, h, D]
        if 'q_norm.weight' in weights:
            q = layer_norm(part(weights, 'q_norm'), q, 1e-6)
            k = layer_norm(part(weights, 'k_norm'), k, 1e-6)
        if freqs is not None:
            angles = torch.stack(
                [angle(freqs, settings['rope'], p, place) for p in group.positions]
            )
            q, k = (rotated(z, angles, pair_layout(settings['rope'])) for z in (q, k))
        for index, n in enumerate(group.tokens):
            if n is None:
                continue
            keys = group.keys[index]
            scores = (q[index] * k[keys]).sum(-1) * scale  # [keys, h]
            if table is not None:
                pairs = [(group.positions[index], group.positions[key]) for key in keys]
                biases = [
                    bias(table, *pair, dilation, place.pretrained) for pair in pairs
                ]
                scores = scores + torch.stack(biases)
            outs[n] = (scores.softmax(0)[..., None] * v[keys]).sum(0).flatten()
    return linear(weights, 'proj', torch.stack([outs[n] for n in range(len(y))]))


def bias(
    table: Tensor, query: Token | None, key: Token | None, dilation: int, size: Token
) -> Tensor:
    """[h] of an offset query - key, from a table for a window of ``size``; zero beyond it."""
    assert query is not None and key is not None  # no prefix tokens
    down, right = (query[0] - key[0]) // dilation, (query[1] - key[1]) // dilation
    if abs(down) >= size[0] or abs(right) >= size[1]:
        return torch.zeros_like(table[0])
    return table[(down + size[0] - 1) * (2 * size[1] - 1) + right + size[1] - 1]


def rotated(x: Tensor, angles: Tensor, layout: str) -> Tensor:
    """x [S, h, D], its pairs rotated by angles [S, h, P]."""
    pairs = angles.shape[-1]
    first = [2 * t if layout == 'interleaved' else t for t in range(pairs)]
    second = [2 * t + 1 if layout == 'interleaved' else t + pairs for t in range(pairs)]
    a, b = x[..., first], x[..., second]
    out = x.clone()
    out[..., first] = a * angles.cos() - b * angles.sin()
    out[..., second] = a * angles.sin() + b * angles.cos()
    return out


def layer_norm(weights: Weights, x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    normed = centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()
    return normed * weights['weight'] + weights['bias']


def linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    out = x @ weights[f'{name}.weight'].T
    return out + weights[f'{name}.bias'] if f'{name}.bias' in weights else out


# Positions and frequencies


def pair_layout(rope: dict) -> str:
    default = 'half' if rope['type'] == 'LogAxialRoPE' else 'interleaved'
    return rope.get('pair_layout', default)


def angle(freqs: Tensor, rope: dict, position: Token | None, place: Place) -> Tensor:
    """[h, P]; zero without a position."""
    x, y = (0.0, 0.0) if position is None else xy(rope, position, place)
    return freqs[0] * x + freqs[1] * y


def xy(rope: dict, position: Token, place: Place) -> tuple[float, float]:
    """The coordinates of a token."""
    default = LOG_COORDINATES if rope['type'] == 'LogAxialRoPE' else {}
    settings = rope.get('coordinates') or default
    row, column = map(float, position)
    height, width = place.grid if settings.get('windows') == 'map' else place.size
    kind = settings.get('type', 'index')
    if kind == 'index':
        row, column = (n + settings.get('offset', 0.0) for n in (row, column))
        if reference := settings.get('reference'):
            row, column = row / height * reference, column / width * reference
        return column, row
    if settings.get('normalize', 'separate') != 'separate':
        height = width = (min if settings['normalize'] == 'min' else max)(height, width)
    if kind == 'centres':
        return 2 * (column + 0.5) / width - 1, 2 * (row + 0.5) / height - 1
    return 2 * column / max(width - 1, 1) - 1, 2 * row / max(height - 1, 1) - 1


def video_frequencies(rope: dict, pairs: int) -> Tensor:
    """[2, 1, P]: pairs of the time, which is 0, then of the row, then of the column."""
    series = [
        rope['factor'] * rope.get('theta', 10000.0) ** (-t / pairs)
        for t in range(pairs)
    ]
    none = [0.0] * pairs
    x_y = [[*none, *none, *series], [*none, *series, *none]]
    return torch.tensor(x_y, dtype=torch.float64)[:, None]


def frequencies(
    rope: dict, weights: Weights, heads: int, head_dim: int, place: Place
) -> Tensor:
    """[2, h, P]; index 0 for x, 1 for y."""
    kind, learned = rope['type'], weights.get('rope.freqs')
    if kind == 'MixedRoPE':
        return weights['rope.freqs']
    if kind == 'VideoRoPE':
        return video_frequencies(rope, head_dim // 6).expand(-1, heads, -1)
    rope = (LOG_AXIAL if kind == 'LogAxialRoPE' else {}) | rope
    count = head_dim // (4 * rope.get('k_rope', 1))  # for each axis
    shared = rope.get('shared', True)
    axes = []
    for axis in (0, 1):  # x, y
        rows = []
        for head in range(heads):
            indexes = [t if shared else head + heads * t for t in range(count)]
            total = count if shared else heads * count
            values = [axis_frequency(rope, index, total) for index in indexes]
            rows.append(torch.tensor(values, dtype=torch.float64))
        axes.append(torch.stack(rows) if learned is None else learned[axis])
    order, zero = rope.get('axes', 'xy'), torch.zeros_like(axes[0])
    if order == 'xy':
        x, y = torch.cat([axes[0], zero], 1), torch.cat([zero, axes[1]], 1)
    else:
        x, y = torch.cat([zero, axes[0]], 1), torch.cat([axes[1], zero], 1)
    return torch.stack([x, y])


def axis_frequency(rope: dict, index: int, total: int) -> float:
    if rope['type'] == 'LogAxialRoPE':
        low, high = rope.get('low', math.pi), rope.get('high', 10 * math.pi)
        return low * (high / low) ** (index / total)
    theta, series = rope.get('theta', 100.0), rope.get('series', 'radians')
    return theta ** (-index / total) * (2 * math.pi if series == 'periods' else 1)


def growth(settings: dict, place: Place) -> tuple[float, float]:
    """s of (rows, columns)."""
    factor = settings['rope_scaling'].get('factor')
    if factor is not None and place.fixed:
        return factor, factor
    s_y, s_x = (
        max(n / g, 1.0) for n, g in zip(place.scaled, place.pretrained, strict=True)
    )
    return s_y, s_x


def scaled(settings: dict, freqs: Tensor, place: Place) -> Tensor:
    """The frequencies [2, h, P] for another size."""
    scaling = settings['rope_scaling']
    if scaling is None or scaling['type'] == 'none':
        return freqs
    s_y, s_x = growth(settings, place)
    pairs = freqs.shape[-1]
    out = []
    for axis, s in ((0, s_x), (1, s_y)):
        factors = []
        for head, pair in itertools.product(range(freqs.shape[1]), range(pairs)):
            if scaling['type'] == 'linear':
                factors.append(1 / s)
            elif scaling['type'] == 'ntk':
                of_axis = pairs // 2
                factors.append(s ** (-(pair % of_axis) / max(of_axis - 1, 1)))
            else:
                x, y = freqs[:, head, pair].tolist()
                periods = math.hypot(x * place.pretrained[1], y * place.pretrained[0])
                alpha, beta = scaling.get('alpha', 1.0), scaling.get('beta', 2.0)
                ramp = (periods / (2 * math.pi) - alpha) / (beta - alpha)
                ramp = min(max(ramp, 0.0), 1.0)
                factors.append(ramp + (1 - ramp) / s)
        out.append(
            freqs[axis] * torch.tensor(factors, dtype=torch.float64).view(-1, pairs)
        )
    return torch.stack(out)


def temperature(settings: dict, place: Place) -> float:
    """The factor of the scores."""
    scaling = settings['rope_scaling']
    if (
        settings['rope'] is None
        or scaling is None
        or scaling.get('temperature') is None
    ):
        return 1.0
    s_y, s_x = growth(settings, place)
    ratio, (height, width) = max(1.0, s_y * s_x), place.pretrained
    if scaling['temperature'] == 'yarn':
        return (0.1 * math.log(math.sqrt(ratio)) + 1) ** 2
    return math.log(ratio * height * width) / math.log(height * width)
