"""Training steps that fit the memory of a GPU: ``tools/benchmark.py --fit``."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from itertools import product

import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from torch import nn

from ..backbones.base import Backbone
from ..evaluation.settings import FROM_CONFIG, parse_window
from ..profiling.memory import StepCost, measure_step
from ..utils.sizes import ImageSize
from .building import arguments_of
from .config import component_of
from .errors import UsageError, usage_errors
from .flags import enable_amp, enable_checkpointing
from .model_checks import random_model

MEMORY = re.compile(r'(\d+(?:\.\d+)?)\s*([GM])i?B', re.IGNORECASE)
LARGEST = 1024 * 2**30  # bytes: of more, a GPU's memory is a typing error
RESERVE = 0.1  # share of the memory for CUDA, its libraries and gaps between tensors
PRECISIONS = ('fp32', 'bf16')
TABLE = (
    f'{"window":<8}{"checkpointing":<15}{"precision":<11}{"size":<13}{"memory":>10}'
    f'{"largest batch":>15}{"TFLOP a step":>14}{"s a step":>10}  largest size'
)


def parse_memory(text: str) -> float:
    """Bytes for tensors on a GPU of '24GB' or '16384MB' (1024 MB in a GB); else UsageError."""
    match = MEMORY.fullmatch(text)
    unit = 2**30 if match and match[2].upper() == 'G' else 2**20
    memory = float(match[1]) * unit if match else 0.0
    if not 0 < memory <= LARGEST:
        raise UsageError(
            f'--fit {text}: give the memory of a GPU, such as 24GB or 16384MB, at most '
            f'{LARGEST / 2**30:g}GB'
        )
    return (1 - RESERVE) * memory


def fitting_steps(
    cfg: Config,
    limit: float,
    sizes: Sequence[ImageSize],
    windows: Sequence[str],
    batch: int,
    device: torch.device,
    tflops: float | None,
) -> Iterator[dict]:
    """A row for each window, checkpointing, precision and image size.

    Args:
        limit: bytes.
        windows: as ``parse_window`` reads them, or 'config'.
        batch: images of a step, for its memory, its operations and the largest image.
        tflops: 10^12 operations a second, for the time of a step.

    UsageError for a backbone without windows, or a model that cannot be trained.
    """
    for setting in product(windows, checkpointing_of(cfg), PRECISIONS):
        cost = cost_of(cfg, *setting, device)
        for height, width in sizes:
            largest = cost.largest_size(limit, batch, height, width) or (None, None)
            tflop = cost.operations.at(batch, height, width) / 1e12
            yield dict(
                **dict(zip(('window', 'checkpointing', 'precision'), setting, strict=True)),
                height=height,
                width=width,
                memory_gb=cost.memory(batch, height, width) / 2**30,
                largest_batch=cost.largest_batch(limit, height, width),
                tflop=tflop,
                seconds=tflop / tflops if tflops else None,
                largest_height=largest[0],
                largest_width=largest[1],
            )


def checkpointing_of(cfg: Config) -> tuple[bool, ...]:
    """False, and True if the backbone has gradient checkpointing."""
    backbone = component_of(cfg, MODELS, cfg.model.backbone)
    allowed = [] if backbone is None else arguments_of(backbone)  # building says that it is none
    return (False, True) if 'with_cp' in allowed else (False,)


def cost_of(
    cfg: Config, window: str, checkpointing: bool, precision: str, device: torch.device
) -> StepCost:
    """The cost of training steps with these settings, measured on a device."""
    cfg = copy.deepcopy(cfg)
    if checkpointing:
        enable_checkpointing(cfg)
    elif 'with_cp' in cfg.model.backbone:
        cfg.model.backbone.with_cp = False
    enable_amp(cfg, 'bf16')
    if precision == 'fp32':
        cfg.optim_wrapper.type = 'OptimWrapper'
    model = random_model(cfg).to(device)
    set_window(model, window)
    try:
        return measure_step(cfg, model)
    except (ValueError, RuntimeError) as error:
        raise UsageError(f'a small training step fails: {error}') from error


def set_window(model: nn.Module, text: str) -> None:
    """Set the windows of a model as ``--window`` says; UsageError if it has none."""
    backbone = model.backbone
    if text == FROM_CONFIG:
        return
    if not isinstance(backbone, Backbone) or not backbone.has_windows:
        raise UsageError(f'--window {text}: this {type(backbone).__name__} has no windows')
    with usage_errors():
        backbone.set_window_size(parse_window(text))


def table_row(row: dict) -> str:
    """The line of a row under ``TABLE``."""
    size = f'{row["height"]} x {row["width"]}'
    seconds = '-' if row['seconds'] is None else f'{row["seconds"]:.3f}'
    largest = f'{row["largest_height"]} x {row["largest_width"]}' if row['largest_height'] else '-'
    return (
        f'{row["window"]:<8}{"yes" if row["checkpointing"] else "no":<15}{row["precision"]:<11}'
        f'{size:<13}{row["memory_gb"]:>7.2f} GB{row["largest_batch"]:>15}{row["tflop"]:>14.3f}'
        f'{seconds:>10}  {largest}'
    )
