"""Images per second of classifiers' backbones, in the layout of the fused-attention paper.

Tables 3 and 11 of "Revisiting Positional Information in Transformers in the Era of Fused
Attention": each model with a relative position bias, without position, and with log-axial RoPE,
with unfused and fused attention, and how much faster than with the bias. Inference, 224 pixels; on
a GPU in float16. The paper does not say its batch size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bench_backbone import within, work
from measure import Case, Clock, Row, name_of, summary, table, time_rounds
from rope_dense.backbones import RoPENAT, RoPESwin, RoPEViT, natten_backend

POSITIONS: dict[str, dict] = {
    'bias': dict(rope=None, attention=dict(type='TableBias')),
    'none': dict(rope=None, attention=None),
    'log-axial': dict(rope=dict(type='LogAxialRoPE', k_rope=2), attention=None),
}
MODELS: dict[str, Callable[..., nn.Module]] = {
    **{
        name: partial(RoPENAT, name, drop_path_rate=0.0, out_indices=(3,))
        for name in RoPENAT.ARCHS
    },
    **{
        f'swin_{name}': partial(RoPESwin, name, drop_path_rate=0.0, out_indices=(3,))
        for name in RoPESwin.ARCHS
    },
    'vit_small': partial(RoPEViT, 'isotropic_small', final_norm=True),
    'vit_base': partial(RoPEViT, 'isotropic_base', final_norm=True),
}
# What scaled_dot_product_attention may use. A bias, and the mask of shifted windows and of tiles,
# needs a kernel that takes a mask; 'flash' takes the other one where there is a mask.
PLAIN, EFFICIENT, FLASH = (
    SDPBackend.MATH,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
)
KERNELS: dict[str, dict[str, list[SDPBackend]]] = {
    'cpu': {'unfused': [PLAIN], 'fused': [FLASH]},
    'cuda': {'unfused': [PLAIN], 'fused': [EFFICIENT], 'flash': [FLASH, EFFICIENT]},
}


def bench_throughput(
    device: torch.device,
    *,
    models: Sequence[str] = tuple(MODELS),
    side: int = 224,
    batch: int | None = None,
    dtype: torch.dtype = torch.float32,
    rounds: int = 5,
) -> list[Row]:
    """A row for each model, position and kind of attention; what cannot be has the reason.

    Args:
        models: keys of ``MODELS``.
        side: of the images, in pixels.
        batch: 2 on a CPU and 256 on a GPU if None.
        dtype: float32, or another for autocast.
        rounds: in which all cases of a model alternate.
    """
    batch = batch or (2 if device.type == 'cpu' else 256)
    image = torch.randn(batch, 3, side, side, device=device)
    rows = []
    for name in models:
        common = dict(
            bench='throughput', work=name, mode='forward', height=side, width=side
        )
        common |= dict(batch=batch, dtype=name_of(dtype))
        for row in bench_model(name, image, dtype, rounds):
            if 'median_ms' in row:
                row['images_per_s'] = 1000 * batch / row['median_ms']
            rows.append(common | row)
    return rows


def bench_model(
    name: str, image: torch.Tensor, dtype: torch.dtype, rounds: int
) -> list[Row]:
    """The rows of one model, in the order of the paper: kinds of attention, then positions."""
    settings, rows = [], []
    for attention in kinds_of_attention(name, image.device):
        for position in POSITIONS:
            reason = why_not(attention, position, image)
            if reason is None:
                settings.append((attention, position))
            else:
                rows.append(labels(attention, position) | dict(left_out=reason))
    models = {}
    for (
        attention,
        position,
    ) in settings:  # the model is the same for all that PyTorch offers
        natten = 'natten' if attention == 'natten' else 'torch'
        models.setdefault(
            (natten, position), build(name, position, natten, image.device)
        )
    cases = [
        Case(
            f'{position}, {attention}',
            within(
                partial(context, attention, image.device),
                work(
                    models['natten' if attention == 'natten' else 'torch', position],
                    image,
                    'forward',
                    dtype,
                ),
            ),
        )
        for attention, position in settings
    ]
    times = time_rounds(cases, Clock(image.device), rounds=rounds)
    by_attention = groupby(zip(settings, times, strict=True), lambda item: item[0][0])
    for attention, group in by_attention:
        group = list(group)
        positions = [position for (_, position), _ in group]
        for position, row in zip(
            positions, summary(positions, [t for _, t in group]), strict=True
        ):
            if (
                positions[0] == 'bias'
            ):  # the ratio is that of times to those with the bias
                row['percent_over_bias'] = 100 * (1 / row['median_ratio'] - 1)
            rows.append(row | labels(attention, position))
    return rows


def labels(attention: str, position: str) -> Row:
    return dict(
        implementation=f'{position}, {attention}',
        position=position,
        attention=attention,
    )


def build(name: str, position: str, backend: str, device: torch.device) -> nn.Module:
    """The model with random weights, in evaluation mode."""
    backends = dict(backend=backend) if issubclass(MODELS[name].func, RoPENAT) else {}
    with device:
        return MODELS[name](**POSITIONS[position], **backends).to(device).eval()


def kinds_of_attention(name: str, device: torch.device) -> list[str]:
    """Of a model on a device; 'natten' is the fused neighbourhood attention of the paper."""
    if not issubclass(MODELS[name].func, RoPENAT):
        return list(KERNELS[device.type])
    return ['unfused', 'fused', *(['natten'] if device.type == 'cuda' else [])]


def why_not(attention: str, position: str, image: torch.Tensor) -> str | None:
    """The reason for which there is no such model; None if there is one."""
    if attention in ('flash', 'natten') and position == 'bias':
        return 'its kernels have no bias'
    return (
        natten_backend.why_not(image.new_empty(1, 32))
        if attention == 'natten'
        else None
    )


def context(attention: str, device: torch.device) -> AbstractContextManager:
    """Within it PyTorch uses the kernels of a kind of attention."""
    kernels = KERNELS[device.type]
    return sdpa_kernel(kernels.get(attention, kernels['fused']), set_priority=True)


def paper_tables(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each model: images per second, and in brackets per cent over the bias, for each
    position and kind of attention."""
    columns = list(dict.fromkeys(row['implementation'] for row in rows))
    columns.sort(key=lambda column: list(POSITIONS).index(column.split(', ')[0]))
    lines = []
    for name, group in groupby(rows, lambda row: row['work']):
        lines.append(
            dict(model=name) | {row['implementation']: cell(row) for row in group}
        )
    yield table(lines, ['model', *columns]) + '\n'


def cell(row: Row) -> str | None:
    if 'images_per_s' not in row:
        return None
    speed, percent = row['images_per_s'], row.get('percent_over_bias')
    number = f'{speed:.0f}' if speed >= 100 else f'{speed:.3g}'
    if percent is None or row['position'] == 'bias':
        return number
    return f'{number} ({percent:+.0f} %)'
