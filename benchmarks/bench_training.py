"""Training steps of the flagship configs: time and peak memory.

A step is on images of noise: forward, loss, backward, update of the weights by the config's
optimizer, in mixed precision. Weights are random.
"""

from __future__ import annotations

import copy
import gc
from pathlib import Path

import torch
from mmengine.model import BaseModel
from mmengine.optim import OptimWrapper, build_optim_wrapper
from torch import Tensor, nn

from measure import Case, Row, Run, compare
from rope_dense.measure.speed import noise, profiled
from rope_dense.project.load import load_config
from rope_dense.project.model import random_model
from rope_dense.project.options import enable_amp

CONFIGS = Path(__file__).parents[1] / 'configs'
DTYPES = dict(fp16='float16', bf16='bfloat16')
FIRST_STEPS = 20  # at most: fp16 leaves out updates until its scale of the loss fits
Point = tuple[int, int, int]  # batch, height, width


def bench_training(
    device: torch.device,
    name: str,
    precision: str,
    *,
    size: tuple[int, int],
    batch: int = 2,
    rounds: int = 5,
    options: dict | None = None,
) -> list[Row]:
    """One row: ms and images_per_s of a step; peak_gb, of weights, the state of the optimizer and
    all tensors of a step; on a GPU reserved_gb, what PyTorch holds of its memory.

    Args:
        name: of a config in configs/.
        precision: 'fp16' (not on a CPU) or 'bf16'.
        size: (height, width) in pixels.
        options: changes of the config, see ``Config.merge_from_dict``.
    """
    row: Row = dict(implementation='step', dtype=DTYPES[precision], batch=batch)
    row |= dict(height=size[0], width=size[1])
    if precision == 'fp16' and device.type == 'cpu':
        return [row | dict(left_out='mixed precision in fp16 needs a GPU')]
    cfg = load_config(str(CONFIGS / f'{name}.py'))
    cfg.merge_from_dict(options or {})
    enable_amp(cfg, precision)
    gc.collect()

    before = torch.cuda.memory_allocated() if device.type == 'cuda' else 0
    model = random_model(copy.deepcopy(cfg)).to(device)
    wrapper = build_optim_wrapper(model.train(), copy.deepcopy(cfg.optim_wrapper))
    step = training_step(model, wrapper, cfg.default_scope, (batch, *size))
    for _ in range(FIRST_STEPS):
        step()
        if wrapper.optimizer.state:
            break
    memory = peak_of_step(step, model, wrapper, before)
    (times,) = compare([Case('step', lambda: step)], device, rounds=rounds)
    row |= {key: times[key] for key in ('median_ms', 'p20_ms', 'p80_ms')} | memory
    row['images_per_s'] = 1000 * batch / times['median_ms']
    finite = all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    return [row | dict(ok=finite and bool(wrapper.optimizer.state))]


def training_step(
    model: BaseModel, wrapper: OptimWrapper, scope: str, point: Point
) -> Run:
    """A function that trains on one batch of noise."""
    images, samples = noise(model, scope, *point)

    def step() -> None:
        with wrapper.optim_context(model):
            losses = model(images, copy.deepcopy(samples), mode='loss')
        wrapper.update_params(model.parse_losses(losses)[0])

    return step


def peak_of_step(
    step: Run, model: nn.Module, wrapper: OptimWrapper, before: int
) -> Row:
    """Of a model that has been trained.

    Args:
        before: bytes that were allocated on the GPU before the model was made.
    """
    if next(model.parameters()).is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        peak, reserved = (
            torch.cuda.max_memory_allocated(),
            torch.cuda.max_memory_reserved(),
        )
        return dict(peak_gb=(peak - before) / 2**30, reserved_gb=reserved / 2**30)
    lasting = [*model.parameters(), *model.buffers()]
    for state in wrapper.optimizer.state.values():
        lasting += [value for value in state.values() if isinstance(value, Tensor)]
    stored = sum(tensor.nbytes for tensor in lasting)
    return dict(peak_gb=(stored + profiled(step, on_gpu=False)[1]) / 2**30)
